//! The table of a study: one row for each sample, and one for each case that gave none.

use super::StudyError;
use super::journal::Records;
use super::manifest::Manifest;
use super::table::{Column, Table};
use crate::method::{CaseEnd, CaseId, Mode, ParamValue, Sample, StopReason};
use std::collections::{BTreeSet, HashMap};

/// Columns that every study has. Parameters stand behind `suite`, further figures of a suite at the end.
pub const FIXED_COLUMNS: [&str; 20] = [
    "study",
    "case",
    "suite",
    "repetition",
    "profiled",
    "host_ns",
    "device_ns",
    "cycles",
    "clock_mhz",
    "throttled",
    "energy_mj",
    "memory_bytes",
    "stop_reason",
    "verdict",
    "run",
    "process",
    "temperature_c",
    "ended_ns",
    "round",
    "detail",
];

/// A sample, or how a case ended that gave none.
enum Row<'a> {
    Sample(&'a Sample, Option<&'a CaseEnd>),
    None(&'a CaseEnd),
}

impl Row<'_> {
    fn case(&self) -> &CaseId {
        match self {
            Self::Sample(sample, _) => &sample.case,
            Self::None(stopped) => &stopped.case,
        }
    }

    fn sample(&self) -> Option<&Sample> {
        match self {
            Self::Sample(sample, _) => Some(sample),
            Self::None(_) => None,
        }
    }

    fn stopped(&self) -> Option<&CaseEnd> {
        match self {
            Self::Sample(_, stopped) => *stopped,
            Self::None(stopped) => Some(stopped),
        }
    }
}

/// The table of a study.
///
/// # Errors
/// When a parameter or a figure has the name of another column.
pub fn table(manifest: &Manifest, records: &Records) -> Result<Table, StudyError> {
    let rows = rows(records);
    let text = |of: &dyn Fn(&Row<'_>) -> Option<String>| Column::Text(rows.iter().map(of).collect());
    let sampled =
        |of: &dyn Fn(&Sample) -> Option<i64>| Column::Int(rows.iter().map(|row| row.sample().and_then(of)).collect());
    let number =
        |of: &dyn Fn(&Sample) -> Option<f64>| Column::Float(rows.iter().map(|row| row.sample().and_then(of)).collect());
    let whole = |value: u64| i64::try_from(value).ok();
    let mut table = Table::default()
        .column("study", text(&|_| Some(manifest.study.clone())))
        .column("case", text(&|row| Some(row.case().key())))
        .column("suite", text(&|row| Some(row.case().suite().to_string())));
    let mut names: BTreeSet<&str> = FIXED_COLUMNS.into();
    let params = params(manifest, &rows);
    for name in &params {
        if !names.insert(name) {
            return Err(StudyError::Twice(format!("the column {name} stands in the table")));
        }
        table = table.column(name.clone(), param(name, &rows));
    }
    let table = table
        .column("repetition", sampled(&|sample| Some(sample.repetition.into())))
        .column(
            "profiled",
            Column::Bool(rows.iter().map(|row| row.sample().map(|s| s.mode == Mode::Profiled)).collect()),
        )
        .column("host_ns", sampled(&|sample| whole(sample.measurement.host_ns)))
        .column("device_ns", sampled(&|sample| sample.measurement.device_ns.and_then(whole)))
        .column("cycles", sampled(&|sample| sample.measurement.cycles.and_then(whole)))
        .column("clock_mhz", number(&|sample| sample.reading.clock_mhz))
        .column("throttled", Column::Bool(rows.iter().map(|row| row.sample()?.reading.throttled).collect()))
        .column("energy_mj", number(&|sample| sample.measurement.energy_mj))
        .column("memory_bytes", sampled(&|sample| sample.measurement.memory_bytes.and_then(whole)))
        .column("stop_reason", text(&|row| row.stopped().map(|stopped| stopped.reason.as_str().to_string())))
        .column("verdict", text(&|row| Some(verdict(row).to_string())))
        .column("run", text(&|row| row.sample()?.measurement.run.clone()))
        .column("process", Column::Int(rows.iter().map(process).collect()))
        .column("temperature_c", number(&|sample| sample.reading.temperature_c))
        .column("ended_ns", sampled(&|sample| Some(sample.ended_ns)))
        .column("round", Column::Int(rows.iter().map(|row| row.stopped().map(|s| s.round.into())).collect()))
        .column("detail", text(&|row| row.stopped()?.detail.clone()));
    let figures: BTreeSet<&str> =
        records.samples.iter().flat_map(|s| s.measurement.figures.keys()).map(String::as_str).collect();
    figures.into_iter().try_fold(table, |table, name| {
        if !names.insert(name) {
            return Err(StudyError::Twice(format!("the column {name} stands in the table")));
        }
        Ok(table.column(name, number(&|sample| sample.measurement.figures.get(name).copied())))
    })
}

/// Samples in the order of the journal, then cases that gave none.
fn rows(records: &Records) -> Vec<Row<'_>> {
    let mut ends: HashMap<(u32, bool, String), &CaseEnd> = HashMap::new();
    for stopped in &records.stopped {
        ends.insert((stopped.process, stopped.profiled, stopped.case.key()), stopped);
    }
    let end = |sample: &Sample| {
        let key = sample.case.key();
        let of = |profiled| ends.get(&(sample.process, profiled, key.clone())).copied();
        // Where plain and recorded repetitions were taken in one go, there is one end for both.
        of(sample.mode == Mode::Profiled).or_else(|| of(true)).or_else(|| of(false))
    };
    let sampled: BTreeSet<(u32, String)> = records.samples.iter().map(|s| (s.process, s.case.key())).collect();
    let without = records.stopped.iter().filter(|stopped| {
        stopped.reason != StopReason::Cancelled && !sampled.contains(&(stopped.process, stopped.case.key()))
    });
    let samples = records.samples.iter().map(|sample| Row::Sample(sample, end(sample)));
    samples.chain(without.map(Row::None)).collect()
}

fn process(row: &Row<'_>) -> Option<i64> {
    Some(match row {
        Row::Sample(sample, _) => sample.process.into(),
        Row::None(stopped) => stopped.process.into(),
    })
}

/// Whether the row counts: the sample's own word, or that of the end of a case that gave none.
fn verdict<'a>(row: &Row<'a>) -> &'a str {
    match row {
        Row::Sample(sample, _) => sample.verdict.as_str(),
        Row::None(stopped) => stopped.reason.as_str(),
    }
}

/// Names of all parameters, in the order in which cases have them.
fn params(manifest: &Manifest, rows: &[Row<'_>]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for case in manifest.cases.iter().chain(rows.iter().map(Row::case)) {
        for (name, _) in case.params() {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
    }
    names
}

/// A parameter's column: of its type where all cases agree, of numbers where all are numbers, else of words.
fn param(name: &str, rows: &[Row<'_>]) -> Column {
    let values: Vec<Option<&ParamValue>> = rows.iter().map(|row| row.case().get(name)).collect();
    let all = |is: fn(&ParamValue) -> bool| values.iter().flatten().all(|value| is(value));
    let float = |value: &ParamValue| match value {
        ParamValue::Int(value) => Some(*value as f64),
        ParamValue::Float(value) => Some(*value),
        _ => None,
    };
    if all(|value| matches!(value, ParamValue::Int(_))) {
        let int = |value: &ParamValue| if let ParamValue::Int(value) = value { Some(*value) } else { None };
        Column::Int(values.iter().map(|value| value.and_then(int)).collect())
    } else if all(|value| matches!(value, ParamValue::Int(_) | ParamValue::Float(_))) {
        Column::Float(values.iter().map(|value| value.and_then(float)).collect())
    } else if all(|value| matches!(value, ParamValue::Bool(_))) {
        let is = |value: &ParamValue| if let ParamValue::Bool(value) = value { Some(*value) } else { None };
        Column::Bool(values.iter().map(|value| value.and_then(is)).collect())
    } else {
        Column::Text(values.iter().map(|value| value.map(ToString::to_string)).collect())
    }
}
