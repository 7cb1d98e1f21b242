//! Roofline reports on a terminal.

use super::section::Section;
use crate::render::format::printable;
use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};
use std::fmt::Write as _;

const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

pub(super) fn text(facts: &[String], sections: &[Section], width: usize) -> String {
    let mut out = String::new();
    for fact in facts {
        let _ = writeln!(out, "  {}", printable(fact));
    }
    for section in sections.iter().filter(|section| !section.rows.is_empty() || !section.list.is_empty()) {
        let _ = writeln!(out, "\n{}", section.title);
        if !section.note.is_empty() {
            wrapped(&mut out, "  ", &section.note, width);
        }
        if !section.rows.is_empty() {
            let _ = writeln!(out, "{}", table(section, width));
        }
        let more = section.rows.len().saturating_sub(section.terminal_rows);
        if more > 0 {
            let _ = writeln!(out, "  … and {more} more: in the files");
        }
        for line in &section.list {
            wrapped(&mut out, "  - ", line, width);
        }
    }
    out
}

fn table(section: &Section, width: usize) -> String {
    let mut table = Table::new();
    table
        .load_style(STYLE)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_width(width as u16)
        .force_no_tty();
    table.set_header(section.head.clone());
    let rows = section.rows.iter().take(section.terminal_rows);
    table.add_rows(rows.map(|row| row.iter().map(|cell| printable(cell)).collect::<Vec<_>>()));
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((1, 1));
        if at > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

/// A paragraph, with what begins its first line as room before the others.
fn wrapped(out: &mut String, begin: &str, text: &str, width: usize) {
    let room = " ".repeat(begin.chars().count());
    let (mut line, mut first) = (begin.to_string(), true);
    for word in printable(text).split_whitespace() {
        if !first && line.chars().count() + 1 + word.chars().count() > width {
            let _ = writeln!(out, "{line}");
            (line, first) = (room.clone(), true);
        }
        if !first {
            line.push(' ');
        }
        line.push_str(word);
        first = false;
    }
    let _ = writeln!(out, "{line}");
}
