//! A table that every report shows: the same rows in the terminal, in Markdown and in HTML.

use super::format::{head, path, printable};
use super::markdown;
use serde_json::{Value, json};

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
    /// What rows are called where some are not shown.
    pub(super) what: &'static str,
    /// Rows the terminal shows.
    pub(super) terminal_rows: usize,
}

/// Rows in the HTML and Markdown reports; `metrics.json` has them all.
const MOST_ROWS: usize = 200;
/// Characters of a name in Markdown.
const LONGEST_NAME: usize = 100;

/// One column after the first.
pub(super) struct Column {
    pub(super) name: &'static str,
    /// Said where the pointer rests on it.
    pub(super) hint: &'static str,
    /// Whether it has room in a terminal.
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
    /// Its name in full, where that is longer.
    pub(super) whole: Option<String>,
    pub(super) cells: Vec<Cell>,
    /// Width of the bar behind the name, from 0 to 1.
    pub(super) bar: Option<f64>,
}

/// One value, and what it sorts by. Missing sorts below everything.
pub(super) struct Cell {
    text: Option<String>,
    sort: f64,
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

impl Cell {
    fn text(&self) -> String {
        self.text.as_deref().map_or("–".to_string(), printable)
    }
}

impl Sheet {
    /// Head and rows for a terminal, names cut to `width` characters.
    pub(super) fn terminal(&self, width: usize) -> (Vec<&'static str>, Vec<Vec<String>>) {
        let shown = |i: usize| self.columns.get(i).is_some_and(|column| column.in_terminal);
        let mut header = vec![""];
        header.extend(self.columns.iter().filter(|c| c.in_terminal).map(|c| c.name));
        let rows = self.rows.iter().take(self.terminal_rows).map(|row| {
            let name = printable(&row.name);
            let mut cells = vec![if name.contains('/') { path(&name, width) } else { head(&name, width) }];
            cells.extend(row.cells.iter().enumerate().filter(|(i, _)| shown(*i)).map(|(_, cell)| cell.text()));
            cells
        });
        (header, rows.collect())
    }

    /// The section of `report.md`.
    pub(super) fn markdown(&self) -> String {
        let mut header = vec![self.first];
        header.extend(self.columns.iter().map(|c| c.name));
        let rows = self.rows.iter().take(MOST_ROWS).map(|row| {
            let mut cells = vec![markdown::code(&head(&row.name, LONGEST_NAME))];
            let text = |cell: &Cell| cell.text.as_deref().map_or(String::new(), markdown::escape);
            cells.extend(row.cells.iter().map(text));
            cells
        });
        let more = self.rows.len().saturating_sub(MOST_ROWS);
        let more = if more > 0 { format!("\n{more} more {} are in metrics.json.\n", self.what) } else { String::new() };
        let table = markdown::table(&header, rows);
        format!("\n## {}\n\n{}\n\n{table}{more}", self.title, markdown::escape(&self.note))
    }

    /// Values for `report.html`.
    pub(super) fn html(&self) -> Value {
        let rows = self.rows.iter().take(MOST_ROWS).map(|row| {
            let cells = row.cells.iter().map(|c| json!({ "text": c.text(), "sort": c.sort })).collect::<Vec<_>>();
            json!({
                "name": printable(&head(&row.name, LONGEST_NAME)),
                "whole": row.whole.as_deref().map(printable),
                "bar": row.bar.map(|share| share.clamp(0.0, 1.0) * 100.0),
                "cells": cells,
            })
        });
        let columns = self.columns.iter().map(|c| json!({ "name": c.name, "hint": c.hint })).collect::<Vec<_>>();
        json!({
            "id": self.id, "title": self.title, "note": self.note, "first": self.first, "columns": columns,
            "rows": rows.collect::<Vec<_>>(), "what": self.what, "more": self.rows.len().saturating_sub(MOST_ROWS),
        })
    }
}
