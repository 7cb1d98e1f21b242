//! The files of a study of variants.

use super::closing::{VariantFacts, VariantsSummary};
use super::recorded_requests::section;
use super::report::document;
use super::row::{VariantRow, rows};
use super::variant::Group;
use super::variant_options::VariantOptions;
use crate::study::{Bar, Bars, Column, Panel, Records, Speedup, Study, StudyError, Table};
use crate::suites::{figure, ms};
use candlescope_core::beside_run::REPORT_PAGE;
use candlescope_document::{Document, html, markdown};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Where what was measured once of each variant is kept.
pub const CLOSING_FILE: &str = "quality_results.json";

/// Reads what was measured once of each variant; `None` if it was not yet.
///
/// # Errors
/// When the file is damaged.
pub fn read_closing(study: &Study) -> std::io::Result<Option<VariantsSummary>> {
    let path = study.dir().join(CLOSING_FILE);
    match candlescope_core::files::read_text_limited(&path, 256 << 20) {
        Ok(text) => serde_json::from_str(&text).map(Some).map_err(std::io::Error::other),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes the results of a study: the groups' JSON files, `variants.csv`, the chart, `profiling_report.md`, which names
/// the files of `traces`, and the same as `report.html`. Returns the rows and what both show.
///
/// # Errors
/// When a file cannot be written.
pub fn write_variants(
    study: &Study,
    options: &VariantOptions,
    records: &Records,
    closing: Option<&VariantsSummary>,
    traces: &[PathBuf],
) -> Result<(Vec<VariantRow>, Document), StudyError> {
    let rows = rows(options, records, closing);
    for (group, file) in [
        (Group::Baseline, "baseline_results.json"),
        (Group::Quantization, "quantization_results.json"),
        (Group::Onnx, "onnx_results.json"),
    ] {
        let object = json!({
            "study": study.manifest().study,
            "state": study.manifest().state,
            "model": study.manifest().model,
            "request": { "prompt_tokens": options.prompt_tokens, "output_tokens": options.output_tokens, "batch": 1 },
            "energy": closing.map(|closing| &closing.energy),
            "text": closing.map(text_of),
            "variants": rows.iter().filter(|row| row.variant.group() == group).map(object).collect::<Vec<_>>(),
        });
        study.write(file, serde_json::to_string_pretty(&object).unwrap_or_default().as_bytes())?;
    }
    study.write("variants.csv", table(&rows).csv().as_bytes())?;
    let chart = chart(&rows, options);
    chart.write(study)?;
    let recorded = section(study, &rows);
    let document = document(study.manifest(), options, &rows, closing, recorded, traces, chart.picture());
    study.write("profiling_report.md", markdown::draw(&document).as_bytes())?;
    study.write(REPORT_PAGE, html::page(&document).as_bytes())?;
    Ok((rows, document))
}

fn text_of(closing: &VariantsSummary) -> Value {
    json!({
        "path": closing.text, "tokens": closing.text_tokens, "chunk": closing.chunk, "pieces": closing.pieces,
        "absent": closing.no_quality, "random_weights": closing.random_weights,
    })
}

/// Everything that is known about a variant. What is not known is null, with the reason beside it.
pub fn object(row: &VariantRow) -> Value {
    let of = row.summary.interval_of();
    let closed = row.closed.as_ref();
    json!({
        "variant": row.variant,
        "title": row.variant.title(),
        "absent": row.absent(),
        "outcome": row.summary.outcome().map_or("ok", |reason| reason.as_str()),
        "runs_on": closed.and_then(|closed| closed.runs_on.clone()),
        "latency_ms": figure(row.summary.host_ns(), 1e-6, of),
        "ttft_ms": figure(row.summary.figure("ttft_ns"), 1e-6, of),
        "tpot_ms": figure(row.summary.figure("tpot_ns"), 1e-6, of),
        "output_tps": figure(row.summary.figure("output_tps"), 1.0, of),
        "speedup_over_no_cache": row.over_no_cache,
        "speedup_over_kv_cache": row.over_kv_cache,
        "disk_bytes": closed.and_then(|closed| closed.disk_bytes),
        "weight_bytes": closed.and_then(|closed| closed.weight_bytes),
        "weight_bytes_label": "derived",
        "kv_bytes": closed.and_then(|closed| closed.kv_bytes),
        "resident_growth_bytes": closed.and_then(|closed| closed.resident_growth_bytes),
        "energy_mj": closed.and_then(|closed| closed.energy_mj),
        "quality": closed.and_then(|closed| closed.quality.as_ref()),
        "first_token": closed.and_then(|closed| closed.first_token.as_ref()),
        "layers": closed.map(|closed| &closed.layers),
        "diverges_at_layer": closed.and_then(|closed| closed.diverges_at),
        "quality_absent": closed.and_then(|closed| closed.no_quality.clone()),
    })
}

/// One row for each variant, for a spreadsheet.
pub fn table(rows: &[VariantRow]) -> Table {
    let floats = |of: &dyn Fn(&VariantRow) -> Option<f64>| Column::Float(rows.iter().map(of).collect());
    let texts = |of: &dyn Fn(&VariantRow) -> Option<String>| Column::Text(rows.iter().map(of).collect());
    let ints = |of: &dyn Fn(&VariantFacts) -> Option<u64>| {
        Column::Int(rows.iter().map(|row| row.closed.as_ref().and_then(of).map(|n| n as i64)).collect())
    };
    let latency = |pick: fn(&candlescope_figures::stats::Distribution) -> Option<f64>| {
        floats(&|row| row.summary.host_ns().and_then(|d| pick(&d.scaled(1e-6))))
    };
    let over = |of: fn(&VariantRow) -> Option<&Speedup>, pick: fn(&Speedup) -> Option<f64>| {
        floats(&|row| of(row).and_then(pick))
    };
    let quality = |pick: fn(&super::Quality) -> Option<f64>| {
        floats(&|row| row.closed.as_ref().and_then(|closed| pick(closed.quality.as_ref()?)))
    };
    let base = |row: &VariantRow| row.over_no_cache.as_ref().and_then(|s| s.ci95);
    Table::default()
        .column("variant", texts(&|row| Some(row.variant.name().to_string())))
        .column("samples", Column::Int(rows.iter().map(|row| Some(row.summary.plain.len() as i64)).collect()))
        .column("processes", Column::Int(rows.iter().map(|row| Some(row.summary.processes as i64)).collect()))
        .column("latency_ms", latency(|d| Some(d.median)))
        .column("latency_ms_low", latency(|d| d.median_ci95.map(|ci| ci.0)))
        .column("latency_ms_high", latency(|d| d.median_ci95.map(|ci| ci.1)))
        .column("speedup_over_no_cache", over(|row| row.over_no_cache.as_ref(), |s| Some(s.ratio)))
        .column("speedup_over_no_cache_low", floats(&|row| base(row).map(|ci| ci.0)))
        .column("speedup_over_no_cache_high", floats(&|row| base(row).map(|ci| ci.1)))
        .column("speedup_over_kv_cache", over(|row| row.over_kv_cache.as_ref(), |s| Some(s.ratio)))
        .column("disk_bytes", ints(&|closed| closed.disk_bytes))
        .column("weight_bytes", ints(&|closed| closed.weight_bytes))
        .column("resident_growth_bytes", ints(&|closed| closed.resident_growth_bytes))
        .column("energy_mj", floats(&|row| row.closed.as_ref().and_then(|closed| closed.energy_mj)))
        .column("kl_mean", quality(|q| Some(q.kl.mean.value)))
        .column("kl_mean_error", quality(|q| q.kl.mean.error))
        .column("kl_p99_9", quality(|q| q.kl.p99_9))
        .column("same_top", quality(|q| Some(q.same_top.value)))
        .column("same_top_error", quality(|q| q.same_top.error))
        .column("perplexity_ratio", quality(|q| Some(q.perplexity_ratio.value)))
        .column("perplexity_ratio_error", quality(|q| q.perplexity_ratio.error))
        .column("runs_on", texts(&|row| row.closed.as_ref().and_then(|closed| closed.runs_on.clone())))
        .column("absent", texts(&VariantRow::absent))
        .column("quality_absent", texts(&|row| row.closed.as_ref().and_then(|closed| closed.no_quality.clone())))
}

fn chart(rows: &[VariantRow], options: &VariantOptions) -> Bars {
    let bar = |value: Option<f64>, spread: Option<(f64, f64)>, text: String| match value {
        Some(value) => Bar::Value { value, spread, text },
        None => Bar::Absent,
    };
    let latency = |row: &VariantRow| {
        let time = row.summary.host_ns();
        let spread = time.as_ref().and_then(|d| d.median_ci95.or(d.range.map(|range| (range.low, range.high))));
        let clear = row.over_no_cache.as_ref().filter(|speedup| speedup.is_clear());
        let faster = clear.map_or(String::new(), |s| format!(" ({:.1}x)", s.ratio));
        let median = time.map(|d| d.median);
        bar(median, spread, format!("{}{faster}", ms(median)))
    };
    let size = |row: &VariantRow| {
        let bytes = row.closed.as_ref().and_then(|closed| closed.weight_bytes);
        bar(bytes.map(|bytes| bytes as f64), None, bytes.map(crate::suites::shown).unwrap_or_default())
    };
    let divergence = |row: &VariantRow| {
        let kl = row.closed.as_ref().and_then(|closed| closed.quality.as_ref()).map(|quality| quality.kl.mean);
        let spread = kl.and_then(|kl| kl.error.map(|error| (kl.value - error, kl.value + error)));
        bar(kl.map(|kl| kl.value), spread, kl.map(|kl| format!("{:.4}", kl.value)).unwrap_or_default())
    };
    let panel = |title: String, of: &dyn Fn(&VariantRow) -> Bar| Panel { title, bars: rows.iter().map(of).collect() };
    Bars {
        file: "final_comparison".into(),
        title: format!("Variants of {}", options.model.rsplit('/').next().unwrap_or(&options.model)),
        rows: rows.iter().map(|row| row.variant.title().to_string()).collect(),
        panels: vec![
            panel(format!("latency of {} tokens", options.output_tokens), &latency),
            panel("weights in memory".into(), &size),
            panel("KL divergence, nats".into(), &divergence),
        ],
    }
}
