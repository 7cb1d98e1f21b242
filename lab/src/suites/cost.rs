//! What output tokens cost, of a study whose machine has a price.

use super::lm_options::SuiteName;
use super::suite_tables::{COST, median, of_suite, size};
use crate::study::{CaseSummary, Manifest};
use candlescope_core::numbers::significant;
use candlescope_figures::{PRICE_PER_HOUR, Price};
use serde_json::{Value, json};

/// What a case costs.
struct Cost<'a> {
    case: &'a CaseSummary,
    /// US dollars for a million output tokens, at the case's median rate.
    usd_per_million: f64,
}

/// The price of a study's machine, if somebody said it.
pub(super) fn price(manifest: &Manifest) -> Option<Price> {
    Price::of_option(manifest.options.get(PRICE_PER_HOUR))
}

/// Cases by suite, as they were measured.
fn costs<'a>(manifest: &Manifest, summaries: &'a [CaseSummary]) -> Vec<Cost<'a>> {
    let Some(price) = price(manifest) else { return Vec::new() };
    let by_suite = SuiteName::ALL.into_iter().flat_map(|suite| of_suite(summaries, suite));
    by_suite
        .filter_map(|case| Some(Cost { case, usd_per_million: price.per_million(median(case, "output_tps")?)? }))
        .collect()
}

/// What a million output tokens cost, in words, by batch and for one request at a time; empty without a price.
pub fn cost_lines(manifest: &Manifest, summaries: &[CaseSummary]) -> Vec<String> {
    let Some(price) = price(manifest) else { return Vec::new() };
    let all = costs(manifest, summaries);
    let of = |suite: SuiteName| all.iter().filter(move |cost| cost.case.case.suite() == suite.as_str());
    let head = format!("Cost of a million output tokens at US$ {} an hour", significant(price.usd_per_hour));
    let batches: Vec<(usize, &Cost<'_>)> =
        of(SuiteName::Throughput).filter_map(|cost| Some((size(cost.case, "batch")?, cost))).collect();
    let least = batches.iter().min_by(|a, b| a.1.usd_per_million.total_cmp(&b.1.usd_per_million));
    let mut lines: Vec<String> = of(SuiteName::Latency)
        .map(|cost| format!("{head}, one request at a time: US$ {}", significant(cost.usd_per_million)))
        .collect();
    lines.extend(least.map(|(least, _)| {
        let each: Vec<String> = batches
            .iter()
            .map(|(batch, cost)| format!("US$ {} at a batch of {batch}", significant(cost.usd_per_million)))
            .collect();
        let end = if each.len() > 1 { format!("; least at {least}") } else { String::new() };
        format!("{head}: {}{end}", each.join(", "))
    }));
    lines
}

/// For `baseline_metrics.json`; null without a price.
pub(super) fn cost_json(manifest: &Manifest, summaries: &[CaseSummary]) -> Value {
    let Some(price) = price(manifest) else { return Value::Null };
    let cases = costs(manifest, summaries);
    let cases = cases
        .iter()
        .map(|cost| json!({ "case": cost.case.case.key(), (COST): cost.usd_per_million, "label": "derived" }));
    json!({ "usd_per_hour": price.usd_per_hour, "cases": cases.collect::<Vec<_>>() })
}
