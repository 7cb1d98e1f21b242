//! The GPU's side of an interval: the contracts of what marks a stream, what records kernels, and how detailed both
//! are.
//!
//! Two independent sources attach device time to intervals, and neither ever waits for the device:
//!
//! - a [`GpuClock`] puts **marks** (pooled timing events) into the stream an application's thread launches into, and
//!   reads them back later on the drain thread. What is between two marks is *stream elapsed* time, gaps in the queue
//!   included;
//! - an [`Activity`] records every **kernel**, copy and memset in windows of steps, and knows which interval launched
//!   it.
//!
//! No hardware is needed to use either trait: a scripted clock drives the same pipeline in the tests.

mod activity;
mod gpu_clock;
mod marking;

pub use activity::{Activity, ActivityError, ActivitySink, Correlator, OUTSIDE_WINDOW, RawKernel};
pub use gpu_clock::{DeviceInfo, DeviceNs, GpuClock, GpuLane, GpuLanes, GpuReport, MarkId, NoMark};
pub(crate) use marking::{Marking, StepKind};

/// How GPU time is taken: a tier of detail, and what it may cost.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct GpuTiming {
    /// Which intervals get marks.
    pub tier: crate::vocabulary::GpuTier,
    /// Share of step time that marks may cost in the adaptive tier; 0.02 unless told otherwise. Each thread keeps to it
    /// for each kind of step: a step in full is paid off by those that follow, and then the next one is in full, so
    /// they are spread over the run.
    ///
    /// What counts is what marks *cost*, not what they wait. A mark that finds the launch queue full waits for room, as
    /// the launch behind it would have done; one that finds the driver's lock taken waits for another thread's launch.
    /// Where a device is kept busy that is ten times the cost, and would starve this tier where it is wanted most.
    /// Waiting is in `run.json` as [`marks_wait_ns`](crate::run::GpuAccount::marks_wait_ns), by itself.
    ///
    /// A cold step is not in full: the first of its kind on a thread, and the first after a pause of a second. Where a
    /// kind of step comes only once in a session, that one is all there is: it is in full, and named in
    /// [`cold_steps`](crate::run::GpuAccount::cold_steps).
    ///
    /// Overload policy: when even marks of steps alone cost more than half of this, steps are left out too.
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

    /// Another budget for the adaptive tier: 0.02 is 2 % of step time.
    #[must_use]
    pub fn budget(mut self, share: f64) -> Self {
        self.budget = share;
        self
    }
}
