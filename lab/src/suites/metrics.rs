//! `baseline_metrics.json`: a study's figures, grouped by whom they concern.

use super::answers::Answer;
use super::cost::cost_json;
use super::lm_options::SuiteName;
use super::spread::caution;
use super::suite_tables::{median, of_suite, size};
use crate::method::{ENERGY_LEAST as LEAST, StopReason};
use crate::study::{CaseSummary, IntervalOf, Manifest};
use candlescope_core::run::model_key;
use candlescope_figures::stats::Distribution;
use serde_json::{Value, json};

/// The object of `baseline_metrics.json`. What is not known is null, with the reason beside it where there is one.
pub fn baseline_metrics(manifest: &Manifest, summaries: &[CaseSummary], answers: &[Answer]) -> Value {
    json!({
        "study": manifest.study,
        "state": manifest.state,
        "model": manifest.model,
        "machine": manifest.fingerprint().machine_name(),
        "processes": manifest.method.processes,
        "interval": "95 % interval of the median, over process starts where there are six or more of them",
        "user_experience": user_experience(summaries),
        "capacity": capacity(summaries),
        "efficiency": efficiency(manifest, summaries),
        "reliability": reliability(summaries),
        "caution": caution(summaries),
        "answers": answers.iter().map(Answer::json).collect::<Vec<_>>(),
    })
}

/// A distribution without its samples, which are in `results.parquet`.
pub(crate) fn figure(of: Option<Distribution>, per: f64, interval_of: IntervalOf) -> Value {
    let Some(d) = of.map(|d| d.scaled(per)) else { return Value::Null };
    json!({
        "label": "measured", "median": d.median, "median_ci95": d.median_ci95, "interval_of": interval_of,
        "range": d.range, "p90": d.p90, "p95": d.p95, "p99": d.p99, "min": d.min, "max": d.max, "mean": d.mean,
        "stddev": d.stddev, "n": d.n, "units": d.units,
    })
}

/// The case whose latency is that of one user: of the suite `latency`, else the batch of one, else the first.
fn single<'a>(summaries: &'a [CaseSummary]) -> Option<&'a CaseSummary> {
    let measured = |case: &&'a CaseSummary| !case.plain.is_empty();
    let latency = of_suite(summaries, SuiteName::Latency).into_iter().find(measured);
    let one = || summaries.iter().filter(measured).find(|case| size(case, "batch") == Some(1));
    latency.or_else(one).or_else(|| summaries.iter().find(measured))
}

fn user_experience(summaries: &[CaseSummary]) -> Value {
    let Some(case) = single(summaries) else { return Value::Null };
    let of = case.interval_of();
    json!({
        "case": case.case.key(),
        "ttft_ms": figure(case.figure("ttft_ns"), 1e-6, of),
        "tpot_ms": figure(case.figure("tpot_ns"), 1e-6, of),
        "itl_median_ms": figure(case.figure("itl_median_ns"), 1e-6, of),
        "itl_max_ms": figure(case.figure("itl_max_ns"), 1e-6, of),
        "e2e_ms": figure(case.host_ns(), 1e-6, of),
    })
}

fn capacity(summaries: &[CaseSummary]) -> Value {
    let batches = of_suite(summaries, SuiteName::Throughput);
    let best =
        batches.iter().filter_map(|case| Some((median(case, "output_tps")?, case))).max_by(|a, b| a.0.total_cmp(&b.0));
    let largest = batches.iter().filter(|case| !case.plain.is_empty()).filter_map(|case| size(case, "batch")).max();
    let over = batches.iter().find(|case| case.outcome().is_some());
    json!({
        "single_stream_tps": single(summaries).map(|case| figure(case.figure("output_tps"), 1.0, case.interval_of())),
        "best_throughput_tps": best.map(|(_, case)| figure(case.figure("output_tps"), 1.0, case.interval_of())),
        "best_batch": best.and_then(|(_, case)| size(case, "batch")),
        "largest_batch_measured": largest,
        "first_batch_without_figures": over.and_then(|case| size(case, "batch")),
        "why": over.and_then(|case| case.detail.clone()),
    })
}

fn efficiency(manifest: &Manifest, summaries: &[CaseSummary]) -> Value {
    let memory = summaries.iter().filter_map(|case| case.memory_bytes().map(|d| d.max)).reduce(f64::max);
    let costs: Vec<Value> = summaries
        .iter()
        .filter_map(|case| {
            let (cost, range) = (case.recording_cost()?, case.recording_cost_range());
            Some(json!({ "case": case.case.key(), "recorded_over_plain": cost, "range": range }))
        })
        .collect();
    let energy = single(summaries).and_then(|case| case.plain(|sample| sample.measurement.energy_mj));
    json!({
        "weight_bytes": model_key::WEIGHT_BYTES.raw(&manifest.model),
        "peak_memory_bytes": memory,
        "peak_memory_of": memory.map(|_| match manifest.is_on_gpu() {
            true => "high-water mark of the device memory that candle allocates, weights included",
            false => "resident set of the process (VmHWM)",
        }),
        "energy_mj": figure(energy.clone(), 1.0, IntervalOf::OneProcess),
        "energy_absent": energy.is_none().then(|| energy_absent(manifest, summaries)),
        "recording_cost": costs,
        "cost": cost_json(manifest, summaries),
    })
}

/// Why a single request has no energy.
fn energy_absent(manifest: &Manifest, summaries: &[CaseSummary]) -> String {
    let short = |case: &CaseSummary| case.plain.iter().all(|s| u128::from(s.measurement.host_ns) < LEAST.as_nanos());
    match single(summaries) {
        Some(case) if manifest.is_on_gpu() && short(case) => {
            format!(
                "a request takes less than the {} s from which on the GPU's counter tells its energy",
                LEAST.as_secs()
            )
        }
        _ => "no sensor was read beside these requests".to_string(),
    }
}

fn reliability(summaries: &[CaseSummary]) -> Value {
    let with = |reason: StopReason| summaries.iter().filter(|case| case.outcome() == Some(reason)).count();
    let spread = |p: fn(&Distribution) -> Option<f64>| {
        let e2e = single(summaries)?.host_ns()?;
        Some(p(&e2e)? / e2e.median)
    };
    json!({
        "cases": summaries.len(),
        "measured": summaries.iter().filter(|case| !case.plain.is_empty()).count(),
        "samples": summaries.iter().map(|case| case.plain.len()).sum::<usize>(),
        "failed": with(StopReason::Failed),
        "out_of_memory": with(StopReason::OutOfMemory),
        "refused": with(StopReason::Refused),
        "taken_again": summaries.iter().map(|case| case.retaken).sum::<usize>(),
        "e2e_p99_over_p50": spread(|d| d.p99),
        "e2e_p95_over_p50": spread(|d| d.p95),
        "e2e_max_over_p50": spread(|d| Some(d.max)),
    })
}
