//! Splits a template's tags into tokens as minijinja does: the contents of texts, comments and raw blocks are not code;
//! everything else in tags is.

/// A piece of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'s> {
    /// `{%`, at the beginning of a statement.
    Start,
    /// `{{`, at the beginning of an expression whose value is written.
    Show,
    /// `%}` or `}}`, whichever ends the tag that is open.
    End,
    /// A name or a keyword.
    Word(&'s str),
    /// A text in quotes.
    Text,
    /// The leading digits of a number. What follows them directly is read as a word, which cannot be the name of a
    /// variable.
    Number(&'s str),
    /// Anything else: `.`, `==`, `(`.
    Mark(&'s str),
}

/// The tokens of all tags, up to where minijinja would find an error.
pub(super) fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut rest = source;
    // Counted over all tags, as minijinja does.
    let mut open = 0i64;
    while let Some((tag, after)) = next_tag(rest) {
        let Some(after) = (match tag {
            b'#' => after.split_once("#}").map(|(_, after)| after),
            b'%' => match basic_tag(after, "raw") {
                Some(raw) => after_raw(raw),
                None => code(after, Token::Start, &mut open, &mut found),
            },
            _ => code(after, Token::Show, &mut open, &mut found),
        }) else {
            break;
        };
        rest = after;
    }
    found
}

/// The kind of the next tag, and the source after its start and the whitespace marker.
fn next_tag(source: &str) -> Option<(u8, &str)> {
    let at = source.as_bytes().windows(2).position(|two| two[0] == b'{' && b"{%#".contains(&two[1]))?;
    let after = &source[at + 2..];
    Some((source.as_bytes()[at + 1], after.strip_prefix(['-', '+']).unwrap_or(after)))
}

/// The source after the tag, if the tag is only `name`.
fn basic_tag<'s>(tag: &'s str, name: &str) -> Option<&'s str> {
    let space = |c: char| c.is_ascii_whitespace();
    let rest = tag.trim_start_matches(space).strip_prefix(name)?.trim_start_matches(space);
    rest.strip_prefix(['-', '+']).unwrap_or(rest).strip_prefix("%}")
}

fn after_raw(mut raw: &str) -> Option<&str> {
    loop {
        let (_, tag) = raw.split_once("{%")?;
        if let Some(after) = basic_tag(tag.strip_prefix(['-', '+']).unwrap_or(tag), "endraw") {
            return Some(after);
        }
        raw = tag;
    }
}

/// Reads the code of the tag that begins with `start` up to its end; returns the source after it.
fn code<'s>(mut rest: &'s str, start: Token<'s>, open: &mut i64, found: &mut Vec<Token<'s>>) -> Option<&'s str> {
    let end = if start == Token::Start { "%}" } else { "}}" };
    found.push(start);
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace());
        let closed = rest.strip_prefix(['-', '+']).unwrap_or(rest).strip_prefix(end).or_else(|| rest.strip_prefix(end));
        if let Some(after) = closed.filter(|_| *open == 0) {
            found.push(Token::End);
            return Some(after);
        }
        let first = rest.chars().next()?;
        let length = match first {
            '\'' | '"' => text(rest)?,
            '0'..='9' => number(rest),
            c if is_part(c) => rest.find(|c| !is_part(c)).unwrap_or(rest.len()),
            _ if ["//", "**", "==", "!=", ">=", "<="].iter().any(|two| rest.starts_with(two)) => 2,
            c => c.len_utf8(),
        };
        match first {
            '(' | '[' | '{' => *open += 1,
            ')' | ']' | '}' => *open -= 1,
            _ => {}
        }
        let (token, after) = rest.split_at(length);
        found.push(match first {
            '\'' | '"' => Token::Text,
            '0'..='9' => Token::Number(token),
            c if is_part(c) => Token::Word(token),
            _ => Token::Mark(token),
        });
        rest = after;
    }
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Length in bytes of the quoted text at the start.
fn text(rest: &str) -> Option<usize> {
    let quote = *rest.as_bytes().first()?;
    let mut escaped = false;
    let inside = rest.bytes().skip(1).position(|byte| {
        let ends = byte == quote && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })?;
    Some(inside + 2)
}

/// Length in bytes of the number at the start. No letter of a following name may be taken for a part of the number:
/// only digits belong to it, and the rest is read as a word, which cannot be the name of a namespace.
fn number(rest: &str) -> usize {
    rest.bytes().take_while(u8::is_ascii_digit).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_is_code() {
        let words = |source| {
            let words = tokens(source).into_iter();
            words.filter_map(|token| if let Token::Word(word) = token { Some(word) } else { None }).collect::<Vec<_>>()
        };
        assert_eq!(words("a {{ b }} c {%- set d = 'e' ~ \"f'\\\"\" %}{# {{ g }} #} { h }"), ["b", "set", "d"]);
        assert_eq!(words("{% raw %}{{ ' }}{%- endraw -%}{{ i }}{%raw-%}{% x %}{%endraw%}{{j-}}"), ["i", "j"]);
        assert_eq!(words("{{ {'a': {'b': k}} }}{{ '}}' ~ l }}{{ m"), ["k", "l", "m"]);
        assert_eq!(words("{{ 'open"), [""; 0]);
        assert_eq!(tokens("{{ a.1.b==2 }}").len(), 9);
    }
}
