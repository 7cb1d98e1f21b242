//! A document as Markdown, for places that do not show HTML, such as an issue or a pull request.

use crate::document::{Block, Document, Section};
use crate::forms::Forms;
use crate::table::{Cell, Row, Table};
use crate::text::{UNKNOWN, count, cut, head, is_beside, pieces, printable, printable_lines};
use std::fmt::Write as _;

/// The whole document but for pictures, frames and blocks of HTML, which Markdown does not show. Of its verdict it has the
/// sentence; what that rests on has a section of its own.
pub fn draw(document: &Document) -> String {
    let mut out = format!("# {}\n", prose(&document.title));
    document.before.iter().for_each(|text| paragraph(&mut out, &prose(text)));
    match prose(&document.conclusion) {
        text if text.is_empty() => {}
        // Several sentences in bold are hard to read.
        text if text.contains(". ") => paragraph(&mut out, &text),
        text => paragraph(&mut out, &format!("**{text}**")),
    }
    let facts = document.facts.iter().filter(|fact| fact.is_in(Forms::MARKDOWN)).map(|fact| match fact.label {
        "" => prose(&fact.text),
        label => format!("{label}: {}", prose(&fact.text)),
    });
    let verdict = document.verdict.iter().map(|verdict| match verdict.ok {
        true => format!("verdict: {}", prose(&verdict.text)),
        false => format!("**verdict: {}**", prose(&verdict.text)),
    });
    list(&mut out, facts.chain(verdict));
    document.sections.iter().for_each(|section| draw_section(&mut out, section, 2));
    out
}

/// A section with a heading of this level.
pub fn section(section: &Section, level: usize) -> String {
    let mut out = String::new();
    draw_section(&mut out, section, level);
    out
}

/// Prose: names between backticks are code, everything else is plain text for Markdown and for HTML made of it.
fn prose(text: &str) -> String {
    pieces(text).map(|(piece, is_code)| if is_code { code(piece) } else { escape(piece) }).collect()
}

/// Text escaped so that Markdown, and HTML made from it, take it as plain text.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' => {
                out.push('\\');
                out.push(c);
            }
            _ => out.push(c),
        }
    }
    out
}

/// Text as code, also inside a table's cell. It cannot contain a backtick, and a bar must not end the cell.
fn code(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    format!("`{}`", printable(text).replace('`', "ˋ").replace('|', "\\|"))
}

fn paragraph(out: &mut String, text: &str) {
    let _ = write!(out, "\n{text}\n");
}

fn list(out: &mut String, items: impl Iterator<Item = String>) {
    for (nth, item) in items.enumerate() {
        let _ = writeln!(out, "{}- {item}", if nth == 0 { "\n" } else { "" });
    }
}

fn draw_section(out: &mut String, section: &Section, level: usize) {
    if !section.is_in(Forms::MARKDOWN) {
        return;
    }
    let _ = write!(out, "\n{} {}\n", "#".repeat(level), prose(&section.title));
    if !section.note.is_empty() {
        paragraph(out, &prose(&section.note));
    }
    if section.says_empty(Forms::MARKDOWN) {
        paragraph(out, &section.empty);
    }
    for block in section.shown(Forms::MARKDOWN) {
        draw_block(out, block, level);
    }
    section.parts.iter().for_each(|part| draw_section(out, part, level + 1));
}

fn draw_block(out: &mut String, block: &Block, level: usize) {
    match block {
        Block::Text(text) => paragraph(out, &prose(text)),
        Block::List(items) => list(out, items.iter().map(|text| prose(text))),
        Block::Steps(items) => {
            let numbered = items.iter().zip(1..).map(|(text, nth)| format!("{nth}. {}", prose(text)));
            paragraph(out, &numbered.collect::<Vec<_>>().join("\n"));
        }
        Block::Pairs("", pairs) => {
            list(out, pairs.iter().map(|(name, value)| format!("{}: {}", prose(name), prose(value))))
        }
        Block::Pairs(title, pairs) => {
            let _ = write!(out, "\n{} {title}\n", "#".repeat(level + 1));
            let rows = pairs.iter().map(|(name, value)| vec![escape(name), escape(&head(value, 400))]);
            cells(out, &[String::new(), String::new()], &[true, true], rows);
        }
        Block::Table(table) => draw_table(out, table),
        Block::Notices(notices) => list(
            out,
            notices.iter().map(|notice| {
                let text = |text: &str| prose(text.trim_end_matches('.'));
                let (mark, code) = (notice.mark.name(), code(&notice.code));
                format!("**{mark}** ({code}): {}. *{}.*", text(&notice.message), text(&notice.remedy))
            }),
        ),
        Block::Shares(_, parts) => {
            list(out, parts.iter().map(|part| format!("{}: {} ({})", prose(&part.name), part.percent, part.amount)));
        }
        Block::Heat(heat) => {
            let header: Vec<String> =
                std::iter::once(&heat.corner).chain(&heat.columns).map(|text| escape(text)).collect();
            let rows = heat.rows.iter().map(|(name, row)| {
                std::iter::once(name).chain(row.iter().map(|cell| &cell.text)).map(|text| escape(text)).collect()
            });
            cells(out, &header, &[true], rows);
        }
        Block::Fixed(text) => {
            // A fence that nothing inside can end.
            let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
            let fence = "`".repeat((longest + 1).max(3));
            let _ = write!(out, "\n{fence}text\n{}\n{fence}\n", printable_lines(text).trim_end());
        }
        Block::Files(what, files) => {
            let links = files.iter().map(|file| link(&escape(file), file)).collect::<Vec<_>>();
            paragraph(out, &format!("{what}: {}", links.join(", ")));
        }
        Block::Folded(title, block) => {
            paragraph(out, &format!("{}:", prose(title)));
            draw_block(out, block, level);
        }
        Block::Pictures(_) | Block::Frames(_) | Block::Html(_) => {}
    }
}

fn draw_table(out: &mut String, table: &Table) {
    let (rows, more) = table.shown(Forms::MARKDOWN);
    let columns = table.columns_in(Forms::MARKDOWN);
    let header: Vec<String> = std::iter::once(table.first.as_ref())
        .chain(columns.iter().map(|(_, column)| column.name.as_ref()))
        .map(escape)
        .collect();
    let words: Vec<bool> = std::iter::once(true).chain(columns.iter().map(|(_, column)| column.words)).collect();
    let rows = rows.into_iter().map(|row| {
        let value = |at: usize| row.cells.get(at).and_then(Cell::line).map_or(UNKNOWN.to_string(), |text| prose(&text));
        std::iter::once(name(row, table)).chain(columns.iter().map(|(at, _)| value(*at))).collect()
    });
    cells(out, &header, &words, rows);
    if more > 0 {
        paragraph(out, &format!("{} more {}, {}.", count(more), table.what, prose(table.rest)));
    }
}

fn name(row: &Row, table: &Table) -> String {
    let text = cut(&row.name, table.longest);
    let text = if table.code { code(&text) } else { prose(&text) };
    let text = row.link.as_ref().map_or(text.clone(), |file| link(&text, file));
    let remark = if row.remark.is_empty() { String::new() } else { format!(" {}", prose(&row.remark)) };
    format!("{}{text}{remark}", "&emsp;".repeat(row.depth.min(16)))
}

/// A link to a file beside the document, with a text that is escaped; to anything else the text alone.
fn link(text: &str, file: &str) -> String {
    if !is_beside(file) {
        return text.to_string();
    }
    let mut target = String::new();
    for byte in file.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => target.push(char::from(byte)),
            byte => target.push_str(&format!("%{byte:02X}")),
        }
    }
    format!("[{text}]({target})")
}

/// A table of escaped cells; columns of `words` are set to the left, and all that it does not name to the right.
fn cells(out: &mut String, header: &[String], words: &[bool], rows: impl Iterator<Item = Vec<String>>) {
    let rule = (0..header.len()).map(|at| if words.get(at).is_some_and(|words| *words) { "---|" } else { "---:|" });
    let _ = write!(out, "\n| {} |\n|{}\n", header.join(" | "), rule.collect::<String>());
    for row in rows {
        let _ = writeln!(out, "| {} |", row.join(" | "));
    }
}
