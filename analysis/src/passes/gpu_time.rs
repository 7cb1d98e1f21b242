//! GPU time of a path: what was measured, on how many of its intervals, and what that says about all of them.
//!
//! GPU time is *sampled*: in the adaptive tier only one step in N has marks on every interval. A mean is over the intervals that
//! have GPU time; a total over all intervals is that mean × their number, and is labelled with how many were measured. What was
//! not measured stays unknown, never zero.

use candlescope_core::GpuSource;

pub use candlescope_core::estimate::extrapolated;

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
