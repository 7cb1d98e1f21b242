//! What a search found, in words.

use super::goal::Metric;
use super::outcome::{TuneOutcome, TunePoint};
use super::search::Stop;
use crate::suites::{ms, shown_bytes, tokens};
use candlescope_core::numbers::significant;
use std::fmt::Write as _;

/// The lines of a terminal: what is best, what it costs, where memory ends, why measuring stopped.
pub fn lines(tuned: &TuneOutcome) -> Vec<String> {
    let mut lines = vec![headline(tuned)];
    lines.extend(equal(tuned));
    lines.extend(knee(tuned));
    lines.extend(cost(tuned));
    lines.push(memory(tuned));
    lines.push(prediction(tuned));
    lines.push(stopped(tuned));
    lines
}

/// The batch that comes nearest to the limits that none keeps, with its times.
pub fn nearest_words(tuned: &TuneOutcome) -> Option<String> {
    let point = tuned.point(tuned.nearest)?;
    let excess = point.excess?;
    Some(format!(
        "none of the batches measured from {} to {} keeps the service level ({}), and none is expected to; {} comes \
         nearest with {}, {excess:.2} times a limit",
        tuned.start,
        tuned.end,
        limits(tuned),
        point.batch,
        times(point)
    ))
}

fn limits(tuned: &TuneOutcome) -> String {
    let slo = tuned.goal.slo;
    let limit = |name: &str, ns: Option<u64>| ns.map(|ns| format!("{name} ≤ {}", ms(Some(ns as f64))));
    let all = [limit("TTFT", slo.ttft_ns), limit("TPOT", slo.tpot_ns), limit("E2E", slo.e2e_ns)];
    all.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// `1234 tokens/s, TTFT = 2.1 ms, TPOT = 3.4 ms, E2E = 53.9 ms`.
fn times(point: &TunePoint) -> String {
    let Some(found) = point.found else { return "no figures".into() };
    let tpot = found.latency.tpot_ns.map_or(String::new(), |tpot| format!(", TPOT = {}", ms(Some(tpot))));
    format!(
        "{} tokens/s, TTFT = {}{tpot}, E2E = {}",
        tokens(found.output_tokens_per_s),
        ms(Some(found.latency.ttft_ns)),
        ms(Some(found.latency.e2e_ns))
    )
}

fn headline(tuned: &TuneOutcome) -> String {
    let under = if tuned.goal.limits() { format!(" with {}", limits(tuned)) } else { String::new() };
    let what = match tuned.goal.metric {
        Metric::Throughput => "highest throughput",
        Metric::Latency => "shortest request",
        Metric::Goodput => "highest goodput",
    };
    match tuned.point(tuned.best) {
        Some(point) => {
            let kept = point.found.map_or(1.0, |found| found.kept);
            let kept = match tuned.goal.limits() {
                true => format!("; {:.0} % of its requests kept the limits", kept * 100.0),
                false => String::new(),
            };
            format!("Best batch for the {what}{under}: {} ({}{kept})", point.batch, times(point))
        }
        None => match nearest_words(tuned) {
            Some(words) => format!("No batch: {words}."),
            None => format!("No batch from {} to {} gave a figure.", tuned.start, tuned.end),
        },
    }
}

fn equal(tuned: &TuneOutcome) -> Option<String> {
    let list: Vec<String> = tuned.equal.iter().map(u64::to_string).collect();
    (!list.is_empty()).then(|| format!("Not to be told from it: {}; their spreads overlap.", list.join(", ")))
}

fn knee(tuned: &TuneOutcome) -> Option<String> {
    let point = tuned.point(tuned.knee)?;
    Some(format!(
        "Knee: {}, the smallest measured with four fifths of the highest throughput ({})",
        point.batch,
        times(point)
    ))
}

/// The cheapest batch, and what the best and the smallest one cost.
fn cost(tuned: &TuneOutcome) -> Option<String> {
    let price = significant(tuned.usd_per_hour?);
    let of = |batch: u64| tuned.point(Some(batch))?.usd_per_million_output_tokens.map(significant);
    let cheapest = tuned.cheapest?;
    let under = if tuned.goal.limits() { ", of those that keep the limits" } else { "" };
    let mut text = format!(
        "Cost at US$ {price} an hour: a million output tokens cost least at a batch of {cheapest}{under}: US$ {}",
        of(cheapest)?
    );
    let smallest = tuned.points.iter().find(|point| point.found.is_some()).map(|point| point.batch);
    for (batch, name) in [(tuned.best, "the best"), (smallest, "the smallest")] {
        if let Some((batch, usd)) = batch.filter(|batch| *batch != cheapest).and_then(|b| Some((b, of(b)?))) {
            let _ = write!(text, "; US$ {usd} at {name}, {batch}");
        }
    }
    Some(text)
}

fn memory(tuned: &TuneOutcome) -> String {
    let memory = &tuned.memory;
    let Some(there) = memory.available_bytes else {
        return match memory.first_without {
            Some(batch) => format!("Memory: a batch of {batch} did not fit; {}", without(tuned, batch)),
            None => "Memory: what is available is not known; every batch that was tried did fit.".into(),
        };
    };
    let largest = tuned.points.iter().rfind(|point| point.found.is_some());
    let pressure = largest.and_then(|point| Some((point.batch, point.pressure?)));
    let used = pressure.map_or(String::new(), |(batch, share)| {
        format!("; a batch of {batch} is predicted to take {} of it", percent(share))
    });
    let ends = match (memory.first_without, memory.largest_predicted) {
        (Some(batch), _) => format!("; a batch of {batch} did not fit: {}", without(tuned, batch)),
        (None, Some(batch)) if batch < tuned.end => format!("; predicted to end above {batch}, which was not found"),
        (None, Some(_)) => "; it ends no batch of the range".to_string(),
        (None, None) => "; predicted to be too little for any batch, which was not found".to_string(),
    };
    format!("Memory: {} beside the weights{used}{ends}", shown_bytes(there))
}

fn percent(share: f64) -> String {
    match share * 100.0 {
        small if small < 1.0 => "less than 1 %".to_string(),
        share => format!("{share:.0} %"),
    }
}

fn without(tuned: &TuneOutcome, batch: u64) -> String {
    tuned.point(Some(batch)).and_then(|point| point.detail.clone()).unwrap_or_else(|| "no reason was given".into())
}

fn prediction(tuned: &TuneOutcome) -> String {
    let off = |error: Option<f64>| error.map(|error| format!("{:.0} %", error * 100.0));
    match (&tuned.prediction.source, &tuned.prediction.missing) {
        (Some(source), _) => {
            let before = off(tuned.prediction_error).unwrap_or_else(|| "an unknown amount".into());
            let later = off(tuned.expectation_error).unwrap_or_else(|| "an unknown amount".into());
            format!(
                "Prediction: {source}; off by {before} in the middle before anything was measured, by {later} as it was \
                 corrected when each batch was chosen"
            )
        }
        (None, missing) => {
            let why = missing.as_deref().unwrap_or("no reason was given");
            format!("Prediction: none beforehand ({why}); batches were expected from those measured before them")
        }
    }
}

fn stopped(tuned: &TuneOutcome) -> String {
    let measured = tuned.points.len();
    let why = match tuned.stop {
        Stop::Settled => "the best batch and those beside it were measured, and no other is expected to be 2 % better",
        Stop::AllMeasured => "every batch that memory has room for was measured",
        Stop::Points => "as many batches as were allowed were measured (--points)",
        Stop::Unmet => "no batch keeps the limits, and none is expected to",
        Stop::NothingFits => "not even the smallest batch fits into memory",
        Stop::Cancelled => "it was interrupted",
    };
    format!("Measured {measured} of {} batches; stopped because {why}.", tuned.end - tuned.start + 1)
}

/// A row of the table as it is shown: with the cost, where the machine has a price.
pub(super) fn cells(point: &TunePoint, tuned: &TuneOutcome) -> Vec<String> {
    let cost = point.usd_per_million_output_tokens.map_or_else(|| "–".to_string(), significant);
    row(point, tuned).into_iter().chain(tuned.usd_per_hour.map(|_| cost)).collect()
}

/// Heads of the table's columns as it is shown.
pub(super) fn heads(tuned: &TuneOutcome) -> Vec<&'static str> {
    HEADS.into_iter().chain(tuned.usd_per_hour.map(|_| "US$ for 10⁶ output tokens")).collect()
}

/// A row of the table: batch, why, expected and found figures.
fn row(point: &TunePoint, tuned: &TuneOutcome) -> [String; 8] {
    let expected = point.expected.map(|latency| latency.output_tokens_per_s(point.batch, tuned.output_tokens));
    let found = point.found;
    let dash = || "–".to_string();
    let time = |of: Option<f64>| of.map_or_else(dash, |ns| ms(Some(ns)));
    let word = match (point.without, point.excess) {
        (Some(reason), _) => format!("{}: {}", reason.words(), point.detail.as_deref().unwrap_or_default()),
        (None, Some(excess)) if excess > 1.0 => format!("misses a limit {excess:.2} times"),
        (None, Some(_)) => "keeps the limits".into(),
        (None, None) => String::new(),
    };
    let memory = match (found.and_then(|found| found.memory_bytes), point.need_bytes) {
        (Some(bytes), _) => shown_bytes(bytes as u64),
        (None, Some(need)) => format!("{} needed (predicted)", shown_bytes(need)),
        (None, None) => dash(),
    };
    [
        point.batch.to_string(),
        point.why.words().to_string() + if point.finalist { "; measured again beside the best" } else { "" },
        expected.map_or_else(dash, tokens),
        found.map_or_else(dash, |found| tokens(found.output_tokens_per_s)),
        time(found.map(|found| found.latency.ttft_ns)),
        time(found.and_then(|found| found.latency.tpot_ns)),
        memory,
        word,
    ]
}

/// Heads of the table's columns.
const HEADS: [&str; 8] =
    ["batch", "why it was measured", "expected tokens/s", "tokens/s", "TTFT", "TPOT", "memory", "result"];
