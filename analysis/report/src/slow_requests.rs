//! The slowest requests, each taken apart: what all renderers show of them.

use super::format::{count, duration, printable, significant};
use candlescope_figures::stats::percentile_of;
use candlescope_figures::{Analysis, RequestFigures, RequestParts, SlowStep};
use serde_json::{Value, json};

/// Requests that are shown.
const MOST: usize = 5;
/// A request is said to have been longer in a part only from this share of its duration on.
const TELLING: f64 = 0.05;

/// The parts of a request, in the order in which they happen.
pub(super) const PARTS: [(&str, &str); 5] = [
    ("queue", "from the start of the request to its first step"),
    ("prefill", "steps that read the prompt"),
    ("decode", "steps that yield the further tokens"),
    ("other steps", "sampling, encoding, and steps without a phase, while no other step of it is open"),
    ("between", "none of its steps is open: it waits, or the host works for it"),
];

/// The slowest requests of a run, and what is usual.
pub(super) struct SlowRequests<'a> {
    /// Measured requests that are taken apart.
    pub(super) n: usize,
    /// Median duration in nanoseconds.
    pub(super) median_ns: f64,
    /// Medians of the parts.
    pub(super) usual_ns: [f64; 5],
    /// The slowest first.
    pub(super) rows: Vec<SlowRequest<'a>>,
}

/// One of them.
pub(super) struct SlowRequest<'a> {
    pub(super) figures: &'a RequestFigures,
    pub(super) parts_ns: [u64; 5],
    /// Its duration ÷ the median.
    pub(super) times: f64,
    /// The part that it spends most in beyond what is usual, and how much, in nanoseconds.
    pub(super) longer: Option<(&'static str, f64)>,
    pub(super) slow_step: Option<&'a SlowStep>,
}

/// A request, its parts, and their times.
type PartedRequest<'a> = (&'a RequestFigures, &'a RequestParts, [u64; 5]);

fn times(parts: &RequestParts) -> [u64; 5] {
    [parts.queue_ns, parts.prefill_ns, parts.decode_ns, parts.other_ns, parts.between_ns]
}

/// `None` with fewer than two requests that can be taken apart: there is nothing to hold one against.
pub(super) fn slow_requests(analysis: &Analysis) -> Option<SlowRequests<'_>> {
    let measured = analysis.latency.requests.iter().filter(|request| !request.warmup);
    let mut all: Vec<PartedRequest<'_>> = measured
        .filter_map(|request| Some((request, request.parts.as_ref()?)))
        .map(|(r, p)| (r, p, times(p)))
        .collect();
    let n = all.len();
    if n < 2 {
        return None;
    }
    let median = |of: &dyn Fn(&PartedRequest<'_>) -> u64| {
        percentile_of(&all.iter().map(|request| of(request) as f64).collect::<Vec<_>>(), 0.5)
    };
    let median_ns = median(&|request| request.0.dur_ns)?;
    let mut usual_ns = [0.0; 5];
    for (at, usual) in usual_ns.iter_mut().enumerate() {
        *usual = median(&|request| request.2[at])?;
    }
    all.sort_by(|a, b| b.0.dur_ns.cmp(&a.0.dur_ns).then_with(|| a.0.request.cmp(&b.0.request)));
    let rows = all.into_iter().take(MOST).map(|(figures, parts, parts_ns)| {
        let beyond = PARTS.iter().zip(parts_ns).zip(usual_ns).map(|((part, ns), usual)| (part.0, ns as f64 - usual));
        let most = beyond.max_by(|a, b| a.1.total_cmp(&b.1));
        SlowRequest {
            figures,
            parts_ns,
            times: figures.dur_ns as f64 / median_ns.max(1.0),
            longer: most.filter(|(_, ns)| *ns >= TELLING * figures.dur_ns as f64),
            slow_step: parts.slow_step.as_ref(),
        }
    });
    Some(SlowRequests { n, median_ns, usual_ns, rows: rows.collect() })
}

impl SlowRequest<'_> {
    /// Why it was slow, as far as its parts and its steps tell.
    pub(super) fn why(&self) -> String {
        let longer = self.longer.map(|(part, ns)| format!("{} more than usual in {part}", duration(ns)));
        let step = self.slow_step.map(|step| {
            format!(
                "step {} ({}) took {}, usual is {}, {} after the request began",
                count(step.step),
                printable(&step.name),
                duration(step.dur_ns as f64),
                duration(step.usual_ns),
                duration(step.at_ns as f64)
            )
        });
        let parts: Vec<String> = longer.into_iter().chain(step).collect();
        if parts.is_empty() { "nothing stands out".to_string() } else { parts.join("; ") }
    }

    /// `1.9 ×` the median.
    pub(super) fn times_in_words(&self) -> String {
        format!("{} ×", significant(self.times))
    }

    /// Prompt tokens and output tokens.
    pub(super) fn tokens(&self) -> [String; 2] {
        [self.figures.prompt_tokens, self.figures.output_tokens].map(|n| n.map_or("–".to_string(), count))
    }
}

/// The parts of a request, for programs; null if they are not known.
pub(super) fn parts_json(parts: Option<&RequestParts>) -> Value {
    let Some(parts) = parts else { return Value::Null };
    json!({
        "queue_ns": parts.queue_ns,
        "prefill_ns": parts.prefill_ns,
        "decode_ns": parts.decode_ns,
        "other_steps_ns": parts.other_ns,
        "between_ns": parts.between_ns,
        "slow_step": parts.slow_step.as_ref().map(|step| json!({
            "step": step.step,
            "name": step.name,
            "dur_ns": step.dur_ns,
            "usual_ns": step.usual_ns,
            "at_ns": step.at_ns,
        })),
    })
}

/// The same list for programs; null if there is none.
pub(super) fn slow_json(analysis: &Analysis) -> Value {
    let Some(slow) = slow_requests(analysis) else { return Value::Null };
    let rows = slow.rows.iter().map(|row| {
        json!({
            "request": row.figures.request,
            "dur_ns": row.figures.dur_ns,
            "of_median": row.times,
            "parts": parts_json(row.figures.parts.as_ref()),
            "longer_in": row.longer.map(|(part, _)| part),
            "longer_ns": row.longer.map(|(_, ns)| ns),
        })
    });
    json!({ "n": slow.n, "median_ns": slow.median_ns, "rows": rows.collect::<Vec<_>>() })
}
