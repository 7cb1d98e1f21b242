//! From a device's clock to the host's time line.

use crate::HostNs;
use crate::gpu::DeviceNs;
use crate::run::{DeviceAnchor, GPU_CLOCK_BOUND_NS};
use std::cell::Cell;
use std::collections::VecDeque;

/// Anchors that times are interpolated between; with one every four seconds, they cover over four minutes.
const RECENT: usize = 64;

/// Anchors kept for the manifest; in a long run they are thinned out.
const KEPT: usize = 256;

/// A shorter baseline says nothing about drift: the anchors' own error bounds are larger than the drift.
const DRIFT_BASELINE_NS: i64 = 1_000_000_000;

/// An anchor is *wide* if its bound is above [`GPU_CLOCK_BOUND_NS`] and this many times the best seen: the reading was
/// delayed, for example by a driver that was loading modules.
const WIDE: u64 = 8;

/// How fast two clocks may drift apart before their drift has been measured, and how large its error is afterwards.
const DRIFT_UNKNOWN: f64 = 100e-6;
const DRIFT_LEFT: f64 = 5e-6;

/// Maps one device's clock through anchors: between two by interpolation, after the last by its offset and the drift
/// seen so far.
///
/// A wide anchor is used only as long as there is nothing better. A new wide anchor is dropped if the others are more
/// certain about its moment than it is, and wide anchors in use are dropped when a better one comes.
#[derive(Debug, Default)]
pub(crate) struct DeviceMapper {
    recent: VecDeque<DeviceAnchor>,
    first: Option<DeviceAnchor>,
    kept: Vec<DeviceAnchor>,
    /// Largest difference between an anchor's predicted host time and its reading.
    worst_surprise_ns: u64,
    /// Widest bracket among the anchors in use.
    widest_ns: u64,
    /// Narrowest bracket of all readings.
    best_ns: Option<u64>,
    /// The largest error bound with which a time was converted.
    used_bound_ns: Cell<u64>,
    dropped: u64,
}

impl DeviceMapper {
    /// Takes a simultaneous reading of both clocks.
    pub(crate) fn anchor(&mut self, at: DeviceNs, host: HostNs, bound_ns: u64) {
        let anchor = DeviceAnchor { device_ns: at.0, host_ns: host.0, bound_ns };
        if self.recent.back().is_some_and(|last| last.device_ns >= at.0) {
            return;
        }
        self.best_ns = Some(self.best_ns.map_or(bound_ns, |best| best.min(bound_ns)));
        if self.is_wide(bound_ns) && self.uncertainty_at(at).is_some_and(|ours| ours < bound_ns as f64) {
            self.dropped += 1;
            return;
        }
        self.drop_wide_ones(&anchor);
        // The first prediction knows no drift yet, and the reading itself is no more exact than its bound.
        if self.recent.len() > 1
            && let Some(expected) = self.place(at)
        {
            let surprise = expected.0.abs_diff(host.0).saturating_sub(bound_ns);
            self.worst_surprise_ns = self.worst_surprise_ns.max(surprise);
        }
        self.widest_ns = self.widest_ns.max(bound_ns);
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
    }

    fn is_wide(&self, bound_ns: u64) -> bool {
        bound_ns > GPU_CLOCK_BOUND_NS && self.best_ns.is_none_or(|best| bound_ns > best.saturating_mul(WIDE))
    }

    /// How far off a time could be that the anchors in use give for `at`, by their brackets and the drift since the
    /// last of them.
    fn uncertainty_at(&self, at: DeviceNs) -> Option<f64> {
        let last = self.recent.back()?;
        Some(last.bound_ns as f64 + at.0.abs_diff(last.device_ns) as f64 * self.drift_uncertainty())
    }

    fn drift_uncertainty(&self) -> f64 {
        match (self.first, self.recent.back()) {
            (Some(a), Some(b)) if b.device_ns - a.device_ns >= DRIFT_BASELINE_NS => {
                DRIFT_LEFT + (a.bound_ns + b.bound_ns) as f64 / (b.device_ns - a.device_ns) as f64
            }
            _ => DRIFT_UNKNOWN,
        }
    }

    /// Drops the wide anchors about whose moments `better` is more certain.
    fn drop_wide_ones(&mut self, better: &DeviceAnchor) {
        if !self.recent.iter().any(|a| self.is_wide(a.bound_ns)) {
            return;
        }
        // The measured drift is not used here: the bad anchor is part of it.
        let worse = |a: &DeviceAnchor| {
            let distance = better.device_ns.abs_diff(a.device_ns) as f64;
            self.is_wide(a.bound_ns) && a.bound_ns as f64 > better.bound_ns as f64 + distance * DRIFT_UNKNOWN
        };
        let gone: Vec<DeviceAnchor> = self.recent.iter().copied().filter(worse).collect();
        self.dropped += gone.len() as u64;
        self.recent.retain(|a| !gone.contains(a));
        self.kept.retain(|a| !gone.contains(a));
        if self.first.is_some_and(|first| gone.contains(&first)) {
            self.first = self.kept.first().copied();
        }
        self.widest_ns = self.recent.iter().chain(&self.kept).map(|a| a.bound_ns).max().unwrap_or(0);
    }

    /// Unix nanoseconds on the host; `None` before the first anchor. The bound of each conversion counts towards
    /// [`skew_bound_ns`](Self::skew_bound_ns).
    pub(crate) fn to_host(&self, at: DeviceNs) -> Option<HostNs> {
        let placed = self.place(at)?;
        self.used_bound_ns.set(self.used_bound_ns.get().max(self.bound_ns()));
        Some(placed)
    }

    fn place(&self, at: DeviceNs) -> Option<HostNs> {
        let after = self.recent.partition_point(|a| a.device_ns <= at.0);
        let (from, slope) = match (after.checked_sub(1).and_then(|i| self.recent.get(i)), self.recent.get(after)) {
            (Some(a), Some(b)) => (a, (b.host_ns - a.host_ns) as f64 / (b.device_ns - a.device_ns) as f64),
            (Some(a), None) => (a, self.slope()),
            (None, Some(b)) => (b, self.slope()),
            (None, None) => return None,
        };
        Some(HostNs(from.host_ns + ((at.0 - from.device_ns) as f64 * slope) as i64))
    }

    /// Host nanoseconds per device nanosecond, over the whole run.
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

    /// The widest bracket of the anchors in use and the largest error of a prediction, together.
    fn bound_ns(&self) -> u64 {
        self.widest_ns.saturating_add(self.worst_surprise_ns)
    }

    /// How far a converted time may be off: the largest bound of the mapping when it was used, or its bound now. An
    /// anchor that was dropped before any time was converted with it does not count.
    pub(crate) fn skew_bound_ns(&self) -> u64 {
        self.used_bound_ns.get().max(self.bound_ns())
    }

    /// Anchors that were not used, or are not used any more, because others were more certain.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The anchors in use, for the manifest.
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
            // Readings are off by up to 4 µs in either direction, within their brackets.
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
    fn a_wide_first_anchor_goes_when_a_better_one_comes() {
        // As seen on a real machine: the first reading took 14.66 s while modules loaded, so its middle is 7.33 s off.
        let truth = |host: i64| device(host, 20.0);
        let mut mapper = DeviceMapper::default();
        mapper.anchor(truth(1_000_000), HostNs(1_000_000 + 7_330_000_000), 7_330_000_000);
        for s in 1..6 {
            mapper.anchor(truth(20_000_000_000 + s * 500_000_000), HostNs(20_000_000_000 + s * 500_000_000), 3_000);
        }
        for ms in [0, 5_000, 20_500, 22_000, 23_000] {
            let host = ms * 1_000_000;
            let off = mapper.to_host(truth(host)).unwrap().0 - host;
            assert!(off.abs() < 1_000_000, "{ms} ms is {off} ns off");
        }
        assert_eq!((mapper.dropped(), mapper.anchors().len()), (1, 5));
        // At the second anchor the prediction is off by the drift: 20 parts per million of half a second.
        assert!(mapper.skew_bound_ns() < 20_000, "{}", mapper.skew_bound_ns());
        assert!((mapper.drift_ppm() + 20.0).abs() < 5.0, "{}", mapper.drift_ppm());
    }

    #[test]
    fn a_bound_that_times_were_placed_under_is_not_forgotten() {
        let mut mapper = DeviceMapper::default();
        mapper.anchor(device(0, 0.0), HostNs(2_000_000_000), 2_000_000_000);
        assert!(mapper.to_host(device(5, 0.0)).is_some(), "there is nothing better, and somebody needs it now");
        mapper.anchor(device(3_000_000_000, 0.0), HostNs(3_000_000_000), 2_000);
        assert_eq!((mapper.dropped(), mapper.anchors().len()), (1, 1));
        assert_eq!(mapper.skew_bound_ns(), 2_000_000_000, "a row was written with it");
    }

    #[test]
    fn a_wide_anchor_among_narrow_ones_is_not_used() {
        let mut mapper = DeviceMapper::default();
        for s in 0..10 {
            let host = s * 1_000_000_000;
            match s {
                // Up to 3 ms wrong, as its bound says.
                5 => mapper.anchor(device(host, 5.0), HostNs(host + 3_000_000), 3_000_000),
                _ => mapper.anchor(device(host, 5.0), HostNs(host), 2_000),
            }
        }
        assert_eq!((mapper.dropped(), mapper.anchors().len()), (1, 9));
        let off = mapper.to_host(device(5_000_000_000, 5.0)).unwrap().0 - 5_000_000_000;
        assert!(off.abs() < 1_000, "{off}");
        assert!(mapper.skew_bound_ns() < 10_000, "{}", mapper.skew_bound_ns());
    }

    #[test]
    fn where_there_are_only_wide_ones_they_are_used_and_said_to_be() {
        let mut mapper = DeviceMapper::default();
        for s in 0..5 {
            mapper.anchor(device(s * 4_000_000_000, 0.0), HostNs(s * 4_000_000_000), 2_000_000);
        }
        assert_eq!((mapper.dropped(), mapper.anchors().len()), (0, 5));
        assert!((2_000_000..2_100_000).contains(&mapper.skew_bound_ns()), "{}", mapper.skew_bound_ns());
        // After an hour without another reading, a wide anchor is more certain than a narrow one of an hour ago.
        mapper.anchor(device(20_000_000_000, 0.0), HostNs(20_000_000_000), 2_000);
        mapper.anchor(device(3_620_000_000_000, 0.0), HostNs(3_620_000_000_000), 1_000_000);
        assert_eq!(mapper.anchors().last().map(|a| a.bound_ns), Some(1_000_000));
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
