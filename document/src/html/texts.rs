//! Texts as HTML: nothing in them is markup.

use crate::text::{pieces, printable};
use std::fmt::{Display, Formatter, Write as _};

/// A text as HTML: without any markup, lines as they are.
pub(super) struct EscapedText<'a>(pub(super) &'a str);

impl Display for EscapedText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            '\'' => f.write_str("&#x27;"),
            c => f.write_char(c),
        })
    }
}

/// A text as HTML: printable, and without any markup.
pub struct Plain<'a>(pub &'a str);

impl Display for Plain<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        EscapedText(&printable(self.0)).fmt(f)
    }
}

/// Prose as HTML: names between backticks as code, everything else as [`Plain`].
pub struct Prose<'a>(pub &'a str);

impl Display for Prose<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        pieces(self.0).try_for_each(|(piece, is_code)| match is_code {
            true => write!(f, "<code>{}</code>", Plain(piece)),
            false => write!(f, "{}", Plain(piece)),
        })
    }
}
