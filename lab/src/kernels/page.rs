//! `report.html` and the charts of a study of kernels, without anything from outside.

use crate::peaks::shown;
use crate::study::pages::{charts, method};
use crate::study::{self, Chart, Line, Manifest, Point, Study, StudyError};
use candlescope_core::beside_run::REPORT_PAGE;
use candlescope_document::{Document, Picture, Section, Table, html};
use candlescope_work::devices::PeakKind;
use serde_json::Value;
use std::collections::BTreeSet;

const HEADS: [&str; 9] = [
    "kernel",
    "dtype",
    "shape",
    "time",
    "interval",
    "FLOP/s",
    "B/s",
    "share of the roof",
    "which roof, or what went wrong",
];

/// Writes the charts and the page, and returns what it shows.
pub(super) fn write(study: &Study, table: &study::Table) -> Result<Document, StudyError> {
    let rows = table.json();
    let mut drawn = Vec::new();
    for chart in [against_roof(&rows), against_size(&rows)] {
        drawn.extend(study.write_chart(&chart)?);
    }
    let document = document(study.manifest(), &rows, &drawn);
    study.write(REPORT_PAGE, html::page(&document).as_bytes())?;
    Ok(document)
}

fn number(row: &Value, key: &str) -> Option<f64> {
    row[key].as_f64().filter(|value| value.is_finite() && *value > 0.0)
}

/// A set of points for each dtype: where a row is along the axis, and its value.
fn by_dtype(rows: &[Value], name: &str, connected: bool, of: impl Fn(&Value) -> Option<(f64, f64)>) -> Vec<Line> {
    let dtypes: BTreeSet<&str> = rows.iter().filter_map(|row| row["dtype"].as_str()).collect();
    let line = |dtype: &str| {
        let of_dtype = rows.iter().filter(|row| row["dtype"] == dtype);
        let mut points: Vec<Point> = of_dtype.filter_map(&of).map(|(x, y)| Point { x, y, spread: None }).collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        Line { name: format!("{dtype}, {name}"), points, connected }
    };
    dtypes.into_iter().map(line).filter(|line| !line.points.is_empty()).collect()
}

/// What was reached beside what the peaks allow, over FLOPs a byte.
fn against_roof(rows: &[Value]) -> Chart {
    let at = |key: &'static str| move |row: &Value| Some((number(row, "intensity")?, number(row, key)?));
    let mut lines = by_dtype(rows, "reached", false, at("flops_per_s"));
    lines.extend(by_dtype(rows, "allowed by the peaks", true, at("attainable_flops_per_s")));
    let (x, y) = ("FLOPs a byte (derived)".to_string(), "FLOP/s".to_string());
    Chart { file: "roof".into(), title: "Kernels against their roof".into(), x, y, log: true, x_label: None, lines }
}

/// Bytes a second over the bytes that a kernel has to move, also of those without FLOPs.
fn against_size(rows: &[Value]) -> Chart {
    let of = |row: &Value| Some((number(row, "io_bytes")?, number(row, "bytes_per_s")?));
    let lines = by_dtype(rows, "reached", false, of);
    let (x, y) = ("bytes read and written (derived)".to_string(), "B/s".to_string());
    Chart { file: "bandwidth".into(), title: "Bytes a second by size".into(), x, y, log: true, x_label: None, lines }
}

fn cells(row: &Value) -> Vec<String> {
    let text = |key: &str| row[key].as_str().unwrap_or_default().to_string();
    let dash = || "–".to_string();
    let time = |key: &str| number(row, key).map(|ns| shown(PeakKind::Launch, ns / 1e9));
    let ends = |low: &str, high: &str| Some(format!("{} to {}", time(low)?, time(high)?));
    let rate = |key: &str, kind: PeakKind| number(row, key).map_or_else(dash, |rate| shown(kind, rate));
    let share = number(row, "utilisation").map_or_else(dash, |share| format!("{:.0} %", share * 100.0));
    let why = match number(row, "median_ns") {
        Some(_) if row["roof"].is_string() => format!("{}, {}", text("roof"), text("peak_label")),
        Some(_) => "no peak to hold it against".to_string(),
        None => format!("{} {}", text("stop_reason").replace('_', " "), text("detail")).trim().to_string(),
    };
    vec![
        text("op"),
        text("dtype"),
        text("shape"),
        time("median_ns").unwrap_or_else(dash),
        ends("median_low_ns", "median_high_ns").or_else(|| ends("min_ns", "max_ns")).unwrap_or_else(dash),
        rate("flops_per_s", PeakKind::Flops),
        rate("bytes_per_s", PeakKind::Read),
        share,
        why,
    ]
}

/// What the page shows.
fn document(manifest: &Manifest, rows: &[Value], drawn: &[Picture]) -> Document {
    let is = |name: &str| rows.iter().any(|row| row["cache"] == name);
    let cache = match (is("flushed"), is("warm")) {
        (true, false) => "Before each repetition the caches were written over.",
        (false, true) => "Caches were left as the repetition before left them.",
        _ => "",
    };
    let no_roofs = match rows.iter().any(|row| row["utilisation"].is_number()) {
        true => "",
        false => " There are no peaks to hold these figures against: `candlescope bench peaks` measures them.",
    };
    let note = format!(
        "Medians, with the 95 % interval of the median or, of few samples, their range. FLOPs and bytes are derived from the \
         shape. The share of the roof is what was reached of what the peaks allow at the kernel's FLOPs a byte.{no_roofs} All \
         figures are in kernels.csv and kernels.json, every sample in results.parquet."
    );
    let device =
        manifest.environment.get("device").and_then(|device| device["name"].as_str()).unwrap_or("an unknown device");
    let table = Table::of_texts(&HEADS, rows.iter().map(cells).collect());
    let mut table = table.words(&["dtype", "shape", HEADS[8]]);
    table.columns.iter_mut().for_each(|column| column.long = column.name == HEADS[8]);
    Document {
        title: format!("{} on {device}", manifest.study),
        sections: vec![
            charts(drawn),
            Section::new("kernels", "Kernels", note).with(table),
            method(manifest, vec![cache.to_string()], &manifest.disturbances),
        ],
        ..Document::default()
    }
}
