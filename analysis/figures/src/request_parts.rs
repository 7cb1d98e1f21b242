//! Where the time of one request went: before its first step, in its steps by phase, and between them.

use super::step_rows::StepRow;
use candlescope_schema::stretches::{Stretch, difference, length, merged};
use candlescope_schema::{Phase, RequestRecord};
use candlescope_work::estimate::median;
use std::collections::{BTreeMap, BTreeSet};

/// A step stands out from this many times what is usual for its kind on.
const SLOW: f64 = 2.0;
/// And if what it takes beyond that is at least this share of its request.
const TELLING: f64 = 0.05;
/// Steps of a kind, at least, to say what is usual.
const LEAST: usize = 5;

/// The parts of a request's time; they add up to its duration.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RequestParts {
    /// From its start to its first phase, or first step.
    pub queue_ns: u64,
    /// Time in which one of its prefill steps was open.
    pub prefill_ns: u64,
    /// Time in which one of its decoding steps was open, and no prefill step.
    pub decode_ns: u64,
    /// Time in which only other steps of it were open: sampling, encoding, steps without a phase.
    pub other_ns: u64,
    /// Time after the first step in which none of its steps was open: it waits, or the host works for it.
    pub between_ns: u64,
    /// The step of it that stands out, if one does.
    pub slow_step: Option<SlowStep>,
}

/// A step that took much longer than others of its kind.
#[derive(Debug, Clone, PartialEq)]
pub struct SlowStep {
    /// Number of the step.
    pub step: u64,
    /// Its phase, or its name.
    pub name: String,
    /// Its duration in nanoseconds.
    pub dur_ns: u64,
    /// Median of its kind, for as many tokens.
    pub usual_ns: f64,
    /// When it began, in nanoseconds since the start of its request.
    pub at_ns: u64,
}

/// What steps of each kind usually take: median duration, and median of their tokens.
pub(super) struct UsualOfKind(BTreeMap<String, (f64, Option<f64>)>);

impl UsualOfKind {
    pub(super) fn of(steps: &[StepRow], warmup: &BTreeSet<u64>) -> Self {
        let mut kinds: BTreeMap<&str, Vec<&StepRow>> = BTreeMap::new();
        for step in steps.iter().filter(|step| step.is_measured(warmup)) {
            kinds.entry(step.group()).or_default().push(step);
        }
        let usual = kinds.into_iter().filter(|(_, steps)| steps.len() >= LEAST).filter_map(|(name, steps)| {
            let tokens: Option<Vec<f64>> = steps.iter().map(|step| step.counted_tokens().map(f64::from)).collect();
            let durations = steps.iter().map(|step| step.dur_ns as f64).collect();
            Some((name.to_string(), (median(durations)?, tokens.and_then(median))))
        });
        Self(usual.collect())
    }

    /// For this step; a prompt of twice as many tokens may take twice as long.
    fn of_step(&self, step: &StepRow) -> Option<f64> {
        let (usual, tokens) = self.0.get(step.group())?;
        let more = step.counted_tokens().zip(*tokens).map_or(1.0, |(own, usual)| f64::from(own) / usual.max(1.0));
        Some(usual * more.max(1.0))
    }
}

/// The parts of a request with its steps, in order of start; `None` if it has none.
pub(super) fn parts(
    request: &RequestRecord,
    steps: &[&StepRow],
    queue_ns: Option<u64>,
    usual: &UsualOfKind,
) -> Option<RequestParts> {
    let start = request.host_start.0;
    let end = request.host_start.plus_ns(request.host_dur_ns).0.max(start);
    let first = steps.first()?.start_ns;
    let from = queue_ns.map_or(first, |ns| request.host_start.plus_ns(ns).0).clamp(start, end);
    let open = |of: &dyn Fn(Option<Phase>) -> bool| -> Vec<Stretch> {
        let own = steps.iter().filter(|step| of(step.phase)).map(|step| step.window());
        merged(own.map(|(begin, until)| (begin.max(from), until.min(end))).filter(|(begin, until)| begin < until))
    };
    let (all, prefill) = (open(&|_| true), open(&|phase| phase == Some(Phase::Prefill)));
    let forward = open(&|phase| matches!(phase, Some(Phase::Prefill | Phase::Decode)));
    let (all_ns, prefill_ns, forward_ns) = (length(&all), length(&prefill), length(&forward));
    Some(RequestParts {
        queue_ns: from.abs_diff(start),
        prefill_ns,
        decode_ns: length(&difference(&forward, &prefill)),
        other_ns: all_ns.saturating_sub(forward_ns),
        between_ns: end.abs_diff(from).saturating_sub(all_ns),
        slow_step: slow_step(request, steps, usual),
    })
}

fn slow_step(request: &RequestRecord, steps: &[&StepRow], usual: &UsualOfKind) -> Option<SlowStep> {
    let beyond = steps.iter().filter_map(|step| Some((step, usual.of_step(step)?)));
    let beyond = beyond.map(|(step, usual)| (step, usual, step.dur_ns as f64 - usual));
    let (step, usual_ns, excess) = beyond.max_by(|a, b| a.2.total_cmp(&b.2))?;
    let told = step.dur_ns as f64 >= SLOW * usual_ns && excess >= TELLING * request.host_dur_ns as f64;
    told.then(|| SlowStep {
        step: step.step,
        name: step.group().to_string(),
        dur_ns: step.dur_ns,
        usual_ns,
        at_ns: u64::try_from(step.start_ns.saturating_sub(request.host_start.0)).unwrap_or(0),
    })
}
