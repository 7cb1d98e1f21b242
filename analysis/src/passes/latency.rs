//! Latency and throughput of requests: TTFT, TPOT, ITL, tokens a second, by the definitions in [`crate::definitions`].

use super::stats::{Distribution, total, total_if_known};
use super::step_rows::StepRow;
use candlescope_core::run::RunManifest;
use candlescope_core::{Phase, RequestRecord};
use std::collections::{BTreeMap, BTreeSet};

/// Latency and throughput over the measured requests. Distributions of times are in nanoseconds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Latency {
    /// One row for each request, warm-up included, in order of start.
    pub requests: Vec<RequestFigures>,
    /// Requests left out of every statistic here because they warmed up.
    pub warmup: usize,
    /// Time to first token.
    pub ttft: Option<Distribution>,
    /// Time per output token after the first.
    pub tpot: Option<Distribution>,
    /// Gaps between consecutive output tokens, of all requests together.
    pub itl: Option<Distribution>,
    /// Request start to last token.
    pub e2e: Option<Distribution>,
    /// Prompt tokens a second of prefill.
    pub prefill_tps: Option<Distribution>,
    /// Output tokens a second after the first.
    pub decode_tps: Option<Distribution>,
    /// Output tokens of all requests ÷ wall time from the first's start to the last's end.
    pub output_tps: Option<f64>,
    /// Wall time that `output_tps` is over.
    pub wall_ns: u64,
    /// Prompt tokens of the measured requests.
    pub prompt_tokens: Option<u64>,
    /// Output tokens of the measured requests.
    pub output_tokens: Option<u64>,
}

/// One request's figures.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RequestFigures {
    /// Number of the request.
    pub request: u64,
    /// `gen_ai.request.model`.
    pub model: String,
    /// Whether it only warmed up.
    pub warmup: bool,
    /// Sequences in the batch.
    pub batch: Option<u32>,
    /// Prompt tokens.
    pub prompt_tokens: Option<u64>,
    /// Output tokens, all sequences together.
    pub output_tokens: Option<u64>,
    /// Request start to first output token.
    pub ttft_ns: Option<u64>,
    /// Request start to last output token.
    pub e2e_ns: Option<u64>,
    /// (e2e − ttft) / (output tokens − 1), of the longest sequence.
    pub tpot_ns: Option<f64>,
    /// Gaps between consecutive output tokens.
    pub itl_ns: Vec<u64>,
    /// Prompt tokens a second of prefill.
    pub prefill_tps: Option<f64>,
    /// Output tokens a second after the first.
    pub decode_tps: Option<f64>,
    /// The request's own duration.
    pub dur_ns: u64,
    /// Sum of its steps' durations.
    pub steps_ns: u64,
}

/// Numbers of the requests that warmed up: the first ones, as many as the option `warmup` says.
///
/// Requests are numbered from 1 in order. Of a run whose oldest segments made room for newer ones the first that are left may
/// be measured ones.
pub fn warmup_requests(manifest: &RunManifest, requests: &[RequestRecord]) -> BTreeSet<u64> {
    let option = manifest.options.get("warmup");
    let n = option.and_then(|v| v.as_u64().or_else(|| v.as_str()?.parse().ok())).unwrap_or(0);
    // A run of nothing but warm-up was ended early: its requests are all there is to measure.
    if requests.iter().all(|r| r.request <= n) {
        return BTreeSet::new();
    }
    requests.iter().map(|r| r.request).filter(|&request| request <= n).collect()
}

impl Latency {
    /// Figures of `requests` from their own records and their steps, both in order of start.
    pub fn of(requests: &[RequestRecord], steps: &[StepRow], warmup: &BTreeSet<u64>) -> Self {
        let mut by_request: BTreeMap<u64, Vec<&StepRow>> = BTreeMap::new();
        for step in steps {
            if let Some(request) = step.request {
                by_request.entry(request).or_default().push(step);
            }
        }
        let rows: Vec<RequestFigures> = requests
            .iter()
            .map(|request| {
                let steps = by_request.get(&request.request).map_or(&[][..], Vec::as_slice);
                figures(request, steps, warmup.contains(&request.request))
            })
            .collect();
        let measured: Vec<&RequestFigures> = rows.iter().filter(|r| !r.warmup).collect();
        let over = |f: &dyn Fn(&RequestFigures) -> Option<f64>| {
            Distribution::of(measured.iter().filter_map(|r| f(r)).collect())
        };
        let sum = |f: &dyn Fn(&RequestFigures) -> Option<u64>| {
            let known: Vec<u64> = measured.iter().filter_map(|r| f(r)).collect();
            (!known.is_empty()).then(|| total(known))
        };
        let kept = || requests.iter().filter(|r| !warmup.contains(&r.request));
        let start = kept().map(|r| r.host_start.0).min();
        let end = kept().map(|r| r.host_start.plus_ns(r.host_dur_ns).0).max();
        let wall_ns = start.zip(end).map_or(0, |(start, end)| u64::try_from(end - start).unwrap_or(0));
        let output_tokens = sum(&|r| r.output_tokens);
        Self {
            warmup: warmup.len(),
            ttft: over(&|r| r.ttft_ns.map(|v| v as f64)),
            tpot: over(&|r| r.tpot_ns),
            itl: Distribution::of(measured.iter().flat_map(|r| r.itl_ns.iter().map(|&v| v as f64)).collect()),
            e2e: over(&|r| r.e2e_ns.map(|v| v as f64)),
            prefill_tps: over(&|r| r.prefill_tps),
            decode_tps: over(&|r| r.decode_tps),
            output_tps: output_tokens.filter(|_| wall_ns > 0).map(|tokens| per_second(tokens as f64, wall_ns as f64)),
            wall_ns,
            prompt_tokens: sum(&|r| r.prompt_tokens),
            output_tokens,
            requests: rows,
        }
    }
}

/// A count over nanoseconds as a rate a second.
pub(crate) fn per_second(count: f64, ns: f64) -> f64 {
    count * 1e9 / ns
}

/// The steps at whose end a token exists.
///
/// Sampling marked as a step of its own yields the token; otherwise the last prefill step and each decode step do. Of a prompt
/// processed in chunks only the last yields a token.
fn token_steps<'a>(steps: &[&'a StepRow]) -> Vec<&'a StepRow> {
    let of = |phase: Phase| steps.iter().copied().filter(move |s| s.phase == Some(phase));
    if of(Phase::Sample).next().is_some() {
        return of(Phase::Sample).collect();
    }
    let mut tokens: Vec<&StepRow> = of(Phase::Prefill).next_back().into_iter().chain(of(Phase::Decode)).collect();
    tokens.sort_by_key(|s| s.end_ns());
    tokens
}

fn figures(request: &RequestRecord, steps: &[&StepRow], warmup: bool) -> RequestFigures {
    let start = request.host_start.0;
    let since_start = |at: i64| u64::try_from(at - start).ok();
    let tokens = token_steps(steps);
    let batch = request.batch.or_else(|| tokens.iter().find_map(|s| s.batch));
    let sequences = u64::from(batch.unwrap_or(1).max(1));
    let ttft_ns = request.ttft_ns.or_else(|| tokens.first().and_then(|s| since_start(s.end_ns())));
    // Without steps the request's end is the closest thing known to its last token.
    let e2e_ns = tokens.last().map_or(Some(request.host_dur_ns), |s| since_start(s.end_ns()));
    let output_tokens = request.output_tokens.or_else(|| (!tokens.is_empty()).then(|| tokens.len() as u64 * sequences));
    // A batch yields one token a sequence at a time: gaps are counted along the longest sequence, tokens over all. Its steps
    // count them where some sequences stop early; the tokens do where a step yields several or steps are not known.
    let longest = output_tokens.map(|n| (n / sequences).max(tokens.len() as u64));
    let gaps = longest.and_then(|n| n.checked_sub(1)).filter(|&n| n > 0);
    let after_first = output_tokens.and_then(|n| n.checked_sub(sequences)).filter(|&n| n > 0);
    let decoding = ttft_ns.zip(e2e_ns).and_then(|(ttft, e2e)| e2e.checked_sub(ttft)).filter(|&ns| ns > 0);
    let prefill_ns = total(steps.iter().filter(|s| s.phase == Some(Phase::Prefill)).map(|s| s.dur_ns));
    // The tokens the prefill steps processed, where they say so: a cached prefix is part of the prompt but not of the work.
    let prefill_steps = steps.iter().filter(|s| s.phase == Some(Phase::Prefill));
    let processed = total_if_known(prefill_steps.map(|s| s.tokens.map(u64::from))).filter(|&n| n > 0);
    let prompt = processed.or(request.prompt_tokens);
    RequestFigures {
        request: request.request,
        model: request.model.to_string(),
        warmup,
        batch,
        prompt_tokens: request.prompt_tokens.or(processed),
        output_tokens,
        ttft_ns,
        e2e_ns,
        tpot_ns: decoding.zip(gaps).map(|(ns, gaps)| ns as f64 / gaps as f64),
        itl_ns: tokens.windows(2).filter_map(|w| u64::try_from(w[1].end_ns() - w[0].end_ns()).ok()).collect(),
        prefill_tps: prompt.filter(|&n| n > 0 && prefill_ns > 0).map(|n| per_second(n as f64, prefill_ns as f64)),
        decode_tps: decoding.zip(after_first).map(|(ns, n)| per_second(n as f64, ns as f64)),
        dur_ns: request.host_dur_ns,
        steps_ns: total(steps.iter().map(|s| s.dur_ns)),
    }
}
