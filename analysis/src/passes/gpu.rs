//! GPU time of steps, and how the device's time divides while steps run.
//!
//! Two things are told apart. Marks on the stream give *stream elapsed* time, gaps in the queue included: it says how long the
//! GPU had a step's work, not how long it worked. Recorded kernels say when it worked: busy, idle, and why idle.

use super::gaps::{Activity, GapSum, Occupancy};
use super::kernels::StepActivity;
use super::phases::Phases;
use super::stats::{Distribution, total, total_if_known};
use super::step_rows::StepRow;
use candlescope_core::GpuSource;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// GPU time of steps.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Gpu {
    /// By phase or name of the steps, in the order of [`Phases::rows`]; those that have GPU time or recorded kernels.
    pub kinds: Vec<GpuKind>,
    /// All recorded steps together.
    pub busy: Option<Busy>,
    /// Kernels, copies and memsets of steps around other recorded steps, which `busy` leaves out: wall time would count twice.
    pub around_others: u64,
    /// Kernels, copies and memsets of steps that are not in the run.
    pub without_step: u64,
}

/// GPU time of all steps of one phase or name.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuKind {
    /// The phase, or the steps' name.
    pub name: String,
    /// Whether it is a phase.
    pub is_phase: bool,
    /// All steps, with or without GPU time.
    pub steps: u64,
    /// Sum of the steps' durations on the host in nanoseconds.
    pub wall_ns: u64,
    /// GPU time, a row for each source there is.
    pub elapsed: Vec<Elapsed>,
    /// How the device's time divides, where kernels were recorded.
    pub busy: Option<Busy>,
}

/// GPU time of the steps that have it from one source.
#[derive(Debug, Clone, PartialEq)]
pub struct Elapsed {
    /// What measured it.
    pub source: GpuSource,
    /// Steps measured.
    pub measured: u64,
    /// Sum of their GPU time in nanoseconds.
    pub measured_ns: u64,
    /// Sum of their durations on the host in nanoseconds.
    pub wall_ns: u64,
    /// Mean × all steps of the kind, in nanoseconds.
    pub total_ns: f64,
    /// GPU time of single steps in nanoseconds.
    pub duration: Option<Distribution>,
    /// FLOP/s of the measured steps over their GPU time, in 10¹².
    pub tflops: Option<f64>,
    /// Bytes/s of the measured steps over their GPU time, in 10⁹.
    pub gbytes: Option<f64>,
}

impl Elapsed {
    /// GPU time ÷ duration on the host, of the measured steps. With marks this is no busy share: gaps in the queue are part of it.
    pub fn of_wall(&self) -> Option<f64> {
        (self.wall_ns > 0).then(|| self.measured_ns as f64 / self.wall_ns as f64)
    }
}

/// How the device's time divides in recorded steps. Kernels, copies and memsets all count as work.
///
/// `wall = busy + idle + unattributed`, where idle is what lies between the first start and the last end of a step's kernels.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Busy {
    /// Recorded steps; a step on several GPUs counts once for each.
    pub steps: u64,
    /// Sum of their durations on the host in nanoseconds.
    pub wall_ns: u64,
    /// Time in which something ran.
    pub busy_ns: u64,
    /// Time between the first start and the last end in which nothing ran.
    pub idle_ns: u64,
    /// Gaps before what was launched only when the device had run dry.
    pub host_bound: GapSum,
    /// Gaps under 1.5 µs.
    pub launch_overhead: GapSum,
    /// All other gaps.
    pub other: GapSum,
    /// Kernels.
    pub launches: u64,
    /// Copies and memsets.
    pub copies: u64,
    /// From the end of the launching call to the start on the device, of kernels, in nanoseconds.
    pub queue_delay: Option<Distribution>,
}

impl Busy {
    /// Time in which something ran ÷ wall time of the steps.
    pub fn busy_share(&self) -> Option<f64> {
        self.of_wall(self.busy_ns as f64)
    }

    /// Gaps that the host caused ÷ wall time of the steps.
    pub fn launch_bound_share(&self) -> Option<f64> {
        self.of_wall(self.host_bound.ns as f64)
    }

    /// Wall time that is neither busy nor idle: before a step's first kernel starts and after its last ends.
    ///
    /// Negative where kernels run on after the step has ended on the host, because nothing in it waited for them.
    pub fn unattributed_ns(&self) -> i128 {
        i128::from(self.wall_ns) - i128::from(self.busy_ns) - i128::from(self.idle_ns)
    }

    /// The same ÷ wall time of the steps.
    pub fn unattributed_share(&self) -> Option<f64> {
        self.of_wall(self.unattributed_ns() as f64)
    }

    /// Kernels for each step.
    pub fn launches_per_step(&self) -> Option<f64> {
        (self.steps > 0).then(|| self.launches as f64 / self.steps as f64)
    }

    /// Any part of time as a share of the steps' wall time.
    pub fn of_wall(&self, ns: f64) -> Option<f64> {
        (self.wall_ns > 0).then(|| ns / self.wall_ns as f64)
    }

    fn add(&mut self, wall_ns: u64, activities: &mut [Activity]) {
        let occupancy = Occupancy::of(activities);
        self.steps += 1;
        let sum = |into: &mut u64, ns: u64| *into = into.saturating_add(ns);
        sum(&mut self.wall_ns, wall_ns);
        sum(&mut self.busy_ns, occupancy.busy_ns);
        sum(&mut self.idle_ns, occupancy.idle_ns());
        for (into, gap) in [
            (&mut self.host_bound, occupancy.host_bound),
            (&mut self.launch_overhead, occupancy.launch_overhead),
            (&mut self.other, occupancy.other),
        ] {
            into.n += gap.n;
            sum(&mut into.ns, gap.ns);
        }
        let kernels = activities.iter().filter(|a| a.is_kernel).count() as u64;
        self.launches += kernels;
        self.copies += activities.len() as u64 - kernels;
    }
}

/// Adds steps to a [`Busy`]; delays are gathered beside it, because only all of them make a distribution.
#[derive(Default)]
struct Adding {
    busy: Busy,
    delays: Vec<f64>,
}

impl Adding {
    fn add(&mut self, wall_ns: u64, activities: &mut [Activity]) {
        self.busy.add(wall_ns, activities);
        self.delays.extend(activities.iter().filter(|a| a.is_kernel).filter_map(|a| Some(a.queue_delay_ns? as f64)));
    }

    fn finish(self) -> Busy {
        Busy { queue_delay: Distribution::of(self.delays), ..self.busy }
    }
}

impl Gpu {
    /// GPU time of `steps`, which are in order of start, and what was `recorded` in them.
    pub fn of(steps: &[StepRow], phases: &Phases, recorded: StepActivity) -> Self {
        let by_number: HashMap<u64, &StepRow> = steps.iter().map(|step| (step.step, step)).collect();
        let around = around_others(steps, &recorded);
        let mut out = Self::default();
        let mut kinds: BTreeMap<&str, Adding> = BTreeMap::new();
        let mut all = Adding::default();
        let mut ordered: Vec<_> = recorded.into_iter().collect();
        ordered.sort_by(|a, b| a.0.cmp(&b.0));
        for ((number, _device), mut activities) in ordered {
            let n = activities.len() as u64;
            let Some(step) = by_number.get(&number) else {
                out.without_step += n;
                continue;
            };
            if around.contains(&number) {
                out.around_others += n;
                continue;
            }
            kinds.entry(step.group()).or_default().add(step.dur_ns, &mut activities);
            all.add(step.dur_ns, &mut activities);
        }
        out.busy = (all.busy.steps > 0).then(|| all.finish());
        let mut groups: HashMap<&str, Vec<&StepRow>> = HashMap::new();
        for step in steps {
            groups.entry(step.group()).or_default().push(step);
        }
        for row in &phases.rows {
            let Some(steps) = groups.get(row.name.as_str()) else { continue };
            let elapsed: Vec<Elapsed> = GpuSource::ALL.iter().filter_map(|source| elapsed(steps, *source)).collect();
            let busy = kinds.remove(row.name.as_str()).map(Adding::finish);
            if elapsed.is_empty() && busy.is_none() {
                continue;
            }
            out.kinds.push(GpuKind {
                name: row.name.clone(),
                is_phase: row.is_phase,
                steps: row.steps,
                wall_ns: row.total_ns,
                elapsed,
                busy,
            });
        }
        out
    }
}

fn elapsed(steps: &[&StepRow], source: GpuSource) -> Option<Elapsed> {
    let measured: Vec<(&StepRow, u64)> = steps
        .iter()
        .filter(|step| step.gpu_source == Some(source))
        .filter_map(|step| Some((*step, step.gpu_ns?)))
        .collect();
    if measured.is_empty() {
        return None;
    }
    let measured_ns = total(measured.iter().map(|(_, ns)| *ns));
    let rate = |work: fn(&StepRow) -> Option<u64>| {
        let work = total_if_known(measured.iter().map(|(step, _)| work(step)))?;
        (measured_ns > 0).then(|| work as f64 / measured_ns as f64)
    };
    Some(Elapsed {
        source,
        measured: measured.len() as u64,
        measured_ns,
        wall_ns: total(measured.iter().map(|(step, _)| step.dur_ns)),
        total_ns: measured_ns as f64 / measured.len() as f64 * steps.len() as f64,
        duration: Distribution::of(measured.iter().map(|(_, ns)| *ns as f64).collect()),
        tflops: rate(|step| step.flops).map(|per_ns| per_ns / 1e3),
        gbytes: rate(|step| step.bytes),
    })
}

/// Recorded steps with another recorded one inside, on the same thread.
///
/// Kernels belong to the innermost step, so such a step has only what it launched beside the others: against its wall time that
/// says nothing, and its wall time holds theirs.
fn around_others(steps: &[StepRow], recorded: &StepActivity) -> BTreeSet<u64> {
    let numbers: BTreeSet<u64> = recorded.keys().map(|(step, _)| *step).collect();
    let mut open: HashMap<u32, Vec<&StepRow>> = HashMap::new();
    let mut around = BTreeSet::new();
    // By start; of two that start together the longer one is outside.
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
