//! What the sections of roofline reports share.

use candlescope_document::text::UNKNOWN;
use candlescope_document::{MostRows, Section, Table};

/// Rows of a table in files.
pub(super) const MOST: usize = usize::MAX;

/// A table of texts, of which a terminal shows forty rows.
pub(super) fn table_of<H: AsRef<str>>(heads: &[H], rows: Vec<Vec<String>>) -> Table {
    let table = Table::of_texts(heads, rows).words(&["evidence", "what it is", "status", "where from"]);
    table.most(MostRows::of(40, MOST, MOST), "rows", "in the files")
}

/// The same section on a page that also has measured figures.
pub(super) fn predicted(section: Section) -> Section {
    Section {
        id: format!("predicted-{}", section.id),
        title: format!("Predicted: {}", section.title.to_lowercase()),
        ..section
    }
}

/// A prediction's error, which is a share.
pub(super) fn signed(error: f64) -> String {
    format!("{:+.1} %", error * 100.0)
}

/// A value, or what is shown where there is none.
pub(super) fn shown(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.filter(|value| value.is_finite()).map_or_else(|| UNKNOWN.to_string(), show)
}
