//! Time by phase: how the run's wall time divides, and how long one step of each kind takes.

use super::intervals::{Intervals, by_rollup};
use super::latency::per_second;
use super::stats::{Distribution, total, total_if_known};
use super::step_rows::{StepRow, spread_by_request};
use super::tree::ratio;
use candlescope_core::{GpuSource, Phase, RequestRecord};
use std::collections::{BTreeMap, BTreeSet};

/// How the run's wall time divides.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Phases {
    /// First start to last end of all steps and requests.
    pub wall_ns: u64,
    /// Part of it in which at least one step ran.
    pub in_steps_ns: u64,
    /// Steps by phase, in the order a request goes through them, then those in none by name; the longest first.
    pub rows: Vec<PhaseRow>,
}

/// All steps of one phase or name.
#[derive(Debug, Clone, PartialEq)]
pub struct PhaseRow {
    /// The phase, or the steps' name.
    pub name: String,
    /// Whether it is a phase.
    pub is_phase: bool,
    /// Steps these stand in, where they are not outermost: their time is part of that.
    pub inside: Option<String>,
    /// Number of steps, warm-up included.
    pub steps: u64,
    /// Sum of their durations in nanoseconds.
    pub total_ns: u64,
    /// `total_ns` ÷ the time of all outermost steps.
    pub share: f64,
    /// Intervals in them.
    pub intervals: u64,
    /// Tokens processed; `None` where a step does not say.
    pub tokens: Option<u64>,
    /// Tokens a second.
    pub tokens_per_s: Option<f64>,
    /// Analytic FLOPs.
    pub flops: Option<u64>,
    /// Analytic bytes.
    pub bytes: Option<u64>,
    /// FLOP/s in 10⁹.
    pub gflops: Option<f64>,
    /// Bytes/s in 10⁹.
    pub gbytes: Option<f64>,
    /// FLOPs ÷ bytes.
    pub intensity: Option<f64>,
    /// GPU time of the steps that have it.
    pub gpu: Option<PhaseGpu>,
    /// Durations of single steps in nanoseconds, without requests that warmed up.
    pub duration: Option<Distribution>,
}

/// GPU time of steps, of the source that most of them have: [`Gpu`](super::Gpu) has them all.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PhaseGpu {
    /// What measured it.
    pub source: GpuSource,
    /// Steps that have it.
    pub steps: u64,
    /// Sum of it in nanoseconds.
    pub total_ns: u64,
}

impl PhaseGpu {
    fn of(steps: &[&StepRow]) -> Option<Self> {
        let of = |source: GpuSource| {
            let times = || steps.iter().filter(move |s| s.gpu_source == Some(source)).filter_map(|s| s.gpu_ns);
            Self { source, steps: times().count() as u64, total_ns: total(times()) }
        };
        let sources = GpuSource::ALL.iter().map(|source| of(*source)).filter(|gpu| gpu.steps > 0);
        sources.max_by_key(|gpu| gpu.steps)
    }
}

impl Phases {
    /// Divides the time of `steps`, which are in order of start.
    pub fn of(requests: &[RequestRecord], steps: &[StepRow], intervals: &Intervals, warmup: &BTreeSet<u64>) -> Self {
        let mut groups: BTreeMap<&str, Vec<&StepRow>> = BTreeMap::new();
        for step in steps {
            groups.entry(step.group()).or_default().push(step);
        }
        let paths = by_rollup(&intervals.paths);
        let inside = |step: &StepRow| paths.get(step.path.rollup.as_str()).and_then(|p| p.parent.clone());
        // Where the spans are lost the steps still tell their own time.
        let whole = match intervals.outermost_ns {
            0 => total(steps.iter().map(|s| s.dur_ns)),
            ns => ns,
        };
        let mut rows: Vec<PhaseRow> =
            groups.into_iter().map(|(name, steps)| row(name, &steps, inside(steps[0]), whole, warmup)).collect();
        rows.sort_by(|a, b| (a.phase_order(), b.total_ns, &a.name).cmp(&(b.phase_order(), a.total_ns, &b.name)));

        let spans = || {
            let requests = requests.iter().map(|r| (r.host_start.0, r.host_start.plus_ns(r.host_dur_ns).0));
            steps.iter().map(|s| (s.start_ns, s.end_ns())).chain(requests)
        };
        let (start, end) = (spans().map(|s| s.0).min(), spans().map(|s| s.1).max());
        let wall_ns = start.zip(end).map_or(0, |(start, end)| u64::try_from(end.saturating_sub(start)).unwrap_or(0));
        Self { wall_ns, in_steps_ns: union(steps).min(wall_ns), rows }
    }

    /// Wall time in which no step ran: between requests, in the host's own loop, waiting.
    pub fn outside_ns(&self) -> u64 {
        self.wall_ns - self.in_steps_ns
    }
}

impl PhaseRow {
    /// Phases stand in the order of a request, other steps after them.
    fn phase_order(&self) -> usize {
        let position = Phase::ALL.iter().position(|phase| phase.as_str() == self.name);
        position.filter(|_| self.is_phase).unwrap_or(usize::MAX)
    }
}

/// Time covered by at least one step; steps on several threads overlap.
fn union(steps: &[StepRow]) -> u64 {
    let mut covered = 0u64;
    let mut until = i64::MIN;
    for step in steps {
        let (start, end) = (step.start_ns.max(until), step.end_ns());
        if end > start {
            covered = covered.saturating_add(end.abs_diff(start));
            until = end;
        }
    }
    covered
}

fn row(name: &str, steps: &[&StepRow], inside: Option<String>, whole: u64, warmup: &BTreeSet<u64>) -> PhaseRow {
    let total_ns = total(steps.iter().map(|s| s.dur_ns));
    let sum = |f: fn(&StepRow) -> Option<u64>| total_if_known(steps.iter().map(|s| f(s)));
    let tokens = sum(|s| s.tokens.map(u64::from));
    let (flops, bytes) = (sum(|s| s.flops), sum(|s| s.bytes));
    let timed = total_ns > 0;
    let measured = steps.iter().filter(|s| s.request.is_none_or(|r| !warmup.contains(&r)));
    PhaseRow {
        name: name.to_string(),
        is_phase: steps[0].phase.is_some(),
        inside,
        steps: steps.len() as u64,
        total_ns,
        share: ratio(total_ns, whole),
        intervals: total(steps.iter().map(|s| s.intervals)),
        tokens,
        tokens_per_s: tokens.filter(|_| timed).map(|n| per_second(n as f64, total_ns as f64)),
        flops,
        bytes,
        gflops: flops.filter(|_| timed).map(|n| n as f64 / total_ns as f64),
        gbytes: bytes.filter(|_| timed).map(|n| n as f64 / total_ns as f64),
        intensity: flops.zip(bytes).filter(|(_, b)| *b > 0).map(|(f, b)| f as f64 / b as f64),
        gpu: PhaseGpu::of(steps),
        duration: spread_by_request(measured.copied(), |s| Some(s.dur_ns as f64)),
    }
}
