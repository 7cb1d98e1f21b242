//! From sampled GPU time to a total: one formula for reports, live metrics and traces. Pure.
//!
//! GPU time is *sampled*: in the adaptive tier only one step in N has marks on every interval, and kernels are recorded
//! in windows of steps. The total of all intervals of a path is then
//!
//! > total = mean of the measured intervals × number of all intervals
//!
//! for one path and one source. Sources are never added up: `event` is time elapsed on the stream with its gaps,
//! `cupti` the sum of kernels. The measured sums of a parent, which every step measures, and of its children, which few
//! steps measure, cannot be compared; their totals can.
//!
//! An interval is measured by `event` if it has both marks. It is measured by `cupti` if its step's kernels were
//! recorded, whether or not it launched any: no kernel is then a measurement too, of zero.

use crate::vocabulary::GpuSource;

/// Mean over the measured intervals × number of `all` intervals, in the unit of `total_ns`; `None` if none was
/// measured.
pub fn extrapolated(total_ns: u64, measured: u64, all: u64) -> Option<f64> {
    (measured > 0).then(|| total_ns as f64 / measured as f64 * all as f64)
}

/// What one source measured for the intervals of one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MeasuredTime {
    /// Intervals that were measured.
    pub n: u64,
    /// Sum of their GPU time in nanoseconds.
    pub total_ns: u64,
}

impl MeasuredTime {
    /// Adds a measured interval of `ns` nanoseconds.
    pub fn add(&mut self, ns: u64) {
        self.absorb(Self { n: 1, total_ns: ns });
    }

    /// Adds the measurements of further intervals of the same path by the same source.
    pub fn absorb(&mut self, more: Self) {
        self.n = self.n.saturating_add(more.n);
        self.total_ns = self.total_ns.saturating_add(more.total_ns);
    }

    /// GPU time of `all` intervals of the path in nanoseconds, by [`extrapolated`]; `None` if none was measured.
    pub fn total_of(self, all: u64) -> Option<f64> {
        extrapolated(self.total_ns, self.n, all)
    }
}

/// What each source measured for the intervals of one path; the sources are kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MeasuredBySource {
    /// By the time between two marks on the stream.
    pub event: MeasuredTime,
    /// By the sum of the kernels.
    pub cupti: MeasuredTime,
}

impl MeasuredBySource {
    /// What one source measured.
    pub fn of(&self, source: GpuSource) -> MeasuredTime {
        match source {
            GpuSource::Event => self.event,
            GpuSource::Cupti => self.cupti,
        }
    }

    /// What one source measured, to add to it.
    pub fn of_mut(&mut self, source: GpuSource) -> &mut MeasuredTime {
        match source {
            GpuSource::Event => &mut self.event,
            GpuSource::Cupti => &mut self.cupti,
        }
    }

    /// Adds the measurements of further intervals of the same path.
    pub fn absorb(&mut self, more: Self) {
        self.event.absorb(more.event);
        self.cupti.absorb(more.cupti);
    }

    /// The source to show if there is room for only one: the one that measured more intervals, or kernels if both
    /// measured the same number. `None` if nothing was measured.
    pub fn shown(&self) -> Option<GpuSource> {
        match (self.event.n, self.cupti.n) {
            (0, 0) => None,
            (event, cupti) if event > cupti => Some(GpuSource::Event),
            _ => Some(GpuSource::Cupti),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_is_the_mean_times_the_number() {
        assert_eq!(extrapolated(300, 3, 12), Some(1200.0));
        assert_eq!(extrapolated(0, 3, 12), Some(0.0), "measured and nothing is zero");
        assert_eq!(extrapolated(0, 0, 12), None, "not measured is not zero");
    }

    /// A kernel of 1 ms in one of ten recorded calls is 0.1 ms per call, and 10 ms for 100 calls.
    #[test]
    fn a_recorded_call_without_a_kernel_counts() {
        let mut measured = MeasuredTime::default();
        measured.add(1_000_000);
        (0..9).for_each(|_| measured.add(0));
        assert_eq!(measured.total_of(1), Some(100_000.0));
        assert_eq!(measured.total_of(100), Some(10_000_000.0));
    }

    #[test]
    fn sources_stay_apart() {
        let mut both = MeasuredBySource::default();
        assert_eq!(both.shown(), None);
        both.of_mut(GpuSource::Event).add(70);
        assert_eq!(both.shown(), Some(GpuSource::Event));
        both.of_mut(GpuSource::Cupti).add(50);
        assert_eq!(both.shown(), Some(GpuSource::Cupti), "kernels where both measured as many");
        both.absorb(MeasuredBySource { event: MeasuredTime { n: 2, total_ns: 130 }, cupti: MeasuredTime::default() });
        assert_eq!(both.shown(), Some(GpuSource::Event));
        assert_eq!(
            (both.of(GpuSource::Event), both.of(GpuSource::Cupti).total_ns),
            (MeasuredTime { n: 3, total_ns: 200 }, 50)
        );
    }
}
