//! Texts that somebody else wrote, such as names in runs and answers of servers, where they are shown or opened.

use std::borrow::Cow;

/// Whether a screen may act on the character instead of showing it: those that control, and those that change the
/// direction of text.
pub fn steers_screen(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A field of CSV [RFC 4180, with line feeds].
///
/// ```
/// use candlescope_schema::csv_field;
/// assert_eq!(csv_field("model.layers"), "model.layers");
/// assert_eq!(csv_field("no, \"never\""), "\"no, \"\"never\"\"\"");
/// assert_eq!(csv_field("=1+1"), "=1+1");
/// ```
pub fn csv_field(text: &str) -> Cow<'_, str> {
    match text.contains(['"', ',', '\n', '\r']) {
        true => Cow::Owned(format!("\"{}\"", text.replace('"', "\"\""))),
        false => Cow::Borrowed(text),
    }
}

/// The same of a text that others wrote: one that a spreadsheet would take for a formula begins with an apostrophe.
/// Blanks before it do not keep a spreadsheet from it.
///
/// ```
/// use candlescope_schema::csv_field_of_others;
/// assert_eq!(csv_field_of_others("=1+1"), "'=1+1");
/// assert_eq!(csv_field_of_others("=1,1"), "\"'=1,1\"");
/// ```
pub fn csv_field_of_others(text: &str) -> Cow<'_, str> {
    let is_formula = text.trim_start().starts_with(['=', '+', '-', '@']) || text.starts_with(['\t', '\r', '\n']);
    match is_formula {
        true => Cow::Owned(csv_field(&format!("'{text}")).into_owned()),
        false => csv_field(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_spreadsheet_would_run_is_quoted() {
        for formula in ["=1", "+1", "-1", "@a", "\t=1", " =1", " @x"] {
            assert_eq!(csv_field_of_others(formula), format!("'{formula}"));
        }
        assert_eq!(csv_field_of_others("\r=1"), "\"'\r=1\"");
        assert_eq!(csv_field_of_others("model.layers"), "model.layers");
    }

    #[test]
    fn a_screen_is_steered_by_controls_and_directions_alone() {
        for c in ['\x1b', '\n', '\t', '\x7f', '\u{9b}', '\u{202e}', '\u{2066}'] {
            assert!(steers_screen(c), "{c:?}");
        }
        for c in ['a', ' ', 'é', '木', '\u{200d}', '\u{2065}'] {
            assert!(!steers_screen(c), "{c:?}");
        }
    }
}
