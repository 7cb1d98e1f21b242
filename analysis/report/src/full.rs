//! The report of a full analysis: it begins with sentences, changes and charts; then its parts, each with the file that
//! has all of it.

use super::advice::nothing_found;
pub use super::full_front::Front;
use candlescope_document::text::sentence;
use candlescope_document::{Block, Document, Forms, Section};

/// A part of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// What it answers, as its heading; the report puts its number before it.
    pub heading: String,
    /// Its text as a terminal shows it, or why there is none.
    pub text: String,
    /// Files with all of it, relative to the report.
    pub files: Vec<String>,
}

impl Part {
    /// A part with its text and its files.
    pub fn new(heading: &str, text: impl Into<String>, files: &[&str]) -> Self {
        let files = files.iter().map(|file| (*file).to_string()).collect();
        Self { heading: heading.to_string(), text: text.into(), files }
    }
}

/// What `report.md` and `report.html` show: sentences, changes and parts; the charts are not in Markdown.
pub fn document(title: &str, front: &Front, parts: &[Part]) -> Document {
    let more = match front.more {
        0 => String::new(),
        more => format!("{more} more are below, with what each rests on."),
    };
    let changes = Section::new(
        "changes",
        "The changes that gain most",
        "A gain is a share of the time named with it, in brackets from the least that can be hoped for to the most. Gains do \
         not add up.",
    )
    .nav("What to change")
    .with(Block::Steps(front.changes.clone()))
    .with(Block::Text(more))
    .or_say(sentence(&nothing_found()));
    let roofline = Section::new(
        "roofline",
        "Roofline",
        "Large: phases. Small: operators. Lines: what the device allows. A point above a roof is invalid, and shown where it is.",
    )
    .only(Forms::PAGE.and(Forms::JSON))
    .picture(front.roofline.clone());
    let flame = Section::new(
        "flame",
        "Flame graph",
        "Width is self time over the whole run, in nanoseconds. Click a frame to zoom, search at the top right.",
    )
    .only(Forms::PAGE.and(Forms::JSON))
    .with(Block::Frames(front.flame.clone().into_iter().collect()));
    let parts = parts.iter().zip(1..).map(|(part, nth)| {
        let text = Block::Folded("As a terminal shows it".to_string(), Box::new(Block::Fixed(part.text.clone())));
        Section::new(format!("part{nth}"), format!("{nth}. {}", part.heading), "")
            .nav(part.heading.clone())
            .with(text)
            .with(Block::Files("All of it", part.files.clone()))
            .or_say("There is nothing to show.")
    });
    Document {
        title: title.replace('\n', " "),
        conclusion: front.sentences.join(" "),
        sections: [changes, roofline, flame].into_iter().chain(parts).collect(),
        ..Document::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_document::{html, markdown};

    #[test]
    fn names_cannot_break_out() {
        let parts = [Part::new("What?", "```\n<b>&", &["a.json"])];
        let front = Front { changes: vec!["Change `a<b`.".to_string()], ..Front::default() };
        let text = markdown::draw(&document("one\ntwo", &front, &parts));
        assert!(text.starts_with("# one two\n") && text.contains("````text\n```\n<b>&\n````"), "{text}");
        assert!(text.contains("[a.json](a.json)"), "{text}");
        let page = html::page(&document("<script>", &front, &parts));
        assert!(page.contains("Change <code>a&lt;b</code>."), "{page}");
        assert!(
            page.contains("&lt;b&gt;&amp;")
                && page.contains("<h1>&lt;script&gt;</h1>")
                && page.contains("href=\"a.json\""),
            "{page}"
        );
    }
}
