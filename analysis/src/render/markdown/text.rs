//! Markdown syntax: escaping and tables.

use super::super::format::printable;
use std::fmt::Write as _;

/// A table whose first column is text and whose others are numbers. Cells must be escaped.
pub(super) fn table(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut out = format!("| {} |\n|---|{}\n", header.join(" | "), "---:|".repeat(header.len() - 1));
    for row in rows {
        let _ = writeln!(out, "| {} |", row.join(" | "));
    }
    out
}

/// Text escaped so that Markdown, and HTML made from it, take it as plain text.
pub(super) fn escape(text: &str) -> String {
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

/// Text as code inside a table cell. It cannot contain a backtick, and a bar must not end the cell.
pub(super) fn code(text: &str) -> String {
    format!("`{}`", printable(text).replace('`', "ˋ").replace('|', "\\|"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_their_cell() {
        assert_eq!(code("a|b`c\n"), "`a\\|bˋc\u{fffd}`");
        assert_eq!(escape("<script>*x*|"), "&lt;script&gt;\\*x\\*\\|");
    }
}
