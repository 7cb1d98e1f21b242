//! From a device's clock to the host's time line.

use super::HostNs;
use crate::gpu::DeviceNs;
use crate::run::DeviceAnchor;
use std::collections::VecDeque;

/// Anchors that times are interpolated between; at one every four seconds, over four minutes.
const RECENT: usize = 64;

/// Anchors kept for the manifest; a long run thins them out.
const KEPT: usize = 256;

/// A baseline shorter than this says nothing about drift: the anchors' own bounds drown it.
const DRIFT_BASELINE_NS: i64 = 1_000_000_000;

/// Maps one device's clock through anchors: between two by interpolation, after the last by its offset and the drift seen so far.
#[derive(Debug, Default)]
pub(crate) struct DeviceMapper {
    recent: VecDeque<DeviceAnchor>,
    first: Option<DeviceAnchor>,
    kept: Vec<DeviceAnchor>,
    /// Worst distance between where an anchor was expected and where it was read.
    worst_surprise_ns: u64,
    worst_bound_ns: u64,
    taken: u64,
}

impl DeviceMapper {
    /// Takes a simultaneous reading of both clocks.
    pub(crate) fn anchor(&mut self, at: DeviceNs, host: HostNs, bound_ns: u64) {
        let anchor = DeviceAnchor { device_ns: at.0, host_ns: host.0, bound_ns };
        if self.recent.back().is_some_and(|last| last.device_ns >= at.0) {
            return;
        }
        // The first prediction has no drift to go by, and the reading itself is no better than its bound.
        if self.taken > 1
            && let Some(expected) = self.to_host(at)
        {
            let surprise = expected.0.abs_diff(host.0).saturating_sub(bound_ns);
            self.worst_surprise_ns = self.worst_surprise_ns.max(surprise);
        }
        self.worst_bound_ns = self.worst_bound_ns.max(bound_ns);
        self.first.get_or_insert(anchor);
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(anchor);
        if self.kept.len() == KEPT {
            let mut keep = false;
            self.kept.retain(|_| {
                keep = !keep;
                keep
            });
        }
        self.kept.push(anchor);
        self.taken += 1;
    }

    /// Unix nanoseconds on the host; `None` before the first anchor.
    pub(crate) fn to_host(&self, at: DeviceNs) -> Option<HostNs> {
        let after = self.recent.partition_point(|a| a.device_ns <= at.0);
        let (from, slope) = match (after.checked_sub(1).and_then(|i| self.recent.get(i)), self.recent.get(after)) {
            (Some(a), Some(b)) => (a, (b.host_ns - a.host_ns) as f64 / (b.device_ns - a.device_ns) as f64),
            (Some(a), None) => (a, self.slope()),
            (None, Some(b)) => (b, self.slope()),
            (None, None) => return None,
        };
        Some(HostNs(from.host_ns + ((at.0 - from.device_ns) as f64 * slope) as i64))
    }

    /// Host nanoseconds in a device nanosecond, over the whole run.
    fn slope(&self) -> f64 {
        match (self.first, self.recent.back()) {
            (Some(a), Some(b)) if b.device_ns - a.device_ns >= DRIFT_BASELINE_NS => {
                (b.host_ns - a.host_ns) as f64 / (b.device_ns - a.device_ns) as f64
            }
            _ => 1.0,
        }
    }

    /// Drift of the device's clock against the host's in parts per million.
    pub(crate) fn drift_ppm(&self) -> f64 {
        (self.slope() - 1.0) * 1e6
    }

    /// How far a converted time may be off: the widest bracket and the worst surprise at an anchor.
    pub(crate) fn skew_bound_ns(&self) -> u64 {
        self.worst_bound_ns + self.worst_surprise_ns
    }

    /// For the manifest.
    pub(crate) fn anchors(&self) -> &[DeviceAnchor] {
        &self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device that runs `ppm` fast and started 7 s before the host's epoch.
    fn device(host: i64, ppm: f64) -> DeviceNs {
        DeviceNs(7_000_000_000 + host + (host as f64 * ppm / 1e6) as i64)
    }

    #[test]
    fn nothing_is_known_before_the_first_anchor() {
        assert_eq!(DeviceMapper::default().to_host(DeviceNs(1)), None);
    }

    #[test]
    fn one_anchor_is_an_offset() {
        let mut mapper = DeviceMapper::default();
        mapper.anchor(DeviceNs(1_000), HostNs(5_000), 10);
        assert_eq!(mapper.to_host(DeviceNs(1_500)), Some(HostNs(5_500)));
        assert_eq!(mapper.to_host(DeviceNs(900)), Some(HostNs(4_900)));
    }

    #[test]
    fn drift_is_followed_within_the_bound() {
        let mut mapper = DeviceMapper::default();
        for s in 0..20 {
            // Readings are off by up to 4 µs to either side, as their brackets say.
            let error = if s % 2 == 0 { 4_000 } else { -4_000 };
            mapper.anchor(device(s * 4_000_000_000, 20.0), HostNs(s * 4_000_000_000 + error), 5_000);
        }
        for ms in 0..80_000_i64 {
            let host = ms * 1_000_000;
            let mapped = mapper.to_host(device(host, 20.0)).unwrap().0;
            assert!((mapped - host).abs() <= 10_000, "{host} became {mapped}");
        }
        assert!((mapper.drift_ppm() + 20.0).abs() < 0.5, "{}", mapper.drift_ppm());
        assert!(mapper.skew_bound_ns() < 20_000, "{}", mapper.skew_bound_ns());
    }

    #[test]
    fn a_jump_shows_in_the_bound() {
        let mut mapper = DeviceMapper::default();
        for s in 0..4 {
            mapper.anchor(DeviceNs(s * 1_000_000_000), HostNs(s * 1_000_000_000), 1_000);
        }
        mapper.anchor(DeviceNs(4_000_000_000), HostNs(4_000_000_000 + 5_000_000), 1_000);
        assert!(mapper.skew_bound_ns() > 4_900_000);
    }

    #[test]
    fn anchors_that_run_backwards_are_left_out() {
        let mut mapper = DeviceMapper::default();
        mapper.anchor(DeviceNs(10), HostNs(10), 1);
        mapper.anchor(DeviceNs(10), HostNs(99), 1);
        assert_eq!(mapper.to_host(DeviceNs(10)), Some(HostNs(10)));
    }

    #[test]
    fn a_long_run_keeps_a_bounded_list() {
        let mut mapper = DeviceMapper::default();
        for s in 0..10_000 {
            mapper.anchor(DeviceNs(s * 1_000_000_000), HostNs(s * 1_000_000_000), 1);
        }
        assert!(mapper.anchors().len() <= KEPT && mapper.recent.len() <= RECENT);
    }
}
