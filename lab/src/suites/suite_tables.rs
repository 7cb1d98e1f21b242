//! The tables of each suite: `latency_results.csv`, `throughput_results.csv`, `sequence_length_results.csv`.

use super::lm_options::SuiteName;
use crate::method::Sample;
use crate::study::{CaseSummary, Column, IntervalOf, Speedup, Table, ratio};
use candlescope_core::metric;
use candlescope_figures::Price;
use candlescope_figures::stats::Distribution;

/// What a million output tokens cost in US dollars (derived): the last column where the machine has a price, and the key
/// in `baseline_metrics.json`.
pub(super) const COST: &str = "usd_per_million_output_tokens";

/// Summaries of the cases of one suite.
pub(super) fn of_suite(summaries: &[CaseSummary], suite: SuiteName) -> Vec<&CaseSummary> {
    summaries.iter().filter(|summary| summary.case.suite() == suite.as_str()).collect()
}

/// Tokens that a case's prompt has: its parameter, or what its file turned out to have.
pub(super) fn prompt_tokens(summary: &CaseSummary) -> Option<usize> {
    let counted = || summary.figure("request_prompt_tokens").map(|tokens| tokens.median as i64);
    summary.case.int("prompt_tokens").or_else(counted).and_then(|tokens| usize::try_from(tokens).ok())
}

/// A whole-number parameter.
pub(super) fn size(summary: &CaseSummary, name: &str) -> Option<usize> {
    summary.case.int(name).and_then(|value| usize::try_from(value).ok())
}

/// Median of a figure.
pub(super) fn median(summary: &CaseSummary, figure: &str) -> Option<f64> {
    summary.figure(figure).map(|figure| figure.median)
}

/// The name of a suite's file, and its table; `None` if the study does not have the suite.
pub(super) fn tables(summaries: &[CaseSummary], price: Option<Price>) -> Vec<(&'static str, Table)> {
    let latency = of_suite(summaries, SuiteName::Latency);
    let throughput = of_suite(summaries, SuiteName::Throughput);
    let seqlen = of_suite(summaries, SuiteName::Seqlen);
    [
        ("latency_results.csv", !latency.is_empty(), samples(&latency, price)),
        ("throughput_results.csv", !throughput.is_empty(), by_case(&throughput, true, price)),
        ("sequence_length_results.csv", !seqlen.is_empty(), by_case(&seqlen, false, price)),
    ]
    .into_iter()
    .filter_map(|(name, there, table)| there.then_some((name, table)))
    .collect()
}

/// The table of the suite `throughput`.
pub(crate) fn throughput_table(summaries: &[CaseSummary], price: Option<Price>) -> Table {
    by_case(&of_suite(summaries, SuiteName::Throughput), true, price)
}

/// The table with the cost of tokens at each row's rate, where the machine has a price.
fn with_cost(table: Table, price: Option<Price>, rates: impl Iterator<Item = Option<f64>>) -> Table {
    match price {
        Some(price) => table.column(COST, Column::Float(rates.map(|rate| price.per_million(rate?)).collect())),
        None => table,
    }
}

/// One row for each request.
fn samples(summaries: &[&CaseSummary], price: Option<Price>) -> Table {
    let all: Vec<(&CaseSummary, &Sample, bool)> = summaries
        .iter()
        .flat_map(|summary| {
            let plain = summary.plain.iter().map(move |sample| (*summary, sample, false));
            plain.chain(summary.profiled.iter().map(move |sample| (*summary, sample, true)))
        })
        .collect();
    let ms = |name: &str| {
        Column::Float(all.iter().map(|(_, s, _)| s.measurement.figures.get(name).map(|ns| ns / 1e6)).collect())
    };
    let plain =
        |name: &str| Column::Float(all.iter().map(|(_, s, _)| s.measurement.figures.get(name).copied()).collect());
    let table = Table::default()
        .column("process", Column::Int(all.iter().map(|(_, s, _)| Some(s.process.into())).collect()))
        .column("repetition", Column::Int(all.iter().map(|(_, s, _)| Some(s.repetition.into())).collect()))
        .column("profiled", Column::Bool(all.iter().map(|(_, _, profiled)| Some(*profiled)).collect()))
        .column("prompt_tokens", Column::Int(all.iter().map(|(c, _, _)| prompt_tokens(c).map(|n| n as i64)).collect()))
        .column("output_tokens", Column::Int(all.iter().map(|(c, _, _)| c.case.int("output_tokens")).collect()))
        .column("ttft_ms", ms("ttft_ns"))
        .column("tpot_ms", ms("tpot_ns"))
        .column("itl_median_ms", ms("itl_median_ns"))
        .column("itl_max_ms", ms("itl_max_ns"))
        .column("e2e_ms", Column::Float(all.iter().map(|(_, s, _)| Some(s.measurement.host_ns as f64 / 1e6)).collect()))
        .column("prefill_tps", plain("prefill_tps"))
        .column("decode_tps", plain("decode_tps"))
        .column("output_tps", plain("output_tps"));
    with_cost(table, price, all.iter().map(|(_, s, _)| s.measurement.figures.get("output_tps").copied()))
}

/// One row for each case, with medians and their intervals.
fn by_case(summaries: &[&CaseSummary], speedup: bool, price: Option<Price>) -> Table {
    let ints = |of: &dyn Fn(&CaseSummary) -> Option<i64>| Column::Int(summaries.iter().map(|s| of(s)).collect());
    let floats = |of: &dyn Fn(&CaseSummary) -> Option<f64>| Column::Float(summaries.iter().map(|s| of(s)).collect());
    let texts = |of: &dyn Fn(&CaseSummary) -> Option<String>| Column::Text(summaries.iter().map(|s| of(s)).collect());
    let mut table = Table::default()
        .column("batch", ints(&|s| s.case.int("batch")))
        .column("prompt_tokens", ints(&|s| s.case.int("prompt_tokens")))
        .column("output_tokens", ints(&|s| s.case.int("output_tokens")))
        .column("samples", ints(&|s| Some(s.plain.len() as i64)))
        .column("processes", ints(&|s| Some(s.processes as i64)));
    for (name, figure, per) in [
        ("output_tps", "output_tps", 1.0),
        ("decode_tps", "decode_tps", 1.0),
        ("prefill_tps", "prefill_tps", 1.0),
        ("ttft_ms", "ttft_ns", 1e-6),
        ("tpot_ms", "tpot_ns", 1e-6),
    ] {
        table = with_interval(table, name, &|s| s.figure(figure).map(|d| d.scaled(per)), summaries);
    }
    table = with_interval(table, "e2e_ms", &|s| s.host_ns().map(|d| d.scaled(1e-6)), summaries);
    if speedup {
        let first = summaries.iter().copied().find(|s| median(s, "output_tps").is_some());
        let gain = |s: &CaseSummary| throughput_gain(first?, s);
        let per_row = |s: &CaseSummary| Some(size(first?, "batch")? as f64 / size(s, "batch")? as f64);
        table = table
            .column("speedup", floats(&|s| Some(gain(s)?.ratio)))
            .column("speedup_low", floats(&|s| Some(gain(s)?.ci95?.0)))
            .column("speedup_high", floats(&|s| Some(gain(s)?.ci95?.1)))
            .column("efficiency", floats(&|s| Some(gain(s)?.ratio * per_row(s)?)));
    }
    let table = table
        .column("memory_bytes", ints(&|s| s.memory_bytes().map(|d| d.max as i64)))
        .column(metric::CPU_RATIO, floats(&CaseSummary::processors_used))
        .column(metric::GPU_UTILIZATION, floats(&|s| s.gpu_utilization().map(|d| d.median)))
        .column("recording_cost", floats(&CaseSummary::recording_cost))
        .column("outcome", texts(&|s| Some(s.outcome().map_or("ok", |reason| reason.as_str()).to_string())))
        .column("stop_reasons", texts(&|s| Some(stop_reasons(s))))
        .column("detail", texts(&|s| s.detail.clone()));
    with_cost(table, price, summaries.iter().map(|s| median(s, "output_tps")))
}

/// Tokens a second of one case over those of another: of each process start that measured both, as starts differ more
/// than batches may; of starts that have only one of them, the ratio of the medians. An interval is over starts: that
/// of a single one says nothing about another, and is a range of it.
pub(super) fn throughput_gain(from: &CaseSummary, to: &CaseSummary) -> Option<Speedup> {
    let tps = |sample: &Sample| sample.measurement.figures.get("output_tps").copied();
    // A ratio of rates: the larger one is above.
    let paired = ratio(to, from, &tps).map(|gain| match gain.interval_of {
        IntervalOf::Processes => gain,
        IntervalOf::OneProcess => Speedup { range: gain.ci95.or(gain.range), ci95: None, ..gain },
    });
    paired.or_else(|| {
        let ratio = median(to, "output_tps")? / median(from, "output_tps")?;
        Some(Speedup { ratio, ci95: None, range: None, interval_of: IntervalOf::Processes, processes: 0 })
    })
}

fn with_interval(
    table: Table,
    name: &str,
    of: &dyn Fn(&CaseSummary) -> Option<Distribution>,
    summaries: &[&CaseSummary],
) -> Table {
    let all: Vec<Option<Distribution>> = summaries.iter().map(|s| of(s)).collect();
    let column = |pick: &dyn Fn(&Distribution) -> Option<f64>| {
        Column::Float(all.iter().map(|d| d.as_ref().and_then(pick)).collect())
    };
    table
        .column(name, column(&|d| Some(d.median)))
        .column(format!("{name}_low"), column(&|d| d.median_ci95.map(|(low, _)| low)))
        .column(format!("{name}_high"), column(&|d| d.median_ci95.map(|(_, high)| high)))
}

/// The different reasons, each once: `interval_narrow+time_limit`.
pub(super) fn stop_reasons(summary: &CaseSummary) -> String {
    let mut reasons: Vec<&str> = summary.stops.iter().map(|reason| reason.as_str()).collect();
    reasons.sort_unstable();
    reasons.dedup();
    reasons.join("+")
}
