//! A document on a terminal.

use crate::document::{Block, Document, Heat, Mark, Notice, Section, Verdict};
use crate::forms::Forms;
use crate::narrow::{ROOM, on_lines, width_of_texts};
use crate::table::{Cell, Row, Table};
use crate::text::{UNKNOWN, count, cut, head, printable, printable_lines, sentence, wrap};
use comfy_table::{CellAlignment, Color, ContentArrangement, LineStyle, TableStyle};
use std::fmt::Write as _;

/// How it is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Columns that it may take; at least 60. In a table that takes more, texts go on several lines; where its numbers
    /// are too wide by themselves, it is as wide as it is.
    pub width: usize,
    /// Whether to colour headings and notices.
    pub color: bool,
}

impl Default for Layout {
    fn default() -> Self {
        Self { width: 100, color: false }
    }
}

/// Notices that are shown.
const MOST_NOTICES: usize = 12;
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// The whole document. Its title is left out: who asked for it knows.
pub fn draw(document: &Document, layout: Layout) -> String {
    let mut out = TerminalText::new(layout);
    for text in document.before.iter().chain([&document.conclusion]).filter(|text| !text.is_empty()) {
        out.wrapped("", &sentence(text));
    }
    for fact in document.facts.iter().filter(|fact| fact.is_in(Forms::TERMINAL)) {
        out.field(fact.label, &fact.text);
    }
    if let Some(verdict) = &document.verdict {
        out.verdict(verdict);
    }
    document.sections.iter().for_each(|section| out.section(section));
    out.text
}

/// A section by itself.
pub fn section(section: &Section, layout: Layout) -> String {
    let mut out = TerminalText::new(layout);
    out.section(section);
    out.text
}

/// A table by itself, without an end of line.
pub fn table(table: &Table, layout: Layout) -> String {
    let mut out = TerminalText::new(layout);
    out.table(table);
    out.text.trim_end().to_string()
}

struct TerminalText {
    text: String,
    layout: Layout,
}

impl TerminalText {
    fn new(layout: Layout) -> Self {
        Self { text: String::new(), layout: Layout { width: layout.width.max(60), ..layout } }
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    fn heading(&mut self, title: &str, beside: &str) {
        let beside = if beside.is_empty() { String::new() } else { format!("  {}", printable(beside)) };
        let beside = head(&beside, self.layout.width.saturating_sub(title.chars().count()));
        let title = printable(title);
        let _ = match self.layout.color {
            true => write!(self.text, "\n\x1b[1m{title}\x1b[0m\x1b[2m{beside}\x1b[0m\n"),
            false => write!(self.text, "\n{title}{beside}\n"),
        };
    }

    /// A paragraph, with what begins its first line as room before the others.
    fn wrapped(&mut self, begin: &str, text: &str) {
        let indent = begin.chars().count();
        for (nth, line) in wrap(&printable(text), self.layout.width.saturating_sub(indent).max(20)).iter().enumerate() {
            match nth {
                0 => self.line(&format!("{begin}{line}")),
                _ => self.line(&format!("{:indent$}{line}", "")),
            }
        }
    }

    /// `label   text`, the text wrapped under itself.
    fn field(&mut self, label: &str, text: &str) {
        match label {
            "" => self.wrapped("  ", text),
            label => self.wrapped(&format!("  {:<8} ", printable(label)), text),
        }
    }

    fn verdict(&mut self, verdict: &Verdict) {
        let text = printable(&verdict.text);
        let text = match (self.layout.color, verdict.ok) {
            (true, true) => format!("\x1b[32m{text}\x1b[0m"),
            (true, false) => format!("\x1b[31m{text}\x1b[0m"),
            (false, _) => text,
        };
        self.line(&format!("  {:<9}{text}", "verdict"));
    }

    fn section(&mut self, section: &Section) {
        if !section.is_in(Forms::TERMINAL) {
            return;
        }
        self.heading(&section.title, section.brief.as_deref().unwrap_or_default());
        if section.brief.is_none() && !section.note.is_empty() {
            self.wrapped("  ", &section.note);
        }
        if section.says_empty(Forms::TERMINAL) {
            self.wrapped("  ", &section.empty);
        }
        section.shown(Forms::TERMINAL).for_each(|block| self.block(block));
        section.parts.iter().for_each(|part| self.section(part));
    }

    fn block(&mut self, block: &Block) {
        match block {
            Block::Text(text) => self.wrapped("  ", text),
            Block::List(list) => list.iter().for_each(|text| self.wrapped("  - ", text)),
            Block::Steps(list) => {
                list.iter().zip(1..).for_each(|(text, nth)| self.wrapped(&format!("  {nth}. "), text));
            }
            Block::Pairs(_, pairs) => pairs.iter().for_each(|(name, value)| self.field(name, value)),
            Block::Table(table) => self.table(table),
            Block::Notices(notices) => self.notices(notices),
            Block::Shares(_, parts) => {
                let parts = parts.iter().map(|part| format!("{} {} ({})", part.name, part.percent, part.amount));
                self.wrapped("  ", &parts.collect::<Vec<_>>().join(", "));
            }
            Block::Heat(heat) => self.heat(heat),
            Block::Fixed(text) => printable_lines(text).lines().for_each(|line| self.line(line)),
            Block::Files(what, files) => self.wrapped("  ", &format!("{what}: {}", files.join(", "))),
            Block::Folded(_, block) => self.block(block),
            Block::Pictures(_) | Block::Frames(_) | Block::Html(_) => {}
        }
    }

    fn table(&mut self, table: &Table) {
        let (rows, more) = table.shown(Forms::TERMINAL);
        let columns = table.columns_in(Forms::TERMINAL);
        let mut left = vec![0];
        left.extend(columns.iter().enumerate().filter(|(_, (_, column))| column.words).map(|(at, _)| at + 1));
        let heads = columns.iter().map(|(_, column)| column.short.unwrap_or(&column.name));
        let header: Vec<String> = std::iter::once(table.first.as_ref()).chain(heads).map(printable).collect();
        let cells = |row: &Row| {
            let values = columns.iter().map(|(at, _)| {
                row.cells.get(*at).and_then(Cell::line).map_or(UNKNOWN.to_string(), |text| printable(&text))
            });
            std::iter::once(name(row, table.name_width)).chain(values).collect()
        };
        self.cells(header, rows.into_iter().map(cells).collect(), &left);
        if more > 0 {
            self.line(&format!("  … and {} more {}, {}", count(more), table.what, table.rest));
        }
    }

    /// Printable cells. Columns are numbers, but for those in `left`.
    fn cells(&mut self, mut header: Vec<String>, mut rows: Vec<Vec<String>>, left: &[usize]) {
        let mut table = self.laid_out(&header, &rows, left);
        let widths: Vec<usize> = table.column_max_content_widths().into_iter().map(usize::from).collect();
        if let Some(width) = width_of_texts(&widths, left, self.layout.width) {
            // Not by comfy-table's own arrangement, which takes time with the square of a text's length.
            for cells in std::iter::once(&mut header).chain(&mut rows) {
                let texts = cells.iter_mut().enumerate().filter(|(at, _)| left.contains(at));
                texts.for_each(|(_, text)| *text = on_lines(text, width));
            }
            table = self.laid_out(&header, &rows, left);
        }
        self.line(&table.trim_fmt());
    }

    fn laid_out(&self, header: &[String], rows: &[Vec<String>], left: &[usize]) -> comfy_table::Table {
        let mut table = comfy_table::Table::new();
        table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled);
        if self.layout.color {
            table.enforce_styling();
            table.set_header(header.iter().map(|text| comfy_table::Cell::new(text).fg(Color::DarkGrey)));
        } else {
            table.force_no_tty();
            table.set_header(header);
        }
        table.add_rows(rows);
        for (at, column) in table.column_iter_mut().enumerate() {
            column.set_padding((ROOM, ROOM));
            if !left.contains(&at) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table
    }

    fn heat(&mut self, heat: &Heat) {
        let header: Vec<String> =
            std::iter::once(&heat.corner).chain(&heat.columns).map(|text| printable(text)).collect();
        let rows = heat.rows.iter().map(|(name, cells)| {
            std::iter::once(name).chain(cells.iter().map(|cell| &cell.text)).map(|text| printable(text)).collect()
        });
        self.cells(header, rows.collect(), &[0]);
    }

    fn notices(&mut self, notices: &[Notice]) {
        for notice in notices.iter().take(MOST_NOTICES) {
            let (mark, color) = match notice.mark {
                Mark::Error => ("error", "31"),
                Mark::Warning => ("warning", "33"),
                Mark::Note => ("note", "36"),
            };
            let width = self.layout.width - 4;
            for (nth, line) in wrap(&format!("{mark}: {}", printable(&notice.message)), width).iter().enumerate() {
                let line = match (nth, self.layout.color) {
                    (0, true) => format!("  \x1b[{color}m{mark}\x1b[0m{}", &line[mark.len()..]),
                    (0, false) => format!("  {line}"),
                    _ => format!("    {line}"),
                };
                self.line(&line);
            }
            for line in wrap(&format!("→ {}", printable(&notice.remedy)), width) {
                self.line(&format!("    {line}"));
            }
        }
        if notices.len() > MOST_NOTICES {
            self.line(&format!("  … and {} more, in the files", count(notices.len() - MOST_NOTICES)));
        }
    }
}

/// A row's name, behind the room of its depth.
fn name(row: &Row, width: usize) -> String {
    let indent = "  ".repeat(row.depth.min(10));
    let (text, width) = (printable(&row.name), width.saturating_sub(indent.len()));
    let text = cut(&text, width);
    let remark = if row.remark.is_empty() { String::new() } else { format!(" {}", printable(&row.remark)) };
    format!("{indent}{text}{remark}")
}
