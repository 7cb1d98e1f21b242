//! Latency and throughput of requests: TTFT, TPOT, ITL, tokens a second, by the definitions in [`crate::definitions`].
//!
//! A request's own record says when its tokens came and how many there were, whichever of its steps a schedule
//! recorded. Steps fill in what the request does not say, but only if they show that none of them is missing: a figure
//! that cannot be known from sampled steps stays empty.

use super::held_up::HeldUp;
use super::request_parts::{RequestParts, UsualOfKind, parts};
use super::shared_steps;
use super::stats::{Distribution, percentile_of, total, total_if_known};
use super::step_rows::{StepRow, windows};
use candlescope_schema::run::RunManifest;
use candlescope_schema::stretches::{Stretch, difference, length};
use candlescope_schema::{Outcome, Phase, RequestRecord, Served};
use std::collections::{BTreeMap, BTreeSet};

/// Latency and throughput over the measured requests. Distributions of times are in nanoseconds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Latency {
    /// One row for each request, warm-up included, in order of start.
    pub requests: Vec<RequestFigures>,
    /// Requests left out of every statistic here because they are warm-up.
    pub warmup: usize,
    /// Request start to the start of its first step.
    pub queue: Option<Distribution>,
    /// Time to first token.
    pub ttft: Option<Distribution>,
    /// Time per output token after the first.
    pub tpot: Option<Distribution>,
    /// Gaps between neighbouring steps that yield tokens, however many each yields, of all requests together; the 95 %
    /// interval is by request.
    pub itl: Option<Distribution>,
    /// How long requests waited between their tokens while prompts of others passed; `None` unless steps say whom they
    /// serve, and every one has its record.
    pub held_up: Option<HeldUp>,
    /// Request start to last token.
    pub e2e: Option<Distribution>,
    /// Prompt tokens a second of prefill.
    pub prefill_tokens_per_s: Option<Distribution>,
    /// Output tokens a second after the first.
    pub decode_tokens_per_s: Option<Distribution>,
    /// Output tokens of all requests ÷ wall time from the first's start to the last's end.
    pub output_tokens_per_s: Option<f64>,
    /// Wall time that `output_tokens_per_s` is over.
    pub wall_ns: u64,
    /// Prompt tokens of the measured requests, all sequences together; `None` if one of them does not say.
    pub prompt_tokens: Option<u64>,
    /// Output tokens of the measured requests; `None` if one of them does not say.
    pub output_tokens: Option<u64>,
    /// Measured requests by how they ended; those whose program does not say are under `None`.
    pub outcomes: BTreeMap<Option<Outcome>, usize>,
}

/// Latency, tokens and rates of one request, by its own record or, where that does not say, by its steps.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RequestFigures {
    /// Number of the request.
    pub request: u64,
    /// `gen_ai.request.model` of the request's record: what the program calls the model.
    pub model: String,
    /// Whether it is warm-up.
    pub warmup: bool,
    /// Sequences in the batch.
    pub batch: Option<u32>,
    /// Prompt tokens of one sequence.
    pub prompt_tokens: Option<u64>,
    /// Output tokens, all sequences together.
    pub output_tokens: Option<u64>,
    /// Request start to the start of its first phase, recorded or not; of its first step if it has no phase.
    pub queue_ns: Option<u64>,
    /// Request start to first output token.
    pub ttft_ns: Option<u64>,
    /// Request start to last output token, or to the request's end if that is not known, or if it is of a kind that
    /// yields no tokens. A request that ended without a token has none, where others of its model and operation have
    /// tokens.
    pub e2e_ns: Option<u64>,
    /// (e2e − ttft) / (output tokens − 1), of the longest sequence.
    pub tpot_ns: Option<f64>,
    /// Gaps between neighbouring steps that yield tokens, however many each yields, in nanoseconds; never across a step
    /// that has no record.
    pub itl_ns: Vec<u64>,
    /// Prompt tokens a second of prefill.
    pub prefill_tokens_per_s: Option<f64>,
    /// Output tokens a second after the first.
    pub decode_tokens_per_s: Option<f64>,
    /// The request's own duration.
    pub dur_ns: u64,
    /// How it ended, if the program says.
    pub outcome: Option<Outcome>,
    /// Time in which one of its steps was open; `None` if it has none, or some of them have no record.
    pub steps_ns: Option<u64>,
    /// Its time from its first step on in which no step was open; `None` like [`steps_ns`](Self::steps_ns).
    pub outside_steps: Option<OutsideSteps>,
    /// Where its time went; `None` like [`steps_ns`](Self::steps_ns).
    pub parts: Option<RequestParts>,
}

/// The time of a request from the start of its first step to its end, and the part of it in which no step of the run
/// was open. Times are nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct OutsideSteps {
    /// All of it.
    pub whole_ns: u64,
    /// The part in which no step was open.
    pub outside_ns: u64,
    /// Stretches of that part that a step follows.
    pub gaps: u64,
    /// Their median; 0 if there is none. A single one in which others had the processor is not in it.
    pub usual_gap_ns: f64,
    /// The stretch that no step follows.
    pub after_ns: u64,
    /// Its steps.
    pub steps: u64,
    /// The same, each divided by the requests that it serves: the sum over requests is the number of steps.
    pub shared_steps: f64,
}

impl OutsideSteps {
    fn with_steps(mut self, told: &[(&StepRow, Option<Served>)]) -> Self {
        self.steps = told.len() as u64;
        self.shared_steps = told.iter().map(|(step, _)| 1.0 / step.serves.len().max(1) as f64).sum();
        self
    }
}

/// Numbers of the warm-up requests: the first ones, as many as the option `warmup` says.
///
/// Requests are numbered from 1 in order. If the oldest segments of a run were deleted to make room, the first requests
/// that are left may be measured ones.
pub fn warmup_requests(manifest: &RunManifest, requests: &[RequestRecord]) -> BTreeSet<u64> {
    let n = manifest.warmup_requests();
    // A run that contains only warm-up ended early: its requests are all there is to measure.
    if requests.iter().all(|r| r.request <= n) {
        return BTreeSet::new();
    }
    requests.iter().map(|r| r.request).filter(|&request| request <= n).collect()
}

/// Whether the run says that every step that began has its record. Runs of older versions, without these counts, do
/// not.
pub fn every_step_recorded(manifest: &RunManifest) -> bool {
    manifest
        .steps
        .is_some_and(|n| n.begun > 0 && [n.scheduled_out, n.paused, n.lost].iter().all(|missing| *missing == 0))
}

impl RequestFigures {
    /// Sequences in the batch, at least one.
    fn sequences(&self) -> u64 {
        u64::from(self.batch.unwrap_or(1).max(1))
    }
}

impl Latency {
    /// How the measured requests ended, in words: `37 done, 2 cancelled, 1 not said`. `None` if the program did not say so,
    /// or all are done.
    pub fn outcomes_in_words(&self) -> Option<String> {
        let told = self.outcomes.keys().any(Option::is_some);
        let all_done = self.outcomes.keys().all(|outcome| *outcome == Some(Outcome::Done));
        (told && !all_done).then(|| {
            let words =
                Outcome::ALL.iter().map(|outcome| (Some(*outcome), outcome.as_str())).chain([(None, "not said")]);
            let told = words.filter_map(|(outcome, word)| Some(format!("{} {word}", self.outcomes.get(&outcome)?)));
            told.collect::<Vec<_>>().join(", ")
        })
    }

    /// Figures of `requests` from their own records and their steps, both in order of start.
    ///
    /// `whole` says that every step of the run is known to have its record: [`every_step_recorded`]. If not, nothing is
    /// counted from a request's steps unless their context lengths, or their number, show that none is missing.
    pub fn of(requests: &[RequestRecord], steps: &[StepRow], warmup: &BTreeSet<u64>, whole: bool) -> Self {
        let mut by_request: BTreeMap<u64, Vec<(&StepRow, Option<Served>)>> = BTreeMap::new();
        for step in steps {
            for served in &step.serves {
                by_request.entry(served.request).or_default().push((step, Some(*served)));
            }
            if let Some(request) = step.request.filter(|_| step.serves.is_empty()) {
                by_request.entry(request).or_default().push((step, None));
            }
        }
        // Steps that are inside each other, or run at once, count once.
        let open = windows(steps);
        let generating = generating(requests);
        let usual = UsualOfKind::of(steps, warmup);
        let rows: Vec<RequestFigures> = requests
            .iter()
            .map(|request| {
                let told = by_request.get(&request.request).map_or(&[][..], Vec::as_slice);
                let own = shared_steps::of_request(request.request, told);
                let steps: Vec<&StepRow> = own.iter().map(AsRef::as_ref).collect();
                let outside_steps = outside_steps(request, &steps, &open).map(|outside| outside.with_steps(told));
                let figures = figures(request, &steps, warmup.contains(&request.request), whole);
                // It has no last token, so its end is not that token's time, where others of its kind have one.
                let no_token = request.output_tokens == Some(0) && generating.contains(&kind(request));
                let e2e_ns = figures.e2e_ns.filter(|_| !no_token);
                let parts = parts(request, &steps, figures.queue_ns, &usual);
                RequestFigures { outside_steps, e2e_ns, parts, ..figures }
            })
            .collect();
        let measured: Vec<&RequestFigures> = rows.iter().filter(|r| !r.warmup).collect();
        let over = |f: &dyn Fn(&RequestFigures) -> Option<f64>| {
            Distribution::of(measured.iter().filter_map(|r| f(r)).collect())
        };
        // A sum that leaves out the requests that do not say would be too small.
        let sum = |f: &dyn Fn(&RequestFigures) -> Option<u64>| {
            total_if_known(measured.iter().map(|r| f(r))).filter(|_| !measured.is_empty())
        };
        let kept = || requests.iter().filter(|r| !warmup.contains(&r.request));
        let start = kept().map(|r| r.host_start.0).min();
        let end = kept().map(|r| r.host_start.plus_ns(r.host_dur_ns).0).max();
        let wall_ns = start.zip(end).map_or(0, |(start, end)| u64::try_from(end.saturating_sub(start)).unwrap_or(0));
        let output_tokens = sum(&|r| r.output_tokens);
        let mut outcomes = BTreeMap::new();
        measured.iter().for_each(|request| *outcomes.entry(request.outcome).or_default() += 1);
        Self {
            outcomes,
            warmup: warmup.len(),
            queue: over(&|r| r.queue_ns.map(|v| v as f64)),
            ttft: over(&|r| r.ttft_ns.map(|v| v as f64)),
            tpot: over(&|r| r.tpot_ns),
            itl: Distribution::clustered(
                measured.iter().map(|r| r.itl_ns.iter().map(|&v| v as f64).collect()).collect(),
            ),
            held_up: if whole { HeldUp::of(steps, |request| !warmup.contains(&request)) } else { None },
            e2e: over(&|r| r.e2e_ns.map(|v| v as f64)),
            prefill_tokens_per_s: over(&|r| r.prefill_tokens_per_s),
            decode_tokens_per_s: over(&|r| r.decode_tokens_per_s),
            // A model that generates nothing has no such rate.
            output_tokens_per_s: output_tokens
                .filter(|&tokens| tokens > 0 && wall_ns > 0)
                .map(|tokens| per_second(tokens as f64, wall_ns as f64)),
            wall_ns,
            prompt_tokens: sum(&|r| Some(r.prompt_tokens?.saturating_mul(r.sequences()))),
            output_tokens,
            requests: rows,
        }
    }
}

/// What requests of one kind have in common: operation and model.
fn kind(request: &RequestRecord) -> (&str, &str) {
    (&request.operation, &request.model)
}

/// The kinds of requests that have output tokens; those of encoders have none.
fn generating(requests: &[RequestRecord]) -> BTreeSet<(&str, &str)> {
    requests.iter().filter(|request| request.output_tokens.is_some_and(|n| n > 0)).map(kind).collect()
}

/// A count over nanoseconds as a rate a second.
pub fn per_second(count: f64, ns: f64) -> f64 {
    count * 1e9 / ns
}

/// A step at whose end a token of each sequence exists.
#[derive(Debug, Clone, Copy)]
struct TokenStep<'a> {
    step: &'a StepRow,
    /// The step that computed it: the same step, unless sampling is a step of its own.
    forward: &'a StepRow,
}

impl TokenStep<'_> {
    /// Context length after the step, of what is needed: tokens that were guessed, and were not those that the model
    /// chose, are processed and do not stay. `None` if the step does not state it.
    fn context(&self) -> Option<u32> {
        let of_one = self.forward.context_sum.filter(|_| self.forward.sequences == Some(1));
        of_one.and_then(|sum| u32::try_from(sum).ok()).or(self.forward.context_len)
    }

    /// Whether no token came between `earlier` and this one: the context has grown by one, or by as many tokens as a
    /// sequence got in this step. `None` if the steps do not state their context.
    fn follows(&self, earlier: &TokenStep<'_>, sequences: u64) -> Option<bool> {
        let (before, after) = (earlier.context()?, self.context()?);
        let grown = u64::from(after.checked_sub(before)?);
        let sequences = self.forward.sequences.map_or(sequences, u64::from).max(1);
        let own = self.forward.counted_tokens().map(|tokens| u64::from(tokens) / sequences);
        Some(grown == 1 || (grown > 0 && Some(grown) == own))
    }
}

/// The steps at whose end a token exists.
///
/// Sampling marked as a step of its own yields the token; otherwise the last prefill step and each decode step do. If a
/// prompt is processed in chunks, only the last one yields a token.
fn token_steps<'a>(steps: &[&'a StepRow]) -> Vec<TokenStep<'a>> {
    let of = |phase: Phase| steps.iter().copied().filter(move |s| s.phase == Some(phase));
    if of(Phase::Sample).next().is_some() {
        // Steps are ordered by start: the latest step before a sampling step that is not itself sampling computed the
        // logits that it chooses from.
        let mut latest = None;
        let samples = steps.iter().copied().filter_map(|step| {
            if step.phase == Some(Phase::Sample) {
                return Some(TokenStep { step, forward: latest.unwrap_or(step) });
            }
            latest = Some(step);
            None
        });
        return samples.collect();
    }
    let steps = of(Phase::Prefill).next_back().into_iter().chain(of(Phase::Decode));
    let mut tokens: Vec<TokenStep<'_>> = steps.map(|step| TokenStep { step, forward: step }).collect();
    tokens.sort_by_key(|t| t.step.end_ns());
    tokens
}

/// What a request's steps say about its tokens.
struct Tokens<'a> {
    steps: Vec<TokenStep<'a>>,
    /// Whether the first token's step has its record.
    has_first: bool,
    /// Whether every token's step has.
    complete: bool,
    /// For each step but the first, whether it follows the one before without a gap.
    follows: Vec<bool>,
}

impl<'a> Tokens<'a> {
    /// `each` is the number of output tokens per sequence, if the request says.
    fn of(steps: &[&'a StepRow], sequences: u64, each: Option<u64>, whole: bool) -> Self {
        let tokens = token_steps(steps);
        let has_first = tokens.first().is_some_and(|t| t.forward.phase == Some(Phase::Prefill));
        let told: Vec<Option<bool>> = tokens.windows(2).map(|w| w[1].follows(&w[0], sequences)).collect();
        // Steps that do not state their context are complete if there are as many as tokens.
        let counted = has_first && each.is_some_and(|n| n == tokens.len() as u64);
        let follows: Vec<bool> = told.iter().map(|told| whole || told.unwrap_or(counted)).collect();
        let last = tokens.last().and_then(TokenStep::context);
        let first = tokens.first().and_then(TokenStep::context);
        // The context grows by one for each token, even if a step yields several.
        let grown = first.zip(last).and_then(|(first, last)| Some(u64::from(last.checked_sub(first)?) + 1));
        let seen = grown.map_or(tokens.len() as u64, |grown| grown.max(tokens.len() as u64));
        // In a batch `each` is a mean: more steps than that do not tell how long the longest sequence went on.
        let ends = whole || each.is_some_and(|n| seen == n || (sequences == 1 && seen > n));
        let complete = has_first && ends && follows.iter().all(|follows| *follows);
        Self { steps: tokens, has_first, complete, follows }
    }

    /// Tokens of the longest sequence, as far as the steps show.
    fn longest(&self) -> u64 {
        let context = |t: Option<&TokenStep<'_>>| t.and_then(TokenStep::context);
        let first = context(self.steps.first()).filter(|_| self.has_first);
        let grown = first.zip(context(self.steps.last())).and_then(|(first, last)| last.checked_sub(first));
        (self.steps.len() as u64).max(grown.map_or(0, |grown| u64::from(grown) + 1))
    }

    /// Output tokens of all sequences, where every step has its record.
    fn counted(&self, sequences: u64) -> Option<u64> {
        // A prefill's new tokens are those of the prompt; each sequence gets one output token from it.
        let tokens = |t: &TokenStep<'_>| match (t.forward.phase, t.forward.new_tokens, t.forward.sequences) {
            (Some(Phase::Prefill), _, Some(going)) => u64::from(going),
            (Some(Phase::Decode), Some(new), _) => u64::from(new),
            _ => sequences,
        };
        self.complete.then(|| total(self.steps.iter().map(tokens)))
    }
}

fn figures(request: &RequestRecord, steps: &[&StepRow], warmup: bool, whole: bool) -> RequestFigures {
    let start = request.host_start.0;
    let since_start = |at: i64| u64::try_from(at.saturating_sub(start)).ok();
    let batch = request.batch.or_else(|| steps.iter().find_map(|s| s.batch));
    let sequences = u64::from(batch.unwrap_or(1).max(1));
    let tokens = Tokens::of(steps, sequences, request.output_tokens.map(|n| n / sequences), whole);
    let end_of = |t: Option<&TokenStep<'_>>| t.and_then(|t| since_start(t.step.end_ns()));
    // A request that says how many tokens it yielded, and yielded none, has no first token.
    let may_have_token = request.output_tokens != Some(0);
    let by_steps = end_of(tokens.steps.first()).filter(|_| tokens.has_first && may_have_token);
    let ttft_ns = request.ttft_ns.or(by_steps);
    let by_steps = end_of(tokens.steps.last()).filter(|_| tokens.complete && may_have_token);
    // If steps are missing, the request's own end is the best estimate of its last token's time.
    let e2e_ns = request.last_token_ns.or(by_steps).or(Some(request.host_dur_ns));
    let output_tokens = request.output_tokens.or_else(|| tokens.counted(sequences));
    // A batch yields one token per sequence at a time: gaps are counted along the longest sequence, tokens over all
    // sequences. If some sequences stop early, the steps give the longest sequence's tokens; if a step yields several
    // tokens or steps are not known, the number of tokens does, as it does of one sequence: its context may count tokens
    // that were guessed wrong.
    let longest = output_tokens.map(|n| if sequences == 1 { n } else { (n / sequences).max(tokens.longest()) });
    let gaps = longest.and_then(|n| n.checked_sub(1)).filter(|&n| n > 0);
    let after_first = output_tokens.and_then(|n| n.checked_sub(sequences)).filter(|&n| n > 0);
    let decoding = ttft_ns.zip(e2e_ns).and_then(|(ttft, e2e)| e2e.checked_sub(ttft)).filter(|&ns| ns > 0);
    let prefill = || steps.iter().filter(|s| s.phase == Some(Phase::Prefill));
    let prefill_ns = total(prefill().map(|s| s.dur_ns));
    // The tokens that the prefill steps processed, if they say so: a cached prefix is part of the prompt but not of the
    // work.
    let processed = total_if_known(prefill().map(|s| s.counted_tokens().map(u64::from))).filter(|&n| n > 0);
    // Some chunks of a prompt may have no record; then the prompt's length must not be divided by the time of the
    // others.
    let asked = request.prompt_tokens.map(|n| n.saturating_mul(sequences)).filter(|_| tokens.complete);
    RequestFigures {
        request: request.request,
        model: request.model.to_string(),
        warmup,
        batch,
        prompt_tokens: request.prompt_tokens.or(processed.filter(|_| tokens.complete).map(|n| n / sequences)),
        output_tokens,
        queue_ns: request.queue_ns,
        ttft_ns,
        e2e_ns,
        tpot_ns: decoding.zip(gaps).map(|(ns, gaps)| ns as f64 / gaps as f64),
        itl_ns: gaps_between(&tokens),
        prefill_tokens_per_s: processed
            .or(asked)
            .filter(|&n| n > 0 && prefill_ns > 0)
            .map(|n| per_second(n as f64, prefill_ns as f64)),
        decode_tokens_per_s: decoding.zip(after_first).map(|(ns, n)| per_second(n as f64, ns as f64)),
        dur_ns: request.host_dur_ns,
        outcome: request.outcome,
        steps_ns: (!steps.is_empty()).then(|| length(&windows(steps.iter().copied()))),
        outside_steps: None,
        parts: None,
    }
}

/// From the request's first step to its end, and how much of that is not in `open`, the time in which steps of the run
/// were open: what it waits for before its first step, and for other requests, is no work between its steps.
fn outside_steps(request: &RequestRecord, steps: &[&StepRow], open: &[Stretch]) -> Option<OutsideSteps> {
    let own = (steps.first()?.start_ns, request.host_start.plus_ns(request.host_dur_ns).0);
    let from = open.partition_point(|window| window.1 <= own.0);
    let until = open.partition_point(|window| window.0 < own.1);
    let mut outside = difference(&[own], &open[from..until.max(from)]);
    let outside_ns = length(&outside);
    let after = outside.pop_if(|last| last.1 == own.1);
    let gaps: Vec<f64> = outside.iter().map(|gap| gap.1.abs_diff(gap.0) as f64).collect();
    (own.1 > own.0).then(|| OutsideSteps {
        whole_ns: own.1.abs_diff(own.0),
        outside_ns,
        gaps: gaps.len() as u64,
        usual_gap_ns: percentile_of(&gaps, 0.5).unwrap_or(0.0),
        after_ns: after.map_or(0, |last| last.1.abs_diff(last.0)),
        ..OutsideSteps::default()
    })
}

/// Gaps between the ends of neighbouring steps that yield tokens, none across a missing step.
fn gaps_between(tokens: &Tokens<'_>) -> Vec<u64> {
    let pairs = tokens.steps.windows(2).zip(&tokens.follows).filter(|(_, follows)| **follows);
    pairs.filter_map(|(w, _)| u64::try_from(w[1].step.end_ns().saturating_sub(w[0].step.end_ns())).ok()).collect()
}
