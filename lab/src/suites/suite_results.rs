//! Writes the files of a study of the suites.

use super::answers::answers;
use super::cost::price;
use super::metrics::baseline_metrics;
use super::report_page::document;
use super::suite_charts::charts;
use super::suite_tables::tables;
use crate::study::{CaseSummary, Records, Study, StudyError, summaries};
use candlescope_core::beside_run::REPORT_PAGE;
use candlescope_document::{Document, html};

/// Name of the file with a study's figures.
pub const METRICS_FILE: &str = "baseline_metrics.json";

/// Writes each suite's table, `baseline_metrics.json`, the charts and `report.html` of a finished study. Returns the
/// cases' summaries and what `report.html` shows.
///
/// # Errors
/// When a file cannot be written.
pub fn write_results(study: &Study, records: &Records) -> Result<(Vec<CaseSummary>, Document), StudyError> {
    let summaries = summaries(&study.manifest().cases, records);
    for (name, table) in tables(&summaries, price(study.manifest())) {
        study.write(name, table.csv().as_bytes())?;
    }
    let answers = answers(study.dir(), &summaries);
    let metrics = baseline_metrics(study.manifest(), &summaries, &answers);
    let text = serde_json::to_string_pretty(&metrics).unwrap_or_default();
    study.write(METRICS_FILE, text.as_bytes())?;
    let mut drawn = Vec::new();
    for chart in charts(&summaries) {
        drawn.extend(study.write_chart(&chart)?);
    }
    let document = document(study.manifest(), &summaries, &answers, &drawn, records);
    study.write(REPORT_PAGE, html::page(&document).as_bytes())?;
    Ok((summaries, document))
}
