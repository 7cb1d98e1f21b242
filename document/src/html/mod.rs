//! A document as one HTML page that opens from disk and needs no network.

mod blocks;
mod html_table;
mod texts;

use crate::document::{Document, Section};
use crate::forms::Forms;
use std::fmt::Write as _;
pub use texts::{Plain, Prose};

/// The looks of every page: a style sheet.
const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");
const HEAD: &str = include_str!("head.html");
const LOGO: &str = "<svg viewBox=\"0 0 24 24\" aria-hidden=\"true\"><path d=\"M12 2c3 4 4 5.500 4 8a4 4 0 0 1-8 0c0-2.500 1-4 \
    4-8z\"/><rect x=\"9\" y=\"15\" width=\"6\" height=\"7\" rx=\"1\"/></svg>";

/// The whole page. Its foot names the version, which all our crates share.
pub fn page(document: &Document) -> String {
    let mut out = String::with_capacity(64 << 10);
    let kind = if document.kind.is_empty() { String::new() } else { format!(" · {}", document.kind) };
    let _ = write!(
        out,
        "{HEAD}<title>{}{} · candlescope</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<header>\n  <div class=\"wrap\">\n    \
         <p class=\"brand\">{LOGO}candlescope</p>\n    <h1>{}</h1>\n",
        Plain(&document.title),
        Plain(&kind),
        Plain(&document.title)
    );
    for text in &document.before {
        let _ = writeln!(out, "    <p class=\"before\">{}</p>", Prose(text));
    }
    if !document.conclusion.is_empty() {
        let _ = writeln!(out, "    <p class=\"outcome\">{}</p>", Prose(&document.conclusion));
    }
    out.push_str("    <p class=\"facts\">");
    for fact in document.facts.iter().filter(|fact| fact.is_in(Forms::PAGE)) {
        let label = if fact.label.is_empty() { String::new() } else { format!("{}: ", fact.label) };
        let _ = write!(out, "<span>{}{}</span>", Plain(&label), Prose(&fact.text));
    }
    out.push_str("</p>\n  </div>\n</header>\n<nav aria-label=\"Sections\"><div class=\"wrap\">\n  ");
    let sections: Vec<&Section> = document.sections.iter().filter(|section| section.is_in(Forms::PAGE)).collect();
    for section in &sections {
        let name = section.nav.as_deref().unwrap_or(&section.title);
        if !name.is_empty() {
            let _ = write!(out, "<a href=\"#{}\">{}</a>", Plain(&section.id), Plain(name));
        }
    }
    out.push_str("\n</div></nav>\n<main class=\"wrap\">\n");
    if let Some(verdict) = &document.verdict {
        blocks::verdict(&mut out, verdict);
    }
    sections.into_iter().for_each(|section| draw_section(&mut out, section, 2));
    let _ = write!(
        out,
        "</main>\n<footer class=\"wrap\">candlescope {} · this file is complete in itself and asks nothing of the \
         network</footer>\n<script>{SCRIPT}</script>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION")
    );
    out
}

fn draw_section(out: &mut String, section: &Section, level: usize) {
    let (open, close) = if level == 2 { ("section", "section") } else { ("div class=\"sheet\"", "div") };
    let _ = write!(out, "<{open} id=\"{}\">\n  <h{level}>{}</h{level}>\n", Plain(&section.id), Prose(&section.title));
    if !section.note.is_empty() {
        let _ = writeln!(out, "  <p class=\"note\">{}</p>", Prose(&section.note));
    }
    let shown: Vec<_> = section.shown(Forms::PAGE).collect();
    let parts: Vec<_> = section.parts.iter().filter(|part| part.is_in(Forms::PAGE)).collect();
    if section.says_empty(Forms::PAGE) {
        let _ = writeln!(out, "  <p class=\"empty\">{}</p>", Prose(&section.empty));
    }
    if section.side_by_side {
        out.push_str("  <div class=\"columns\">\n");
    }
    shown.into_iter().for_each(|block| blocks::draw(out, block));
    if section.side_by_side {
        out.push_str("  </div>\n");
    }
    parts.into_iter().for_each(|part| draw_section(out, part, (level + 1).min(4)));
    let _ = writeln!(out, "</{close}>");
}
