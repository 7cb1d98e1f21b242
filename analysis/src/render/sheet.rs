//! A table that every report shows: the same rows in the terminal, in Markdown and in HTML. This is its content, which
//! each renderer draws.

/// One table.
pub(super) struct Sheet {
    /// Name of its section in HTML.
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    /// What it is about, in plain text.
    pub(super) note: String,
    /// Head of the first column, which holds names.
    pub(super) first: &'static str,
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Row>,
    /// What rows are called in the note that some are not shown.
    pub(super) what: &'static str,
    /// Rows the terminal shows.
    pub(super) terminal_rows: usize,
}

/// Rows in the HTML and Markdown reports; `metrics.json` has them all.
pub(super) const MOST_ROWS: usize = 200;
/// Longest name in these reports, in characters.
pub(super) const LONGEST_NAME: usize = 100;

/// One column after the first.
pub(super) struct Column {
    pub(super) name: &'static str,
    /// Tooltip.
    pub(super) hint: &'static str,
    /// Whether the terminal shows it.
    pub(super) in_terminal: bool,
}

/// A column that the terminal shows too.
pub(super) fn column(name: &'static str, hint: &'static str) -> Column {
    Column { name, hint, in_terminal: true }
}

/// A column for wide pages only.
pub(super) fn wide(name: &'static str, hint: &'static str) -> Column {
    Column { name, hint, in_terminal: false }
}

/// One row.
pub(super) struct Row {
    /// Its name, in short.
    pub(super) name: String,
    /// Its full name, if that is longer.
    pub(super) whole: Option<String>,
    pub(super) cells: Vec<Cell>,
    /// Width of the bar behind the name, from 0 to 1.
    pub(super) bar: Option<f64>,
}

/// One value with its sort key. A missing value sorts below everything.
pub(super) struct Cell {
    pub(super) text: Option<String>,
    pub(super) sort: f64,
}

/// A value.
pub(super) fn cell(text: String, sort: f64) -> Cell {
    Cell { text: Some(text), sort }
}

/// A value that may be missing.
pub(super) fn maybe(value: Option<f64>, show: impl Fn(f64) -> String) -> Cell {
    value.filter(|v| v.is_finite()).map_or(missing(), |v| cell(show(v), v))
}

/// No value.
pub(super) fn missing() -> Cell {
    Cell { text: None, sort: f64::MIN }
}
