//! When the device worked and why it did not: merging what ran, and naming each gap.
//!
//! Overlapping intervals are merged first; a gap is what lies between two merged ones [HTA
//! `hta/analyzers/breakdown_analysis.py`, `get_idle_time_breakdown`].

/// A kernel, copy or memset on one device. Times are Unix nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Activity {
    /// Start on the device.
    pub start_ns: i64,
    /// End on the device.
    pub end_ns: i64,
    /// Start of the call that launched it, where it is known.
    pub launch_ns: Option<i64>,
    /// End of that call to the start on the device, 0 where the device was quicker.
    pub queue_delay_ns: Option<u64>,
    /// A kernel, not a copy or memset.
    pub is_kernel: bool,
}

/// A gap shorter than this is what the device needs between two kernels that are both in its queue.
pub const LAUNCH_OVERHEAD_NS: u64 = 1_500;

/// Why the device did nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gap {
    /// What came next was launched only after the device had run dry.
    HostBound,
    /// Shorter than [`LAUNCH_OVERHEAD_NS`].
    LaunchOverhead,
    /// Neither: the launch was in time, but something else held it up; or nothing is known of the launch.
    Other,
}

/// Number and sum of gaps of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GapSum {
    /// How many.
    pub n: u64,
    /// How long together, in nanoseconds.
    pub ns: u64,
}

/// How one device's time divides between its first start and its last end. `busy_ns` + all gaps = `extent_ns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Occupancy {
    /// Time in which at least one of them ran.
    pub busy_ns: u64,
    /// First start to last end.
    pub extent_ns: u64,
    /// Gaps that are [`Gap::HostBound`].
    pub host_bound: GapSum,
    /// Gaps that are [`Gap::LaunchOverhead`].
    pub launch_overhead: GapSum,
    /// Gaps that are [`Gap::Other`].
    pub other: GapSum,
}

impl Occupancy {
    /// Divides the time of what ran on one device, which is put in order of start.
    pub fn of(activities: &mut [Activity]) -> Self {
        activities.sort_by_key(|a| (a.start_ns, a.end_ns));
        let mut out = Self::default();
        let Some(first) = activities.first() else { return out };
        let start_ns = first.start_ns;
        let mut until = start_ns;
        for activity in activities.iter() {
            if activity.start_ns > until {
                let ns = activity.start_ns.abs_diff(until);
                let sum = match classify(activity.launch_ns, until, ns) {
                    Gap::HostBound => &mut out.host_bound,
                    Gap::LaunchOverhead => &mut out.launch_overhead,
                    Gap::Other => &mut out.other,
                };
                sum.n += 1;
                sum.ns = sum.ns.saturating_add(ns);
            }
            let from = activity.start_ns.max(until);
            if activity.end_ns > from {
                out.busy_ns = out.busy_ns.saturating_add(activity.end_ns.abs_diff(from));
            }
            until = until.max(activity.end_ns).max(activity.start_ns);
        }
        out.extent_ns = until.abs_diff(start_ns);
        out
    }

    /// Time within the extent in which nothing ran.
    pub fn idle_ns(&self) -> u64 {
        self.extent_ns.saturating_sub(self.busy_ns)
    }
}

/// Names the gap of `ns` between `idle_from`, when the device ran dry, and an activity launched at `launch_ns`.
fn classify(launch_ns: Option<i64>, idle_from: i64, ns: u64) -> Gap {
    if launch_ns.is_some_and(|launch| launch > idle_from) {
        Gap::HostBound
    } else if ns < LAUNCH_OVERHEAD_NS {
        Gap::LaunchOverhead
    } else {
        Gap::Other
    }
}
