//! How devices' time divides, and how well their clocks can be compared with the host's.

use super::gaps::GapSum;
use super::stats::{Distribution, total};
use candlescope_schema::run::{GPU_CLOCK_BOUND_NS, RunManifest};

/// From this share of steps' time on, spent in gaps whose launch came too late, a run waits for its host [HTA's host wait].
pub const LAUNCH_BOUND: f64 = 0.15;

/// How devices' time divides while recorded steps were open. Kernels, copies and memsets all count as work.
///
/// All times but [`own_ns`](Self::own_ns) are over the *union* of the steps on each device, so that steps of several
/// threads that overlap do not count twice: `wall = busy + idle + unattributed`, to the nanosecond. Several devices add
/// up.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Busy {
    /// Recorded steps. A step on several GPUs counts once. In the sum over all phases, steps around other steps are
    /// left out.
    pub steps: u64,
    /// GPUs they ran on.
    pub devices: u64,
    /// Time in which at least one of the steps was open, summed over GPUs: the denominator of all shares.
    pub wall_ns: u64,
    /// Sum of the steps' durations over GPUs; two steps inside each other count once.
    pub open_ns: u64,
    /// Time in which something ran, whoever launched it.
    pub busy_ns: u64,
    /// Time in which work of these steps ran, also after they had ended on the host.
    pub own_ns: u64,
    /// Time of work that ran after its step had ended on the host; work that overlaps within a step counts once.
    pub after_ns: u64,
    /// Busy time summed over streams: if two streams work at once, both count.
    pub streams_ns: u64,
    /// Gaps before work whose launch returned only after the device had run out of work, until it had.
    pub host_bound: GapSum,
    /// The rest of these gaps: from the end of the launch to the start on the device.
    pub launch_latency: GapSum,
    /// Gaps under 1.5 µs.
    pub launch_overhead: GapSum,
    /// Gaps for which the clocks are not exact enough to tell whether the host caused them.
    pub uncertain: GapSum,
    /// All other gaps: launched early enough but delayed by something else, or nothing is known about the launch.
    pub other: GapSum,
    /// Wall time that is neither busy nor a gap: before the first kernel starts and after the last ends.
    pub unattributed_ns: u64,
    /// Kernels that these steps launched, on all these GPUs; each kernel of a CUDA graph counts.
    pub launches: u64,
    /// Copies in any direction and memsets that these steps launched, on all these GPUs.
    pub copies: u64,
    /// From the end of the launching call to the start on the device, of kernels, in nanoseconds; without its samples.
    pub queue_delay: Option<Distribution>,
    /// The error bound of the clocks is not known, and so neither is why the device was idle: gaps have no class, and
    /// there is no `queue_delay`.
    pub clocks_unknown: bool,
}

impl Busy {
    /// Time in which something ran ÷ wall time of the steps.
    pub fn busy_share(&self) -> Option<f64> {
        self.of_wall(self.busy_ns as f64)
    }

    /// Gaps that late launches caused, until the work began, ÷ wall time of the steps; `None` if the error bound of the
    /// clocks is not known.
    pub fn launch_bound_share(&self) -> Option<f64> {
        let late = self.host_bound.ns.saturating_add(self.launch_latency.ns);
        self.of_wall(late as f64).filter(|_| !self.clocks_unknown)
    }

    /// Gaps of all kinds.
    pub fn idle_ns(&self) -> u64 {
        let kinds = [self.host_bound, self.launch_latency, self.launch_overhead, self.uncertain, self.other];
        total(kinds.map(|gaps| gaps.ns))
    }

    /// [`unattributed_ns`](Self::unattributed_ns) ÷ wall time of the steps.
    pub fn unattributed_share(&self) -> Option<f64> {
        self.of_wall(self.unattributed_ns as f64)
    }

    /// Steps open at once, on average over the time in which any was.
    pub fn steps_at_once(&self) -> Option<f64> {
        self.of_wall(self.open_ns as f64)
    }

    /// Streams at work at once, on average over the time in which any was.
    pub fn streams_at_once(&self) -> Option<f64> {
        (self.busy_ns > 0).then(|| self.streams_ns as f64 / self.busy_ns as f64)
    }

    /// Kernels for each step.
    pub fn launches_per_step(&self) -> Option<f64> {
        (self.steps > 0).then(|| self.launches as f64 / self.steps as f64)
    }

    /// Any part of time as a share of the steps' wall time.
    pub fn of_wall(&self, ns: f64) -> Option<f64> {
        (self.wall_ns > 0).then(|| ns / self.wall_ns as f64)
    }
}

/// What is known about the devices' clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clocks {
    /// How far the devices' times may be off on the host's time line, in nanoseconds; `None` if the run does not say.
    pub bound_ns: Option<u64>,
}

impl Clocks {
    /// Whether the bound is too large to compare the device's times with the host's at all.
    pub fn apart(&self) -> bool {
        self.bound_ns.is_some_and(|ns| ns > GPU_CLOCK_BOUND_NS)
    }

    /// The bound within which gaps can be classified; `None` if it is not known.
    pub fn within(&self) -> Option<u64> {
        self.bound_ns.filter(|_| !self.apart())
    }

    /// What the run says about the clock of its recorded kernels.
    pub fn of(manifest: &RunManifest) -> Self {
        Self { bound_ns: manifest.gpu.as_ref().and_then(|gpu| gpu.kernels.as_ref()?.clock_bound_ns) }
    }
}
