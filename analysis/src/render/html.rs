//! `report.html`: one file that opens from disk, needs no network, and shows the same figures as the other reports.

use super::report;
use crate::passes::Analysis;
use candlescope_document::Document;

/// The whole page.
pub fn page(analysis: &Analysis) -> String {
    drawn(&report::document(analysis, 0, 0))
}

/// A document as a page of this version.
pub(crate) fn drawn(document: &Document) -> String {
    candlescope_document::html::page(document, env!("CARGO_PKG_VERSION"))
}
