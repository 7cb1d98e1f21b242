//! GPU time of a path: what was measured, on how many of its intervals, and what that says about all of them.
//!
//! GPU time is *sampled*: in the adaptive tier only one step in N has marks on every interval. A mean is over the intervals that
//! have GPU time; a total over all intervals is that mean × their number, and is labelled with how many were measured. What was
//! not measured stays unknown, never zero.

use candlescope_core::GpuSource;

/// GPU time of one path's intervals from one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GpuSums {
    /// Intervals with GPU time.
    pub calls: u64,
    /// Sum of it in nanoseconds.
    pub total_ns: u64,
    /// Of those, intervals of which it is known what their children took.
    pub self_calls: u64,
    /// Sum of GPU time of these, less their children's, in nanoseconds.
    pub self_ns: u64,
}

/// GPU time of one path's intervals. An interval has one source: kernels where they were recorded, else marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GpuBySource {
    /// Between two marks on the stream, queue gaps included: "stream elapsed".
    pub event: GpuSums,
    /// Sum of the kernels launched inside.
    pub cupti: GpuSums,
}

impl GpuBySource {
    /// What one source measured.
    pub fn of(&self, source: GpuSource) -> &GpuSums {
        match source {
            GpuSource::Event => &self.event,
            GpuSource::Cupti => &self.cupti,
        }
    }

    /// The same, to add to.
    pub fn of_mut(&mut self, source: GpuSource) -> &mut GpuSums {
        match source {
            GpuSource::Event => &mut self.event,
            GpuSource::Cupti => &mut self.cupti,
        }
    }
}

/// What reports call a source's time.
pub fn source_name(source: GpuSource) -> &'static str {
    match source {
        GpuSource::Event => "stream elapsed",
        GpuSource::Cupti => "kernels",
    }
}

/// Mean over the measured intervals × number of all; `None` where none was measured.
pub fn extrapolated(total_ns: u64, measured: u64, all: u64) -> Option<f64> {
    (measured > 0).then(|| total_ns as f64 / measured as f64 * all as f64)
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
}
