//! Writes the files of a study of the suites.

use super::answers::answers;
use super::cost::price;
use super::metrics::baseline_metrics;
use super::report_page::page;
use super::suite_charts::charts;
use super::suite_tables::tables;
use crate::study::{CaseSummary, Records, Study, StudyError, summaries};
use std::path::PathBuf;

/// Writes each suite's table, `baseline_metrics.json`, the charts and `report.html` of a finished study. Returns the
/// cases' summaries and the files.
///
/// # Errors
/// When a file cannot be written.
pub fn write_results(study: &Study, records: &Records) -> Result<(Vec<CaseSummary>, Vec<PathBuf>), StudyError> {
    let summaries = summaries(&study.manifest().cases, records);
    let mut files = Vec::new();
    for (name, table) in tables(&summaries, price(study.manifest())) {
        files.push(study.write(name, table.csv().as_bytes())?);
    }
    let answers = answers(study.dir(), &summaries);
    let metrics = baseline_metrics(study.manifest(), &summaries, &answers);
    let text = serde_json::to_string_pretty(&metrics).unwrap_or_default();
    files.push(study.write("baseline_metrics.json", text.as_bytes())?);
    let mut drawn = Vec::new();
    for chart in charts(&summaries) {
        if let Some((svg, paths)) = study.write_chart(&chart)? {
            drawn.push(svg);
            files.extend(paths);
        }
    }
    let page = page(study.manifest(), &summaries, &answers, &drawn, records);
    files.push(study.write("report.html", page.as_bytes())?);
    Ok((summaries, files))
}
