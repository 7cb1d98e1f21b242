//! Sums over the intervals of each path, which other passes use.

use super::gpu_time::{GROUPS, GpuBySource};
use super::stated_work::StatedWork;
use super::stats::total;
use super::usual_steps::{UsualSteps, UsualTime};
use candlescope_schema::{PathInfo, SpanRecord};
use std::collections::BTreeMap;

/// Sums over all intervals of one rollup path.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PathTotals {
    /// The path from the step down, without ordinals.
    pub rollup: String,
    /// Name of its span, without an ordinal, also where the rollup ends with a module's name.
    pub name: String,
    /// `tracing` target (module path) of the first span that was read of it.
    pub target: String,
    /// Whether its intervals stand for a module of the model: then the rollup is the module's name.
    pub is_module: bool,
    /// Rollup of the interval it was entered in, if there is one and it is always the same.
    pub parent: Option<String>,
    /// Intervals in measured steps, entered on the host or replayed; warm-up is left out.
    pub calls: u64,
    /// Of these, the ones that a CUDA graph replayed, which have no time on the host. They have rows only in steps
    /// whose kernels were recorded.
    pub replayed: u64,
    /// Sum of their durations in nanoseconds.
    pub total_ns: u64,
    /// The same less the durations of their children.
    pub self_ns: u64,
    /// Shortest duration on the host in nanoseconds, less warm-up inside; `u64::MAX` if all were replayed.
    pub min_ns: u64,
    /// Longest duration on the host in nanoseconds, less warm-up inside; 0 if all were replayed.
    pub max_ns: u64,
    /// Work annotated on the intervals themselves.
    pub work: StatedWork,
    /// Some intervals state FLOPs or bytes, but no activations: a sum would be too small.
    pub io_missing: bool,
    /// The same of the intervals in steps whose kernels were recorded: what the kernels' time is held against.
    pub recorded: StatedWork,
    /// The same in usual steps, without those that a stall or a cold start made far longer.
    pub usual: UsualTime,
    /// GPU time, by what measured it.
    pub gpu: GpuBySource,
    /// The same by group of steps; empty if there is none, else 16 long.
    pub gpu_groups: Vec<GpuBySource>,
    /// Element types that its intervals state, each once, in the order of reading; empty if none states one.
    pub dtypes: Vec<String>,
    /// What their threads did in them, as far as it is known.
    pub threads: ThreadTimes,
}

/// What threads did in the intervals of one path, those inside them included. Times are nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThreadTimes {
    /// Intervals of which it is known: a thread that waits very often has its switches recorded a part of the time.
    pub known: u64,
    /// Duration of these.
    pub known_ns: u64,
    /// Part of `known_ns` in which the threads ran on a CPU.
    pub cpu_ns: u64,
    /// Ready, while another thread had the CPU.
    pub preempted_ns: u64,
    /// Part of `known_ns` in which the threads waited: for a lock, another thread, a file or a device.
    pub blocked_ns: u64,
    /// Intervals whose page faults are known.
    pub faults_known: u64,
    /// Duration of these.
    pub faults_known_ns: u64,
    /// Pages that the system had to provide in them.
    pub page_faults: u64,
}

impl ThreadTimes {
    fn add(&mut self, span: &SpanRecord) {
        if let (Some(cpu), Some(preempted), Some(blocked)) = (span.cpu_ns, span.preempted_ns, span.blocked_ns) {
            self.known += 1;
            self.known_ns = self.known_ns.saturating_add(span.host_dur_ns);
            self.cpu_ns = self.cpu_ns.saturating_add(cpu);
            self.preempted_ns = self.preempted_ns.saturating_add(preempted);
            self.blocked_ns = self.blocked_ns.saturating_add(blocked);
        }
        if let Some(faults) = span.page_faults {
            self.faults_known += 1;
            self.faults_known_ns = self.faults_known_ns.saturating_add(span.host_dur_ns);
            self.page_faults = self.page_faults.saturating_add(faults);
        }
    }

    /// The share of a part of [`known_ns`](Self::known_ns); `None` if nothing is known.
    pub fn share(&self, part: u64) -> Option<f64> {
        (self.known_ns > 0).then(|| part as f64 / self.known_ns as f64)
    }

    /// The mean of a part of [`known_ns`](Self::known_ns) over the intervals of which it is known; 0 if there is none.
    pub fn each(&self, part: u64) -> f64 {
        part as f64 / self.known.max(1) as f64
    }

    /// The mean of [`page_faults`](Self::page_faults) over the intervals of which they are known.
    pub fn faults_each(&self) -> Option<f64> {
        (self.faults_known > 0).then(|| self.page_faults as f64 / self.faults_known as f64)
    }
}

impl PathTotals {
    /// Totals of a path without intervals.
    pub(super) fn of(path: &PathInfo) -> Self {
        Self {
            rollup: path.rollup.clone(),
            name: path.name.to_string(),
            target: path.target.to_string(),
            is_module: path.module.is_some(),
            min_ns: u64::MAX,
            ..Self::default()
        }
    }

    /// Adds an interval and the work annotated on it; `recorded` says whether its step's kernels were recorded. Its
    /// duration is added once its children are known.
    pub(super) fn add_work(&mut self, span: &SpanRecord, recorded: bool) {
        self.calls += 1;
        self.replayed += u64::from(span.graph.is_some());
        self.threads.add(span);
        let work = StatedWork::of_span(span);
        if recorded {
            self.recorded.add(work);
        }
        self.work.add(work);
        self.io_missing |= (span.flops.is_some() || span.bytes.is_some()) && span.io_bytes.is_none();
        if let Some(dtype) = span.dtype
            && !self.dtypes.iter().any(|known| known == dtype.as_str())
        {
            self.dtypes.push(dtype.as_str().to_string());
        }
    }

    /// Intervals that were entered, and so have time on the host.
    pub fn entered(&self) -> u64 {
        self.calls - self.replayed
    }

    /// Adds the duration of an interval.
    #[inline]
    pub(super) fn add_time(&mut self, dur_ns: u64) {
        self.total_ns = self.total_ns.saturating_add(dur_ns);
        self.min_ns = self.min_ns.min(dur_ns);
        self.max_ns = self.max_ns.max(dur_ns);
    }

    /// Adds a measurement of GPU time to the sums and to those of its group of steps.
    pub(super) fn add_gpu(&mut self, group: u8, add: impl Fn(&mut GpuBySource)) {
        if self.gpu_groups.is_empty() {
            self.gpu_groups = vec![GpuBySource::default(); GROUPS];
        }
        add(&mut self.gpu);
        add(&mut self.gpu_groups[usize::from(group) % GROUPS]);
    }
}

/// What the pass over the spans found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Intervals {
    /// Totals by rollup, sorted by rollup.
    pub paths: Vec<PathTotals>,
    /// The usual steps of each kind, whose intervals [`PathTotals::usual`] has.
    pub usual: Vec<UsualSteps>,
    /// Intervals in steps, entered or replayed, without those of warm-up and of the application's own steps.
    pub count: u64,
    /// Entries of request spans, which stand above steps and are not part of them.
    pub above_steps: u64,
    /// Sum of the durations of the outermost steps: what the self times add up to.
    pub outermost_ns: u64,
    /// Intervals whose parent is not in the run.
    pub orphans: u64,
    /// Intervals shorter than their children together, and the worst of them.
    pub impossible: u64,
    /// Rollup of the worst impossible interval, its duration and its children's, in nanoseconds.
    pub worst: Option<(String, u64, u64)>,
    /// Intervals whose GPU time is shorter than their children's together, all from the same source.
    pub gpu_impossible: u64,
    /// Rollup of the worst of these, its GPU time and its children's, in nanoseconds.
    pub gpu_worst: Option<(String, u64, u64)>,
    /// FLOPs by element type, of intervals that state both.
    pub flops_by_dtype: BTreeMap<&'static str, u64>,
    /// First start and last end over all intervals, Unix nanoseconds.
    pub span: Option<(i64, i64)>,
    /// Intervals that were dropped, or counted as orphans, while a parent or child could still come, because there were
    /// too many to hold.
    pub let_go_early: u64,
}

/// Where most of what steps usually take is: see [`Intervals::most_of_usual_steps`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MostOfStep<'a> {
    /// The path.
    pub path: &'a str,
    /// Its own share of a usual step, without what is inside it.
    pub share: f64,
    /// The steps that it is in.
    pub steps: &'a UsualSteps,
}

impl Intervals {
    /// The path whose own time is most in as many usual steps as there were steps: what stalls in single ones add is in
    /// none. `None` if no path has any.
    pub fn most_of_usual_steps(&self) -> Option<MostOfStep<'_>> {
        let each = self.paths.iter().filter_map(|path| {
            let steps = self.usual.get(usize::try_from(path.usual.kind?).ok()?)?;
            let (share, ns) = path.usual.own(steps)?;
            let all_ns = ns * (steps.steps + steps.set_apart) as f64;
            (share > 0.0).then_some((all_ns, MostOfStep { path: &path.rollup, share, steps }))
        });
        each.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, most)| most)
    }

    /// The share of all steps' time that single ones, with no more tokens than usual, took beyond twice the median of
    /// their kind; 0 without steps.
    pub fn held_up_share(&self) -> f64 {
        let sum = |of: fn(&UsualSteps) -> u64| total(self.usual.iter().map(of)) as f64;
        let all = sum(|steps| steps.all_ns);
        if all > 0.0 { sum(|steps| steps.held_up_ns) / all } else { 0.0 }
    }
}

/// Totals by rollup, for passes that look paths up.
pub fn by_rollup(paths: &[PathTotals]) -> BTreeMap<&str, &PathTotals> {
    paths.iter().map(|p| (p.rollup.as_str(), p)).collect()
}
