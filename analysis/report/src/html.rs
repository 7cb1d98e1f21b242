//! `report.html`: one file that opens from disk, needs no network, and shows the same figures as the other reports.

use super::report;
use candlescope_figures::Analysis;

/// The text of `report.html`, with its style, script and charts inside.
pub fn page(analysis: &Analysis) -> String {
    candlescope_document::html::page(&report::document(analysis, 0, 0))
}
