//! The time line of each device: its steps, its work, and how the steps' time divides.

use super::busy::{Busy, Clocks};
use super::covered::CoveredTime;
use super::device_work::DeviceWork;
use super::gaps::{Activity, Block, Occupancy, blocks, merged_ns};
use super::stats::Distribution;
use super::step_rows::StepRow;
use candlescope_schema::stretches::{beside, difference, length, merged_but_touching};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// One device while recorded steps were open.
pub(super) struct Timeline<'a> {
    pub(super) device: Arc<str>,
    /// Steps with work on it, in order of start.
    own: Vec<OnDevice<'a>>,
    /// Everything that ran on it, merged.
    blocks: Vec<Block>,
    /// The same stream by stream; empty where there is only one.
    streams: Vec<Vec<Block>>,
    clocks: Clocks,
    covered: &'a CoveredTime,
    /// Time in which steps without recorded kernels ran on other threads.
    beside: Arc<Vec<(i64, i64)>>,
}

/// A step and its work on one device.
#[derive(Clone, Copy)]
pub(super) struct OnDevice<'a> {
    step: &'a StepRow,
    activities: &'a [Activity],
    /// Whether another recorded step is inside it.
    is_around: bool,
}

/// The devices with recorded work of `steps`, which are ordered by start.
pub(super) fn timelines<'a>(
    steps: &'a [StepRow],
    recorded: &'a DeviceWork,
    clocks: Clocks,
    covered: &'a CoveredTime,
) -> Vec<Timeline<'a>> {
    // With clocks that are this uncertain, steps cannot be placed on the device's time line.
    if clocks.apart() {
        return Vec::new();
    }
    let numbers = recorded.numbers();
    let beside = Arc::new(beside_windows(steps, &numbers));
    let mut devices: BTreeMap<&Arc<str>, Vec<(&StepRow, &[Activity])>> = BTreeMap::new();
    let by_number: HashMap<u64, &StepRow> = steps.iter().map(|step| (step.step, step)).collect();
    let mut work: BTreeMap<&Arc<str>, Vec<&[Activity]>> = BTreeMap::new();
    for ((number, device), activities) in &recorded.steps {
        work.entry(device).or_default().push(activities);
        if let Some(step) = by_number.get(number) {
            devices.entry(device).or_default().push((step, activities));
        }
    }
    // Work outside the steps that count keeps the device busy too.
    for (device, activities) in &recorded.loose {
        work.entry(device).or_default().push(activities);
    }
    // Sorting what is nearly in order takes no time to speak of.
    work.values_mut().for_each(|lists| lists.sort_by_key(|list| list.first().map(|first| first.start_ns)));
    let around = around_others(steps, &numbers);
    devices
        .into_iter()
        .map(|(device, mut own)| {
            own.sort_by_key(|(step, _)| (step.start_ns, step.step));
            let everything = || work.get(device).into_iter().flatten().flat_map(|list| list.iter());
            let first = everything().next().map(|activity| activity.stream);
            let mut streams: BTreeMap<u32, Vec<&Activity>> = BTreeMap::new();
            // A single one is busy whenever the device is.
            if everything().any(|activity| Some(activity.stream) != first) {
                everything().for_each(|activity| streams.entry(activity.stream).or_default().push(activity));
            }
            Timeline {
                device: device.clone(),
                own: own
                    .into_iter()
                    .map(|(step, activities)| OnDevice { step, activities, is_around: around.contains(&step.step) })
                    .collect(),
                blocks: blocks(everything()),
                streams: streams.into_values().map(blocks).collect(),
                clocks,
                covered,
                beside: beside.clone(),
            }
        })
        .collect()
}

/// Time in which steps without recorded kernels ran, of kinds that have recorded kernels elsewhere: see [`beside`].
/// `numbers` are those of the steps with recorded kernels.
pub(super) fn beside_windows(steps: &[StepRow], numbers: &BTreeSet<u64>) -> Vec<(i64, i64)> {
    let kinds: BTreeSet<&str> = steps.iter().filter(|s| numbers.contains(&s.step)).map(StepRow::group).collect();
    let (with, without): (Vec<&StepRow>, Vec<&StepRow>) = steps.iter().partition(|step| numbers.contains(&step.step));
    let of_kinds = without.into_iter().filter(|step| kinds.contains(step.group()));
    beside(with.into_iter().map(StepRow::time), of_kinds.map(StepRow::time))
}

/// How all devices' time divides in the steps of one group, or in all.
pub(super) fn together(timelines: &[Timeline<'_>], group: Option<&str>) -> Option<Busy> {
    let mut all: Option<Busy> = None;
    let (mut numbers, mut delays) = (BTreeSet::new(), Vec::new());
    for line in timelines {
        let steps = line.steps(group);
        let Some(busy) = line.sums(&steps) else { continue };
        numbers.extend(steps.iter().map(|own| own.step.step));
        delays.extend(queue_delays(&steps));
        match &mut all {
            None => all = Some(busy),
            Some(all) => add(all, &busy),
        }
    }
    let all = all?;
    // A step on several devices is one step.
    let queue_delay = Distribution::clustered_without_samples(delays).filter(|_| !all.clocks_unknown);
    Some(Busy { steps: numbers.len() as u64, queue_delay, ..all })
}

impl<'a> Timeline<'a> {
    /// The steps of one group; or all steps except those around others, because the time between the inner ones is not
    /// a step's work.
    pub(super) fn steps(&self, group: Option<&str>) -> Vec<OnDevice<'a>> {
        let wanted = |own: &&OnDevice<'_>| group.map_or(!own.is_around, |group| own.step.group() == group);
        self.own.iter().filter(wanted).copied().collect()
    }

    /// How this device's time divides during these steps.
    pub(super) fn busy(&self, steps: Vec<OnDevice<'_>>) -> Option<Busy> {
        let queue_delay = Distribution::clustered_without_samples(queue_delays(&steps).collect());
        let queue_delay = queue_delay.filter(|_| self.clocks.within().is_some());
        Some(Busy { queue_delay, ..self.sums(&steps)? })
    }

    fn sums(&self, steps: &[OnDevice<'_>]) -> Option<Busy> {
        if steps.is_empty() {
            return None;
        }
        let window = |own: &OnDevice<'_>| (own.step.start_ns, own.step.end_ns());
        let counts = |windows| difference(&self.covered.cut(merged_but_touching(windows)), &self.beside);
        let windows = counts(steps.iter().map(window).collect::<Vec<_>>());
        // If the bound of the clocks is not known, every gap may be within it.
        let occupancy = Occupancy::within(&self.blocks, &windows, self.clocks.within().unwrap_or(u64::MAX));
        let mut threads: BTreeMap<u32, Vec<(i64, i64)>> = BTreeMap::new();
        steps.iter().for_each(|own| threads.entry(own.step.thread).or_default().push(window(own)));
        let activities = || steps.iter().flat_map(|own| own.activities);
        let kernels = activities().filter(|activity| activity.is_kernel).count() as u64;
        Some(Busy {
            steps: steps.len() as u64,
            devices: 1,
            wall_ns: occupancy.wall_ns,
            open_ns: threads.into_values().map(|windows| length(&counts(windows))).fold(0, u64::saturating_add),
            busy_ns: occupancy.busy_ns,
            own_ns: merged_ns(activities),
            after_ns: steps.iter().map(after).fold(0, u64::saturating_add),
            streams_ns: match &*self.streams {
                [] => occupancy.busy_ns,
                streams => {
                    let busy = streams.iter().map(|blocks| Occupancy::within(blocks, &windows, 0).busy_ns);
                    busy.fold(0, u64::saturating_add)
                }
            },
            host_bound: occupancy.host_bound,
            launch_latency: occupancy.launch_latency,
            launch_overhead: occupancy.launch_overhead,
            uncertain: occupancy.uncertain,
            other: occupancy.other,
            unattributed_ns: occupancy.edges_ns,
            launches: kernels,
            copies: activities().count() as u64 - kernels,
            queue_delay: None,
            clocks_unknown: self.clocks.within().is_none(),
        })
    }
}

/// Time of a step's work after it had ended on the host, overlapping work counted once, in nanoseconds.
fn after(own: &OnDevice<'_>) -> u64 {
    let end = own.step.end_ns();
    let late = own.activities.iter().filter(|activity| activity.end_ns > end);
    let mut late: Vec<Activity> = late.copied().collect();
    late.iter_mut().for_each(|activity| activity.start_ns = activity.start_ns.max(end));
    merged_ns(|| late.iter())
}

/// Delays of kernels by step, because those of one step are correlated.
fn queue_delays(steps: &[OnDevice<'_>]) -> impl Iterator<Item = Vec<f64>> {
    steps.iter().map(|own| {
        let kernels = own.activities.iter().filter(|activity| activity.is_kernel);
        kernels.filter_map(|activity| Some(activity.queue_delay_ns()? as f64)).collect()
    })
}

/// Adds another device's time.
fn add(all: &mut Busy, one: &Busy) {
    let sum = |into: &mut u64, ns: u64| *into = into.saturating_add(ns);
    for (into, ns) in [
        (&mut all.devices, one.devices),
        (&mut all.wall_ns, one.wall_ns),
        (&mut all.open_ns, one.open_ns),
        (&mut all.busy_ns, one.busy_ns),
        (&mut all.own_ns, one.own_ns),
        (&mut all.after_ns, one.after_ns),
        (&mut all.streams_ns, one.streams_ns),
        (&mut all.unattributed_ns, one.unattributed_ns),
        (&mut all.launches, one.launches),
        (&mut all.copies, one.copies),
    ] {
        sum(into, ns);
    }
    all.host_bound.plus(one.host_bound);
    all.launch_latency.plus(one.launch_latency);
    all.launch_overhead.plus(one.launch_overhead);
    all.uncertain.plus(one.uncertain);
    all.other.plus(one.other);
}

/// Recorded steps with another recorded one inside, on the same thread.
///
/// The sum over all steps leaves them out: their time includes that of the inner steps and the time in between.
pub(super) fn around_others(steps: &[StepRow], numbers: &BTreeSet<u64>) -> BTreeSet<u64> {
    let mut open: HashMap<u32, Vec<&StepRow>> = HashMap::new();
    let mut around = BTreeSet::new();
    // By start; if two start together, the longer one is outside.
    let mut order: Vec<&StepRow> = steps.iter().filter(|step| numbers.contains(&step.step)).collect();
    order.sort_by_key(|step| (step.start_ns, std::cmp::Reverse(step.dur_ns)));
    for step in order {
        let stack = open.entry(step.thread).or_default();
        while stack.last().is_some_and(|outer| outer.end_ns() < step.end_ns() || outer.end_ns() <= step.start_ns) {
            stack.pop();
        }
        if let Some(outer) = stack.last() {
            around.insert(outer.step);
        }
        stack.push(step);
    }
    around
}
