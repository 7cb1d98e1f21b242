//! What the sheets are made of.

use super::super::format::{count, duration, percent, significant};
use candlescope_document::{Cell, MostRows, Section, Table, cell, maybe};

/// Rows in the HTML and Markdown reports; `metrics.json` has them all.
pub(crate) const MOST_ROWS: usize = 200;
/// Longest name in these reports, in characters.
const LONGEST_NAME: usize = 100;
/// Characters of a name on a terminal.
const NAME_WIDTH: usize = 30;

/// The section of one table, of whose rows, which are called `what`, a terminal shows so many.
pub(super) fn sheet(
    id: &str,
    title: &str,
    note: impl Into<String>,
    table: Table,
    terminal: usize,
    what: &'static str,
) -> Section {
    let table = table.of_code(NAME_WIDTH).longest(LONGEST_NAME);
    let table = table.most(MostRows::of(terminal, MOST_ROWS, MOST_ROWS), what, "in metrics.json");
    Section::new(id, title, note).brief("").with(table)
}

pub(super) fn time(ns: Option<f64>) -> Cell {
    maybe(ns, duration)
}

pub(super) fn number(n: u64) -> Cell {
    cell(count(n), n as f64)
}

pub(super) fn share(value: Option<f64>) -> Cell {
    maybe(value, percent)
}

pub(super) fn rate(value: Option<f64>) -> Cell {
    maybe(value, significant)
}

/// `12 of 48`, sorted by the first number.
pub(super) fn of(measured: u64, all: u64) -> Cell {
    cell(format!("{} of {}", count(measured), count(all)), measured as f64)
}
