//! Tables of `report.md` that the other reports show too.

use super::super::format::{count, duration, head, percent, with_error};
use super::super::nsys_table::{
    MEANING, MOST_ROWS, TITLE, compared, kernels_text, launching, leftovers, summary, sums, times,
};
use super::super::sheet::{Cell, LONGEST_NAME, MOST_ROWS as MOST_SHEET_ROWS, Sheet};
use super::text::{code, escape, table};
use crate::passes::Analysis;
use crate::passes::peaks::Utilisation;
use std::fmt::Write as _;

/// The section of a sheet.
pub(super) fn sheet(sheet: &Sheet) -> String {
    let mut header = vec![sheet.first];
    header.extend(sheet.columns.iter().map(|c| c.name));
    let rows = sheet.rows.iter().take(MOST_SHEET_ROWS).map(|row| {
        let mut cells = vec![code(&head(&row.name, LONGEST_NAME))];
        let text = |cell: &Cell| cell.text.as_deref().map_or(String::new(), escape);
        cells.extend(row.cells.iter().map(text));
        cells
    });
    let more = sheet.rows.len().saturating_sub(MOST_SHEET_ROWS);
    let more = if more > 0 { format!("\n{more} more {} are in metrics.json.\n", sheet.what) } else { String::new() };
    let table = table(&header, rows);
    format!("\n## {}\n\n{}\n\n{table}{more}", sheet.title, escape(&sheet.note))
}

/// How close phases come to the machine's peaks.
pub(super) fn utilisation(out: &mut String, all: &[Utilisation]) {
    if all.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n### Against the machine's peaks\n");
    let header = ["", "over", "of peak", "peak", "label", "source"];
    let rows = all.iter().map(|used| {
        let dtype = used.peak.dtype.as_ref().map_or(String::new(), |dtype| format!(", {dtype}"));
        let unit = if used.peak.is_flops() { "FLOP/s" } else { "B/s" };
        vec![
            format!("{} of {}", used.metric.name(), escape(&used.phase)),
            used.over.name().to_string(),
            with_error(percent(used.ratio), used.error),
            escape(&format!("{:.3e} {unit}{dtype}", used.peak.value)),
            escape(&used.peak.label),
            escape(&used.peak.source),
        ]
    });
    out.push_str(&table(&header, rows));
}

/// The section about a profile of Nsight Systems.
pub(super) fn nsys(out: &mut String, analysis: &Analysis) {
    let Some(kernels) = &analysis.nsys else { return };
    let _ = writeln!(out, "\n## {TITLE}\n\n{}. {MEANING}\n", escape(&summary(kernels)));
    let compared = compared(kernels);
    let mut header = vec!["path", "intervals", "kernels", "own time", "share", "total time", "top kernel"];
    if compared {
        header.extend(["run's GPU", "source"]);
    }
    let rows = launching(kernels).take(MOST_ROWS).map(|row| {
        let mut cells = vec![code(&row.path), count(row.intervals)];
        cells.extend(sums(kernels, row));
        cells.push(row.top.as_ref().map_or(String::new(), |(name, _)| code(&head(name, 60))));
        if compared {
            cells.push(row.gpu.map_or(String::new(), |gpu| times(&gpu)));
            cells.push(row.gpu.map_or(String::new(), |gpu| gpu.source.to_string()));
        }
        cells
    });
    out.push_str(&table(&header, rows));
    for (name, sum) in leftovers(kernels) {
        let _ = writeln!(out, "\n{}: {}, {}.", escape(name), kernels_text(sum), duration(sum.ns as f64));
    }
}
