//! How long names may be. Names come from programs, and so sometimes from whoever uses them, such as a request's model.

use std::borrow::Cow;
use std::fmt::{self, Write};

/// The longest text of a table in bytes. What is longer is cut when it is written, and when it is read.
pub const MOST_TEXT_BYTES: usize = 16 << 10;

/// What stands at the end of a text that was cut.
pub const CUT_MARK: &str = "…";

/// The text, cut to at most `most` bytes between two characters, with [`CUT_MARK`] at its end if it was longer.
///
/// ```
/// use candlescope_schema::cut_text;
/// assert_eq!(cut_text("decode", 16), "decode");
/// assert_eq!(cut_text("decode/block", 9), "decode…");
/// assert_eq!(cut_text("äöü", 5), "ä…");
/// ```
pub fn cut_text(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    let mut end = most.saturating_sub(CUT_MARK.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Cow::Owned(format!("{}{CUT_MARK}", &text[..end]))
}

/// A value's `Debug` form, cut to at most `most` bytes. No more than that is kept while it is written.
pub fn cut_debug(value: &dyn fmt::Debug, most: usize) -> String {
    let mut start = Start { text: String::new(), most };
    // An error only says that there is more.
    let _ = write!(start, "{value:?}");
    cut_text(&start.text, most).into_owned()
}

/// Keeps one byte more than the limit, or up to the next character, so that it shows that something was cut.
struct Start {
    text: String,
    most: usize,
}

impl Write for Start {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let room = (self.most + 1).saturating_sub(self.text.len());
        let end = (room..=more.len()).find(|end| more.is_char_boundary(*end)).unwrap_or(more.len());
        self.text.push_str(&more[..end]);
        if end < more.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        let long = "ä".repeat(100);
        for most in 0..=201 {
            let cut = cut_text(&long, most);
            assert!(cut.len() <= most.max(CUT_MARK.len()), "{most}: {}", cut.len());
            assert_eq!(cut.ends_with(CUT_MARK), most < long.len());
        }
    }

    #[test]
    fn a_value_is_not_formatted_beyond_the_limit() {
        struct Endless;
        impl fmt::Debug for Endless {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                loop {
                    f.write_str("äb")?;
                }
            }
        }
        let cut = cut_debug(&Endless, 64);
        assert!(cut.len() <= 64 && cut.ends_with(CUT_MARK), "{cut}");
        assert_eq!(cut_debug(&"x", 64), "\"x\"");
    }
}
