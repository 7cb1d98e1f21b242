//! The GPU's side of an interval: the contracts of what marks a stream and of what records kernels, and how detailed
//! both are.
//!
//! Two independent sources give intervals their device time, and neither ever waits for the device:
//!
//! - a [`GpuClock`] puts **marks** (pooled timing events) into the stream that an application's thread launches into,
//!   and reads them back later on the drain thread. The time between two marks is *stream elapsed* time, gaps in the
//!   queue included;
//! - an [`Activity`] records every **kernel**, copy and memset in windows of steps, and knows which interval launched
//!   it.
//!
//! Neither trait needs hardware: in the tests a scripted clock drives the same pipeline.

mod activity;
mod gpu_clock;
mod marking;

pub use activity::{
    Activity, ActivityError, ActivitySink, Correlator, GraphNode, OUTSIDE_WINDOW, RawKernel, UndeliveredWork,
};
pub use gpu_clock::{DeviceInfo, DeviceNs, GpuClock, GpuLane, GpuLanes, GpuReport, MarkId, NoMark};
pub(crate) use marking::{MarkingState, StepKind};

/// How GPU time is taken: a tier of detail, and what it may cost.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct GpuTiming {
    /// Which intervals get marks.
    pub tier: crate::vocabulary::GpuTier,
    /// Share of step time that marks may cost in the adaptive tier; default 0.02. Each thread keeps to it for each kind
    /// of step: the following steps pay off the cost of a step in full, and then the next one is in full, so that they
    /// are spread over the run.
    ///
    /// Only what marks *cost* counts, not what they wait. A mark that finds the launch queue full waits for room, as
    /// the launch after it would have done; one that finds the driver's lock taken waits for another thread's launch.
    /// On a busy device waiting takes ten times as long as marks cost, and counting it would starve this tier where it
    /// is needed most. The wait is stated separately in `run.json`, as `gpu.marks_wait_ns`.
    ///
    /// Cold steps are not in full: the first of its kind on a thread, and the first after a pause of a second. If there
    /// is only one step of a kind in a session, it is in full although it is cold, and listed in `gpu.cold_steps`.
    ///
    /// Overload policy: if even the marks of steps alone cost more than half of this, some steps get no marks either.
    pub budget: f64,
}

impl Default for GpuTiming {
    fn default() -> Self {
        Self { tier: crate::vocabulary::GpuTier::Adaptive, budget: 0.02 }
    }
}

impl GpuTiming {
    /// This tier with the default budget.
    pub fn tier(tier: crate::vocabulary::GpuTier) -> Self {
        Self { tier, ..Self::default() }
    }

    /// Sets the budget of the adaptive tier: 0.02 is 2 % of step time.
    #[must_use]
    pub fn budget(mut self, share: f64) -> Self {
        self.budget = share;
        self
    }
}
