//! Texts made harmless, cut and wrapped. Pure functions.

use textwrap::WordSeparator;
use textwrap::core::Word;

/// Shown where a value is missing.
pub const UNKNOWN: &str = "–";

/// Control characters made visible, so that a name cannot move the cursor, colour the screen or break a line.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || is_bidi(c) { '\u{fffd}' } else { c }).collect()
}

/// The same of a text whose lines stay.
pub(crate) fn printable_lines(text: &str) -> String {
    text.lines().map(|line| printable(&line.replace('\t', "    "))).collect::<Vec<_>>().join("\n")
}

fn is_bidi(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text with a capital at its begin.
pub fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}", first.to_uppercase(), letters.as_str()))
}

/// A sentence: with a capital at its begin and a full stop.
pub fn sentence(text: &str) -> String {
    format!("{}.", capital(text.trim_end_matches('.')))
}

/// A name of others in prose: between backticks, of which it holds none itself.
pub fn code(name: &str) -> String {
    format!("`{}`", printable(name).replace('`', "ˋ"))
}

/// Text cut to `most` characters, keeping the beginning.
pub fn head(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_string();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// Text cut to `most` characters, keeping the end: the last names of a path are the most telling.
pub fn tail(text: &str, most: usize) -> String {
    let length = text.chars().count();
    if length <= most {
        return text.to_string();
    }
    let kept: String = text.chars().skip(length - most.saturating_sub(1)).collect();
    format!("…{kept}")
}

/// A path cut to `most` characters, keeping the first name and the last ones: `decode/…/mlp/linear`.
pub fn path(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_string();
    }
    let first = text.split('/').next().unwrap_or_default();
    let left = most.saturating_sub(first.chars().count() + 3);
    // Whole names from the end, as many as there is room for; the second one at the earliest.
    let room = match left.checked_sub(1) {
        Some(others) => text.char_indices().rev().nth(others).map_or(0, |(at, _)| at),
        None => text.len(),
    };
    let second = text.match_indices('/').nth(1).map(|(at, _)| at);
    let from = second.map(|second| second.max(room.saturating_sub(1)));
    match from.and_then(|from| text.as_bytes()[from..].iter().position(|byte| *byte == b'/').map(|at| from + at)) {
        Some(slash) => format!("{first}/…/{}", &text[slash + 1..]),
        None => tail(text, most),
    }
}

/// A number with its thousands separated.
pub(crate) fn count(n: usize) -> String {
    let digits = n.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(",")
}

/// Whether a link leads to a file beside the document, and nowhere else.
pub(crate) fn is_beside(target: &str) -> bool {
    !target.contains([':', '\\']) && !target.starts_with('/')
}

/// Text cut to `most` characters: a path in its middle, anything else at its end.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.contains('/') { path(text, most) } else { head(text, most) }
}

/// Lines of at most `width` characters, broken at spaces if there are any. Takes time with the length of the text.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    wrap_at(&text.split_whitespace().collect::<Vec<_>>().join(" "), width, WordSeparator::AsciiSpace)
}

/// The same of a name. Paths have no spaces, and are broken after slashes if there are any.
pub(crate) fn wrap_name(name: &str, width: usize) -> Vec<String> {
    if name.contains(char::is_whitespace) {
        return wrap(name, width);
    }
    wrap_at(name, width, WordSeparator::Custom(parts_of_path))
}

fn parts_of_path(path: &str) -> Box<dyn Iterator<Item = Word<'_>> + '_> {
    Box::new(path.split_inclusive('/').map(Word::from))
}

fn wrap_at(text: &str, width: usize, separator: WordSeparator) -> Vec<String> {
    let options = textwrap::Options::new(width)
        .wrap_algorithm(textwrap::WrapAlgorithm::FirstFit)
        .word_separator(separator)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    textwrap::wrap(text, options).into_iter().map(std::borrow::Cow::into_owned).collect()
}

/// The pieces of prose in turn: what stands outside of backticks, and what between them. A backtick that has no partner
/// stays in the text.
pub(crate) fn pieces(text: &str) -> impl Iterator<Item = (&str, bool)> {
    let mut rest = Some(text);
    let mut name: Option<&str> = None;
    std::iter::from_fn(move || {
        if let Some(name) = name.take() {
            return Some((name, true));
        }
        let text = rest?;
        match text.split_once('`').and_then(|(before, after)| Some((before, after.split_once('`')?))) {
            Some((before, (code, after))) => {
                (name, rest) = (Some(code), Some(after));
                Some((before, false))
            }
            None => {
                rest = None;
                Some((text, false))
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lose_their_middle() {
        assert_eq!(path("decode/block/mlp/linear", 19), "decode/…/mlp/linear");
        assert_eq!(path("decode/block/mlp/linear", 18), "decode/…/linear");
        assert_eq!(path("decode/block/mlp/linear", 14), "…ck/mlp/linear");
        assert_eq!(path("decode/block", 12), "decode/block");
        assert_eq!(path("décode/é", 4), "…e/é");
        assert_eq!(path("décode/é/ä/öü", 12), "décode/…/öü");
        assert_eq!(path("decode/a/b/", 9), "decode/…/");
        assert_eq!(path(&"a/".repeat(2_000_000), 9), "a/…/a/a/", "in time that grows with its length");
    }

    #[test]
    fn names_cannot_command_the_terminal() {
        assert_eq!(printable("a\u{1b}[31mb\n\u{202e}"), "a\u{fffd}[31mb\u{fffd}\u{fffd}");
        assert_eq!((tail("abcdef", 4), tail("abc", 4)), ("…def".to_string(), "abc".to_string()));
        assert_eq!(head("abcdef", 4), "abc…");
    }

    #[test]
    fn lines_keep_their_width() {
        assert_eq!(wrap("a bb ccc", 4), ["a bb", "ccc"]);
        assert_eq!(wrap("abcdefghij k", 4), ["abcd", "efgh", "ij k"]);
        assert_eq!(wrap("abcdefgh i", 4), ["abcd", "efgh", "i"]);
        assert_eq!(wrap("", 4), [""]);
    }

    #[test]
    fn a_word_of_megabytes_takes_time_with_its_length() {
        let lines = wrap(&"ä".repeat(4_000_000), 89);
        assert_eq!((lines.len(), lines[0].chars().count()), (44_944, 89));
    }

    #[test]
    fn names_in_prose_are_told_apart() {
        let all: Vec<_> = pieces("run `a` and `b`, ` alone").collect();
        assert_eq!(all, [("run ", false), ("a", true), (" and ", false), ("b", true), (", ` alone", false)]);
    }
}
