//! The tables must hold as many rows as the Parquet exporter says it wrote.

use crate::Analysis;
use candlescope_schema::RecordKind;
use candlescope_schema::run::{Code, Finding, Place};

/// Whether a limit of this reading left rows out, which is said already: they are where they were written.
fn is_cut(run: &Analysis, table: &str) -> bool {
    let place = format!("table `{table}` ");
    let left_out = |message: &str| message.starts_with(&place) && message.contains("further rows are left out");
    run.verdict.findings.iter().any(|f| f.code == Code::LimitReached && left_out(&f.message()))
}

pub(super) fn find(run: &Analysis) -> Vec<Finding> {
    let manifest = &run.manifest;
    let Some(parquet) = manifest.exporters.iter().find(|e| e.name == "parquet").filter(|_| manifest.complete) else {
        return Vec::new();
    };
    let tables = RecordKind::ALL.into_iter().filter_map(|kind| {
        let wrote = parquet.exported.get(kind.table()).copied().unwrap_or(0);
        let read = run.rows.get(kind.table()).copied().unwrap_or(0);
        let finding = match read.cmp(&wrote) {
            std::cmp::Ordering::Equal => return None,
            std::cmp::Ordering::Less if is_cut(run, kind.table()) => return None,
            std::cmp::Ordering::Less => Finding::new(
                Code::RowsMissing,
                "table `{table}` holds {read:raw} of the {wrote:raw} rows that were written",
                "Copy the whole directory again from where the run was made",
            ),
            std::cmp::Ordering::Greater => Finding::new(
                Code::RowsSurplus,
                "table `{table}` holds {read:raw} rows, but {wrote:raw} were written: a segment is there twice",
                "Remove copies of segments from the run's folders",
            ),
        };
        Some(finding.at(Place::Table, kind.table()).count("read", read).count("wrote", wrote))
    });
    tables.collect()
}
