//! `peaks.csv` and `peaks.json`: what was measured, in a study.

use super::record::Peaks;
use crate::study::{Column, Study, StudyError, Table};
use candlescope_work::devices::PeakKind;
use serde_json::{Value, json};

/// Name of the table's files, without their extensions.
pub const TABLE_NAME: &str = "peaks";

/// One row.
#[derive(Default)]
struct Row {
    kind: String,
    dtype: Option<String>,
    condition: Option<String>,
    value: Option<f64>,
    unit: &'static str,
    at: Option<String>,
    n: Option<i64>,
    range: Option<(f64, f64)>,
    label: Option<&'static str>,
    reason: Option<String>,
}

/// A row for each figure, for the ridge point of each element type, which is derived, and for what is absent, with the
/// reason.
pub fn table(peaks: &Peaks) -> Table {
    let figures = peaks.figures.iter().map(|figure| Row {
        kind: figure.kind.name().to_string(),
        dtype: figure.dtype.clone(),
        condition: figure.condition.map(|condition| condition.name().to_string()),
        value: Some(figure.value),
        unit: figure.kind.unit(),
        at: Some(figure.at.clone()),
        n: Some(figure.n.into()),
        range: Some(figure.range),
        label: Some("measured"),
        reason: None,
    });
    let ridges = peaks.dtypes().into_iter().filter_map(|dtype| {
        let value = Some(peaks.ridge(dtype)?);
        let label = Some("derived");
        Some(Row {
            kind: "ridge".to_string(),
            dtype: Some(dtype.to_string()),
            value,
            unit: "FLOP/B",
            label,
            ..Row::default()
        })
    });
    let absent = peaks.absent.iter().map(|absent| Row {
        kind: absent.kind.name().to_string(),
        dtype: absent.dtype.clone(),
        unit: absent.kind.unit(),
        reason: Some(absent.reason.clone()),
        ..Row::default()
    });
    let rows: Vec<Row> = figures.chain(ridges).chain(absent).collect();
    let text = |f: &dyn Fn(&Row) -> Option<String>| Column::Text(rows.iter().map(f).collect());
    let number = |f: &dyn Fn(&Row) -> Option<f64>| Column::Float(rows.iter().map(f).collect());
    Table::default()
        .column("peak", text(&|row| Some(row.kind.clone())))
        .column("dtype", text(&|row| row.dtype.clone()))
        .column("condition", text(&|row| row.condition.clone()))
        .column("value", number(&|row| row.value))
        .column("unit", text(&|row| Some(row.unit.to_string())))
        .column("at", text(&|row| row.at.clone()))
        .column("n", Column::Int(rows.iter().map(|row| row.n).collect()))
        .column("min", number(&|row| row.range.map(|(min, _)| min)))
        .column("max", number(&|row| row.range.map(|(_, max)| max)))
        .column("label", text(&|row| row.label.map(str::to_string)))
        .column("reason", text(&|row| row.reason.clone()))
}

/// Writes `peaks.csv` and `peaks.json` into the study. The latter is what is kept of the device, with ridge points.
///
/// # Errors
/// A file cannot be written.
pub fn write(study: &Study, peaks: &Peaks) -> Result<(), StudyError> {
    study.write(&format!("{TABLE_NAME}.csv"), table(peaks).csv().as_bytes())?;
    study.write(&format!("{TABLE_NAME}.json"), format!("{:#}\n", to_json(peaks)).as_bytes()).map(drop)
}

/// The peaks as one object, with the day they were measured on and ridge points by element type.
pub fn to_json(peaks: &Peaks) -> Value {
    let ridge = |dtype: &str| Some((dtype.to_string(), json!(peaks.ridge(dtype)?)));
    let ridges: serde_json::Map<String, Value> = peaks.dtypes().into_iter().filter_map(ridge).collect();
    let mut whole = serde_json::to_value(peaks).unwrap_or_default();
    whole["day"] = peaks.day().into();
    whole["ridge"] = ridges.into();
    whole
}

/// A figure as people read it: `665.2 TFLOP/s`, `4.17 TB/s`, `1.5 µs`.
pub fn shown(kind: PeakKind, value: f64) -> String {
    let (scaled, prefix) = match kind.unit() {
        "s" if value < 1e-3 => (value * 1e6, "µ"),
        "s" => (value * 1e3, "m"),
        _ if value >= 1e12 => (value / 1e12, "T"),
        _ => (value / 1e9, "G"),
    };
    let digits = if scaled >= 100.0 {
        0
    } else if scaled >= 10.0 {
        1
    } else {
        2
    };
    format!("{scaled:.digits$} {prefix}{}", kind.unit())
}
