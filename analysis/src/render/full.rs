//! The report of a full analysis: it begins with sentences, changes and charts; then its parts, each with the file that
//! has all of it.

pub use super::full_front::Front;
use super::html::{HtmlError, coded};
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment};
use serde::Serialize;
use std::fmt::Write as _;

const TEMPLATE: &str = include_str!("full.html.j2");

/// A part of the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Part {
    /// What it answers.
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

/// `report.md`.
pub fn markdown(title: &str, front: &Front, parts: &[Part]) -> String {
    let mut text = format!("# {}\n\n{}\n", title.replace('\n', " "), front.sentences.join(" "));
    if !front.changes.is_empty() {
        text.push_str("\n## The changes that gain most\n\n");
        front.changes.iter().enumerate().for_each(|(at, change)| {
            let _ = writeln!(text, "{}. {change}", at + 1);
        });
    }
    for (number, part) in parts.iter().enumerate() {
        // A fence that nothing inside can end.
        let longest = part.text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
        let fence = "`".repeat((longest + 1).max(3));
        let _ =
            write!(text, "\n## {}. {}\n\n{fence}text\n{}\n{fence}\n", number + 1, part.heading, part.text.trim_end());
        let links: Vec<String> = part.files.iter().map(|file| format!("[{file}]({file})")).collect();
        if !links.is_empty() {
            let _ = write!(text, "\nAll of it: {}\n", links.join(", "));
        }
    }
    text
}

/// `report.html`, without anything from outside. Names and texts are escaped.
///
/// # Errors
/// When the page cannot be rendered, which is a mistake in the template.
pub fn page(title: &str, front: &Front, parts: &[Part]) -> Result<String, HtmlError> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    coded::add_filter(&mut environment);
    let values = serde_json::json!({
        "title": title,
        "front": front,
        "parts": parts,
        "css": include_str!("html/style.css"),
        "version": env!("CARGO_PKG_VERSION"),
    });
    Ok(environment.template_from_str(TEMPLATE)?.render(Serde(values))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_out() {
        let parts = [Part::new("What?", "```\n<b>&", &["a.json"])];
        let front = Front { changes: vec!["Change `a<b`.".to_string()], ..Front::default() };
        let text = markdown("one\ntwo", &front, &parts);
        assert!(text.starts_with("# one two\n") && text.contains("````text\n```\n<b>&\n````"), "{text}");
        assert!(text.contains("[a.json](a.json)"), "{text}");
        let page = page("<script>", &front, &parts).unwrap();
        assert!(page.contains("Change <code>a&lt;b</code>."), "{page}");
        assert!(
            page.contains("&lt;b&gt;&amp;") && !page.contains("<script>") && page.contains("href=\"a.json\""),
            "{page}"
        );
    }
}
