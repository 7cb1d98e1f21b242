//! Columns of operator tables that hold each operator against the machine's peaks.

use super::format::printable;
use candlescope_figures::peaks::OperatorUtilisation;
use candlescope_work::devices::label_in_words;

/// The columns of a table: those that have a value in any row.
pub(super) struct PeakColumns {
    columns: Vec<(usize, bool, String)>,
}

impl PeakColumns {
    /// Columns for these rows, which all have the same labels.
    pub(super) fn of(rows: &[Vec<OperatorUtilisation>]) -> Self {
        let labels = rows.first().map_or(&[][..], Vec::as_slice);
        let all = labels.iter().enumerate().flat_map(|(at, used)| {
            let label = printable(&label_in_words(&used.label, used.disturbed));
            [(at, true, format!("MFU ({label})")), (at, false, format!("MBU ({label})"))]
        });
        let has = |at: usize, is_flops: bool| rows.iter().any(|row| value(row, at, is_flops).is_some());
        let mut columns: Vec<_> = all.filter(|(at, is_flops, _)| has(*at, *is_flops)).collect();
        // Both denominators of a figure stand side by side.
        columns.sort_by_key(|(_, is_flops, _)| !is_flops);
        Self { columns }
    }

    /// Their names.
    pub(super) fn header(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|(_, _, name)| name.as_str())
    }

    /// The values of a row.
    pub(super) fn values(&self, row: &[OperatorUtilisation]) -> Vec<Option<f64>> {
        self.columns.iter().map(|(at, is_flops, _)| value(row, *at, *is_flops)).collect()
    }
}

fn value(row: &[OperatorUtilisation], at: usize, is_flops: bool) -> Option<f64> {
    let used = row.get(at)?;
    if is_flops { used.mfu } else { used.mbu }
}
