//! Time by phase: how the run's wall time divides, and how long one step of each kind takes.
//!
//! Rates (tokens/s, FLOP/s, bytes/s) are over the time in which at least one step of the phase was open, whichever
//! thread ran it: two threads that decode at once do twice the work in that time. If some steps have no record, rates
//! are over windows of recorded steps, in which steps without a record count with their time ([`CoveredTime`]).
//! Durations are of single steps.

use super::covered::{CoveredTime, Part};
use super::path_totals::{Intervals, by_rollup};
use super::rates::RateErrors;
use super::stated_work::StatedWork;
use super::stats::{Distribution, total, total_if_known};
use super::step_rows::{StepRow, spread_by_request};
use super::tree::ratio;
use candlescope_schema::stretches::{Stretch, difference, length, merged_but_touching};
use candlescope_schema::{GpuSource, Phase, RequestRecord};
use std::collections::BTreeMap;

/// How the run's wall time divides.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Phases {
    /// First start to last end of all steps and requests, less the time of warm-up.
    pub wall_ns: u64,
    /// Part of it in which at least one step ran; `None` if some of the steps in this time have no record.
    pub in_steps_ns: Option<u64>,
    /// Steps by phase, in the order in which a request goes through them, then steps without a phase by name, the
    /// longest first.
    pub rows: Vec<PhaseRow>,
}

/// All steps of one phase or name.
#[derive(Debug, Clone, PartialEq)]
pub struct PhaseRow {
    /// The phase, or the steps' name.
    pub name: String,
    /// Whether it is a phase.
    pub is_phase: bool,
    /// The steps around these, if they are not outermost: their time is part of those steps' time.
    pub inside: Option<String>,
    /// Measured steps with a record; steps that a schedule left out do not count.
    pub steps: u64,
    /// Sum of their durations in nanoseconds.
    pub total_ns: u64,
    /// `total_ns` ÷ the time of all outermost steps.
    pub share: f64,
    /// Time in which at least one of them was open, in nanoseconds: the denominator of rates. If some steps have no
    /// record, only the time in windows of recorded steps, and that of steps of this kind without a record.
    pub union_ns: u64,
    /// Steps open at once, on average over that time.
    pub steps_at_once: Option<f64>,
    /// Intervals recorded in them, themselves included, without those that a CUDA graph replayed.
    pub intervals: u64,
    /// Tokens processed: new tokens of sequences that go on if all steps state them, else all tokens. `None` if a step
    /// does not say.
    pub tokens: Option<u64>,
    /// Tokens a second, of all threads together.
    pub tokens_per_s: Option<f64>,
    /// Errors of the rates if steps were sampled; `None` if all steps that ran have their records.
    pub rate_errors: Option<RateErrors>,
    /// Work of all of them; a figure is `None` if a step does not state it.
    pub work: StatedWork,
    /// Analytic FLOP/s over `union_ns`, in 10⁹; `None` if a step does not state its FLOPs.
    pub gflops: Option<f64>,
    /// Executed FLOP/s in 10⁹.
    pub gflops_executed: Option<f64>,
    /// Bytes/s of weights and KV cache in 10⁹: the numerator of MBU.
    pub gbytes: Option<f64>,
    /// Bytes/s with activations in 10⁹.
    pub io_gbytes: Option<f64>,
    /// GPU time of the steps that have it.
    pub gpu: Option<PhaseGpu>,
    /// Durations of single steps in nanoseconds.
    pub duration: Option<Distribution>,
}

/// GPU time of steps, from the source that most of them have; [`Gpu`](super::Gpu) has all sources.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PhaseGpu {
    /// Marks in the stream or recorded kernels; kernels if both have as many steps.
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
    /// Divides the time of `steps`, which are ordered by start and do not include warm-up. `covered` is the time over
    /// which rates are taken, `warmup` the time in which nothing but warm-up ran.
    pub fn of(
        requests: &[&RequestRecord],
        steps: &[StepRow],
        intervals: &Intervals,
        covered: &CoveredTime,
        warmup: &[Stretch],
    ) -> Self {
        let mut groups: BTreeMap<&str, Vec<&StepRow>> = BTreeMap::new();
        for step in steps {
            groups.entry(step.group()).or_default().push(step);
        }
        let paths = by_rollup(&intervals.paths);
        let inside = |step: &StepRow| paths.get(step.path.rollup.as_str()).and_then(|p| p.parent.clone());
        // If the spans are lost, the steps still have their own durations.
        let whole = match intervals.outermost_ns {
            0 => total(steps.iter().map(|s| s.dur_ns)),
            ns => ns,
        };
        let mut rows: Vec<PhaseRow> =
            groups.into_iter().map(|(name, steps)| row(name, &steps, inside(steps[0]), whole, covered)).collect();
        rows.sort_by(|a, b| (a.phase_order(), b.total_ns, &a.name).cmp(&(b.phase_order(), a.total_ns, &b.name)));

        let spans = || {
            let requests = requests.iter().map(|r| (r.host_start.0, r.host_start.plus_ns(r.host_dur_ns).0));
            steps.iter().map(|s| (s.start_ns, s.end_ns())).chain(requests)
        };
        let (start, end) = (spans().map(|s| s.0).min(), spans().map(|s| s.1).max());
        let counted = |windows: Vec<(i64, i64)>| length(&difference(&windows, warmup));
        let wall_ns = counted(start.zip(end).into_iter().collect());
        let in_steps_ns = counted(merged_but_touching(steps.iter().map(|s| (s.start_ns, s.end_ns()))));
        Self { wall_ns, in_steps_ns: (!covered.is_partial()).then_some(in_steps_ns.min(wall_ns)), rows }
    }

    /// Wall time in which no step ran: between requests, in the host's own loop, waiting. `None` if some of the steps
    /// in this time have no record.
    pub fn outside_ns(&self) -> Option<u64> {
        Some(self.wall_ns - self.in_steps_ns?)
    }
}

impl PhaseRow {
    /// Phases stand in the order of a request, other steps after them.
    fn phase_order(&self) -> usize {
        let position = Phase::ALL.iter().position(|phase| phase.as_str() == self.name);
        position.filter(|_| self.is_phase).unwrap_or(usize::MAX)
    }
}

fn row(name: &str, steps: &[&StepRow], inside: Option<String>, whole: u64, covered: &CoveredTime) -> PhaseRow {
    let total_ns = total(steps.iter().map(|s| s.dur_ns));
    let sum = |f: fn(&StepRow) -> Option<u64>| total_if_known(steps.iter().map(|s| f(s)));
    // Sequences that have ended are still computed until the batch is done, but nobody gets their tokens.
    let new_tokens = sum(|s| s.new_tokens.map(u64::from));
    let all_new = new_tokens.is_some();
    let tokens = new_tokens.or_else(|| sum(|s| s.tokens.map(u64::from)));
    let work = StatedWork {
        flops: sum(|s| s.work.flops),
        flops_executed: sum(|s| s.work.flops_executed),
        bytes: sum(|s| s.work.bytes),
        io_bytes: sum(|s| s.work.io_bytes),
    };
    let open = covered.open(name, merged_but_touching(steps.iter().map(|s| (s.start_ns, s.end_ns()))));
    let union_ns = length(&open);
    let tokens_of: fn(&StepRow) -> Option<u64> =
        if all_new { |s| s.new_tokens.map(u64::from) } else { |s| s.tokens.map(u64::from) };
    // Of a step that counts only in part, that part of its work counts.
    let parts: Vec<Vec<Part>> = steps.iter().map(|step| covered.parts(step)).collect();
    let share = |parts: &Vec<Part>| parts.iter().map(|part| part.share).sum();
    let shares: Option<Vec<f64>> = (!covered.is_all()).then(|| parts.iter().map(share).collect());
    let within = |work: Option<u64>, of: fn(&StepRow) -> Option<u64>| match &shares {
        None => work.map(|n| n as f64),
        Some(shares) => {
            work.map(|_| steps.iter().zip(shares).map(|(s, share)| of(s).unwrap_or(0) as f64 * share).sum())
        }
    };
    // Per nanosecond is 10⁹ per second.
    let rate = |work: Option<u64>, of: fn(&StepRow) -> Option<u64>| {
        within(work, of).filter(|_| union_ns > 0).map(|n| n / union_ns as f64)
    };
    let open_ns = match covered.open_sum(name, steps) {
        Some(ns) => ns as f64,
        None => within(Some(total_ns), |s| Some(s.dur_ns)).unwrap_or(0.0),
    };
    PhaseRow {
        name: name.to_string(),
        is_phase: steps[0].phase.is_some(),
        inside,
        steps: steps.len() as u64,
        total_ns,
        share: ratio(total_ns, whole),
        union_ns,
        steps_at_once: (union_ns > 0).then(|| open_ns / union_ns as f64),
        intervals: total(steps.iter().map(|s| s.intervals)),
        tokens,
        tokens_per_s: rate(tokens, tokens_of).map(|rate| rate * 1e9),
        rate_errors: RateErrors::of(covered, name, &open, steps, &parts, tokens_of),
        work,
        gflops: rate(work.flops, |s| s.work.flops),
        gflops_executed: rate(work.flops_executed, |s| s.work.flops_executed),
        gbytes: rate(work.bytes, |s| s.work.bytes),
        io_gbytes: rate(work.io_bytes, |s| s.work.io_bytes),
        gpu: PhaseGpu::of(steps),
        duration: spread_by_request(steps.iter().copied(), |s| Some(s.dur_ns as f64)),
    }
}
