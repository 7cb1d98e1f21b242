//! How a device's time divides while steps were open, and why it was idle.

use super::context::Context;
use super::tables::Waits;
use super::works::{DeviceWorks, UnbrokenWork, Work, Works, by_stream, unbroken};
use crate::gaps::{Gap, GapSum, classify, divide, host_part};
use crate::step_rows::StepRow;
use candlescope_schema::stretches::{Stretch, intersection, length, merged};
use serde::Serialize;
use std::collections::BTreeMap;

/// A device's time while steps were open: `wall = busy + gaps + edges`, to the nanosecond. Times are nanoseconds over
/// the *union* of the steps, so that steps of several threads that overlap do not count twice.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Line {
    /// Steps with work on the device.
    pub steps: u64,
    /// Time in which at least one of them was open.
    pub wall_ns: u64,
    /// Sum of their durations, those of one thread that are inside each other counted once.
    pub open_ns: u64,
    /// Time in which something ran, whoever launched it.
    pub busy_ns: u64,
    /// Sum of all gaps.
    pub idle_ns: u64,
    /// Time before the first work in a window of open steps, and after the last.
    pub edges_ns: u64,
    /// Busy time summed over streams: if two streams work at once, both count.
    pub streams_ns: u64,
    /// The same gaps by why the device was idle: the classes add up to `idle_ns`.
    pub gaps: Gaps,
    /// Part of the host-bound gaps in which the host was occupied with recording intervals: intervals begun between the
    /// two launches × the measured cost of one. Derived; `None` if the run does not say what an interval costs.
    pub profiler_ns: Option<u64>,
}

/// Gaps by class. The classes are those of `docs/definitions.md`, divided further where the data carry it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Gaps {
    /// The launch of the next work returned only after the device had run out of work: until it had.
    pub host_bound: GapSum,
    /// The same after a copy that the host had waited for: the queue was empty because the host had drained it.
    pub sync: GapSum,
    /// The rest of gaps of these two kinds: from the end of the launch to the start on the device.
    pub launch_latency: GapSum,
    /// Shorter than what a device needs between two kernels.
    pub launch_overhead: GapSum,
    /// Launched in time, but before or after a copy or memset, which takes its own time to begin.
    pub copy: GapSum,
    /// All other gaps: launched in time, but something else delayed the work; or nothing is known about the launch.
    pub other: GapSum,
    /// The clocks are not exact enough to tell whether the host was late.
    pub uncertain: GapSum,
}

impl Gaps {
    /// Name and sum of each class.
    pub fn classes(&self) -> [(&'static str, GapSum); 7] {
        [
            ("host-bound", self.host_bound),
            ("sync", self.sync),
            ("launch latency", self.launch_latency),
            ("launch overhead", self.launch_overhead),
            ("copy", self.copy),
            ("other", self.other),
            ("within the clocks' error", self.uncertain),
        ]
    }

    /// Time that the device waited for launches that came too late, until the work began, in nanoseconds. Of the latency
    /// of launches, the part after waits for a copy is left out by number.
    pub fn late_ns(&self) -> u64 {
        let (late, all) = (self.host_bound.n as f64, self.host_bound.n.saturating_add(self.sync.n).max(1) as f64);
        self.host_bound.ns.saturating_add((self.launch_latency.ns as f64 * late / all) as u64)
    }

    /// Time of all seven classes together, in nanoseconds.
    pub fn ns(&self) -> u64 {
        self.classes().iter().fold(0, |sum, (_, gaps)| sum.saturating_add(gaps.ns))
    }
}

/// The steps of one phase, or of one name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PhaseLine {
    /// The phase, or the steps' name.
    pub name: String,
    /// How the device's time divides while they were open.
    #[serde(flatten)]
    pub line: Line,
}

/// Classifies gaps.
pub(super) struct Judge<'a> {
    works: &'a Works,
    /// How far the device's times may be off; if that is not known, every gap may be within it.
    bound_ns: u64,
    overhead_ns: u64,
    /// What an interval costs the thread that enters it, in nanoseconds.
    per_interval_ns: Option<f64>,
}

/// Class of a gap, finer than [`Gap`].
enum Class {
    HostBound,
    Sync,
    LaunchOverhead,
    Copy,
    Other,
    Uncertain,
}

impl<'a> Judge<'a> {
    pub(super) fn of(works: &'a Works, context: &Context<'_>) -> Self {
        Self {
            works,
            bound_ns: context.clocks.within().unwrap_or(u64::MAX),
            overhead_ns: context.options.overhead_ns,
            per_interval_ns: Some(context.manifest.overhead.per_interval_ns).filter(|ns| *ns > 0.0),
        }
    }

    fn class(&self, before: &Work, after: &Work, idle_from: i64, ns: u64) -> Class {
        match classify(after.ready(), idle_from, ns, self.bound_ns, self.overhead_ns) {
            Gap::HostBound if before.is_blocking_copy() && before.thread() == after.thread() => Class::Sync,
            Gap::HostBound => Class::HostBound,
            Gap::LaunchOverhead => Class::LaunchOverhead,
            Gap::Uncertain => Class::Uncertain,
            Gap::Other if !before.is_kernel() || !after.is_kernel() => Class::Copy,
            Gap::Other => Class::Other,
        }
    }

    /// Nanoseconds of a host-bound gap that recording took: the intervals that the thread began between the two
    /// launches are taken to lie evenly between them. The launching call is the host's as well, and has none.
    fn profiler_ns(&self, before: &Work, after: &Work, idle_from: i64) -> f64 {
        let (Some(cost), Some(called), Some(launched)) = (self.per_interval_ns, before.call(), after.call()) else {
            return 0.0;
        };
        if before.thread().is_none() || before.thread() != after.thread() {
            return 0.0;
        }
        let between = launched.0.saturating_sub(called.1).max(1) as f64;
        let in_gap = launched.0.saturating_sub(idle_from.max(called.1)).max(0) as f64;
        let intervals = after.seq.saturating_sub(before.seq) as f64;
        (intervals * cost).min(between) * (in_gap / between).min(1.0)
    }
}

/// When a device worked.
pub(super) struct WorkedTime<'a> {
    work: &'a [Work],
    all: Vec<UnbrokenWork>,
    /// Stream by stream; empty where there is only one.
    streams: Vec<Vec<UnbrokenWork>>,
}

impl<'a> WorkedTime<'a> {
    pub(super) fn of(device: &'a DeviceWorks) -> Self {
        let work = &device.work;
        let all = unbroken(work, 0..work.len() as u32);
        let single = work.iter().all(|one| one.stream == work[0].stream);
        let streams = if single { BTreeMap::new() } else { by_stream(work, |_| true) };
        let streams = streams.into_values().map(|indices| unbroken(work, indices.into_iter()));
        Self { work, all, streams: streams.collect() }
    }
}

/// How the device's time divides within `windows`, in which `steps` were open. Gaps are booked to the paths whose work
/// ended them in `waits`.
pub(super) fn line(
    worked: &WorkedTime<'_>,
    steps: &[&StepRow],
    windows: &[Stretch],
    judge: &Judge<'_>,
    mut waits: Option<&mut Waits>,
) -> Line {
    let work = worked.work;
    let (mut gaps, mut profiler) = (Gaps::default(), 0.0);
    let divided = divide(&worked.all, windows, |before: &UnbrokenWork, after: &UnbrokenWork, idle_from, ns| {
        let (before, after) = (&work[before.last as usize], &work[after.first as usize]);
        let class = judge.class(before, after, idle_from, ns);
        let late = matches!(class, Class::HostBound | Class::Sync);
        let sum = match class {
            Class::HostBound => &mut gaps.host_bound,
            Class::Sync => &mut gaps.sync,
            Class::LaunchOverhead => &mut gaps.launch_overhead,
            Class::Copy => &mut gaps.copy,
            Class::Other => &mut gaps.other,
            Class::Uncertain => &mut gaps.uncertain,
        };
        if late {
            let (host, rest) = host_part(after.ready(), idle_from, ns);
            sum.add(host);
            gaps.launch_latency.add_some(rest);
        } else {
            sum.add(ns);
        }
        if late {
            profiler += judge.profiler_ns(before, after, idle_from);
        }
        if let Some(waits) = waits.as_deref_mut() {
            waits.add(judge.works, after, ns, late);
        }
    });
    let mut threads: BTreeMap<u32, Vec<Stretch>> = BTreeMap::new();
    steps.iter().for_each(|step| threads.entry(step.thread).or_default().push(step.window()));
    let open_ns = threads.into_values().map(|open| length(&intersection(&merged(open), windows)));
    let streams_ns = worked.streams.iter().map(|blocks| divide(blocks, windows, |_, _, _, _| {}).busy_ns);
    Line {
        steps: steps.len() as u64,
        wall_ns: divided.wall_ns,
        open_ns: open_ns.fold(0, u64::saturating_add),
        busy_ns: divided.busy_ns,
        idle_ns: gaps.ns(),
        edges_ns: divided.edges_ns,
        streams_ns: match &*worked.streams {
            // It is busy whenever the device is.
            [] => divided.busy_ns,
            _ => streams_ns.fold(0, u64::saturating_add),
        },
        gaps,
        profiler_ns: judge.per_interval_ns.map(|_| profiler.round() as u64),
    }
}

impl Line {
    /// A part of time as a share of the steps' wall time.
    pub fn of_wall(&self, ns: u64) -> Option<f64> {
        (self.wall_ns > 0).then(|| ns as f64 / self.wall_ns as f64)
    }

    /// Streams at work at once, on average over the time in which any was.
    pub fn streams_at_once(&self) -> Option<f64> {
        (self.busy_ns > 0).then(|| self.streams_ns as f64 / self.busy_ns as f64)
    }

    /// Steps open at once, on average over the time in which any was.
    pub fn steps_at_once(&self) -> Option<f64> {
        (self.wall_ns > 0).then(|| self.open_ns as f64 / self.wall_ns as f64)
    }
}
