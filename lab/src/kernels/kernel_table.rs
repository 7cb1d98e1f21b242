//! `kernels.csv` and `kernels.json`: a row for each case.

use super::list::KernelCase;
use super::recording::kernel_times;
use super::run::{RunOptions, case_id};
use crate::method::CaseId;
use crate::study::{CaseSummary, Column, Records, Study, StudyError, Table, summaries};
use candlescope_document::Document;
use candlescope_work::devices::{LeastTime, Peak, Roof};
use serde_json::json;

/// Name of the table's files, without their extensions.
pub const TABLE_NAME: &str = "kernels";

/// What `clock` says of times between two marks in the device's stream: gaps in which the device waited for the host to
/// launch the next kernel of an operation are in them.
pub const STREAM_ELAPSED: &str = "stream elapsed";

/// The table of these cases over what was measured.
///
/// Statistics are over plain samples, between marks in the device's stream where it has one, else on the host's clock
/// (`clock` says which). `kernel_ns` is the median of the sum of a repetition's kernels by CUPTI, over recorded
/// repetitions: without gaps. FLOPs, bytes and memory are derived from the shape.
pub fn table(cases: &[KernelCase], options: &RunOptions, study: &Study, records: &Records, roof: &Roof) -> Table {
    let ids: Vec<CaseId> = cases.iter().map(|case| case_id(case, options)).collect();
    let rows: Vec<Row<'_>> = cases
        .iter()
        .zip(summaries(&ids, records))
        .map(|(case, summary)| Row::new(case, summary, study, roof))
        .collect();
    let text = |f: &dyn Fn(&Row<'_>) -> Option<String>| Column::Text(rows.iter().map(f).collect());
    let int = |f: &dyn Fn(&Row<'_>) -> Option<u64>| {
        Column::Int(rows.iter().map(|row| f(row).map(|value| i64::try_from(value).unwrap_or(i64::MAX))).collect())
    };
    let number = |f: &dyn Fn(&Row<'_>) -> Option<f64>| Column::Float(rows.iter().map(f).collect());
    let time = |f: &dyn Fn(&candlescope_figures::Distribution) -> Option<f64>| {
        Column::Float(rows.iter().map(|row| row.time.as_ref().and_then(f)).collect())
    };
    let limit = |f: &dyn Fn(&Peak) -> &str| text(&|row| row.least.map(|least| f(least.limit).to_string()));
    Table::default()
        .column("op", text(&|row| Some(row.case.kernel.name().to_string())))
        .column("dtype", text(&|row| Some(row.case.element.to_string())))
        .column("shape", text(&|row| Some(row.case.shape.to_string())))
        .column("cache", text(&|row| row.summary.case.get("cache").map(ToString::to_string)))
        .column("n", int(&|row| row.time.as_ref().map(|time| time.n as u64)))
        .column("processes", int(&|row| Some(row.summary.processes as u64)))
        .column("clock", text(&|row| row.time.as_ref().map(|_| row.clock.to_string())))
        .column("median_ns", time(&|d| Some(d.median)))
        .column("median_low_ns", time(&|d| d.median_ci95.map(|(low, _)| low)))
        .column("median_high_ns", time(&|d| d.median_ci95.map(|(_, high)| high)))
        .column("mean_ns", time(&|d| Some(d.mean)))
        .column("stddev_ns", time(&|d| d.stddev))
        .column("min_ns", time(&|d| Some(d.min)))
        .column("max_ns", time(&|d| Some(d.max)))
        .column("host_ns", number(&|row| row.summary.host_ns().map(|d| d.median)))
        .column("kernel_ns", number(&|row| row.recorded.kernel_ns))
        .column("kernels", number(&|row| row.recorded.kernels))
        .column("memory_bytes", int(&|row| Some(row.case.work.memory_bytes)))
        .column("flops", int(&|row| row.case.work.flops))
        .column("io_bytes", int(&|row| Some(row.case.work.io_bytes)))
        .column("flops_per_s", number(&|row| Some(row.case.work.flops? as f64 / row.seconds()?)))
        .column("bytes_per_s", number(&|row| Some(row.case.work.io_bytes as f64 / row.seconds()?)))
        .column("intensity", number(&|row| Some(row.case.work.flops? as f64 / row.case.work.io_bytes.max(1) as f64)))
        .column("attainable_flops_per_s", number(&|row| Some(row.case.work.flops? as f64 / row.least?.seconds)))
        .column("utilisation", number(&|row| Some(row.least?.seconds / row.seconds()?)))
        .column("roof", limit(&|peak| if peak.is_flops() { "compute" } else { "memory" }))
        .column("peak_label", limit(&|peak| &peak.label))
        .column("peak_source", limit(&|peak| &peak.source))
        .column("stop_reason", text(&|row| row.summary.stops.last().map(|reason| reason.as_str().to_string())))
        .column("detail", text(&|row| row.summary.detail.clone()))
}

/// Writes `kernels.csv`, `kernels.json`, the charts and `report.html` into the study, and returns what that shows.
///
/// # Errors
/// A file cannot be written.
pub fn write(study: &Study, table: &Table) -> Result<Document, StudyError> {
    study.write(&format!("{TABLE_NAME}.csv"), table.csv().as_bytes())?;
    let whole = json!({ "format": "candlescope-kernels", "format_version": 1, "rows": table.json() });
    study.write(&format!("{TABLE_NAME}.json"), format!("{whole:#}\n").as_bytes())?;
    super::page::write(study, table)
}

struct Row<'a> {
    case: &'a KernelCase,
    summary: CaseSummary,
    clock: &'static str,
    time: Option<candlescope_figures::Distribution>,
    recorded: super::recording::KernelTimes,
    /// What its work takes at least, where time and peaks are known.
    least: Option<LeastTime<'a>>,
}

impl<'a> Row<'a> {
    fn new(case: &'a KernelCase, summary: CaseSummary, study: &Study, roof: &'a Roof) -> Self {
        let (clock, time) = match summary.device_ns() {
            Some(time) => (STREAM_ELAPSED, Some(time)),
            None => ("host", summary.host_ns()),
        };
        // A run that cannot be read tells nothing; what was measured without it stays.
        let recorded = summary.last_run().and_then(|run| kernel_times(&study.dir().join(run)).ok()).unwrap_or_default();
        let mut row = Self { case, summary, clock, time, recorded, least: None };
        // Quantised weights are multiplied in a type of their own, of which there is no peak.
        let (flops, bytes) = (case.work.flops.map(|flops| flops as f64), case.work.io_bytes.max(1) as f64);
        row.least = row.seconds().and_then(|_| roof.least_time(flops, bytes, Some(case.element.name())));
        row
    }

    /// Median time.
    fn seconds(&self) -> Option<f64> {
        self.time.as_ref().map(|time| time.median / 1e9).filter(|seconds| *seconds > 0.0)
    }
}
