//! Roofline reports on a terminal.

use super::section::Section;
use crate::render::format::printable;
use crate::render::text_table::text_table;
use std::fmt::Write as _;

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
            let _ = writeln!(out, "{}", table(section));
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

fn table(section: &Section) -> String {
    let rows = section.rows.iter().take(section.terminal_rows);
    let rows = rows.map(|row| row.iter().map(|cell| printable(cell)).collect()).collect();
    let header: Vec<&str> = section.head.iter().map(String::as_str).collect();
    text_table(&header, rows, &[0], false)
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
