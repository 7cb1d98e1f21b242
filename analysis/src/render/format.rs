//! Formats figures and texts for people. Pure functions.

pub(super) use candlescope_schema::numbers::{
    bytes, count, day, duration, flops, joules, percent, significant, utc, value, watts,
};

/// A figure with the half width of its 95 % interval, if it has one: `512 ±3.1 %`.
pub(super) fn with_error(figure: String, relative: Option<f64>) -> String {
    relative.map_or(figure.clone(), |error| format!("{figure} ±{}", percent(error)))
}

/// Two values of `unit`, with the unit once if it is the same: `13.9 – 14.0 ms`.
pub(super) fn range(unit: &str, low: f64, high: f64) -> String {
    let (low, high) = (value(unit, low), value(unit, high));
    match (low.rsplit_once(' '), high.rsplit_once(' ')) {
        (Some((number, a)), Some((_, b))) if a == b => format!("{number} – {high}"),
        _ => format!("{low} – {high}"),
    }
}

/// Text cut to `most` characters, keeping the end: the last names of a path are the most telling.
pub(super) fn tail(text: &str, most: usize) -> String {
    let length = text.chars().count();
    if length <= most {
        return text.to_string();
    }
    let kept: String = text.chars().skip(length - most.saturating_sub(1)).collect();
    format!("…{kept}")
}

/// A path cut to `most` characters, keeping the first name and the last ones: `decode/…/mlp/linear`.
pub(super) fn path(text: &str, most: usize) -> String {
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

/// A sentence as it goes on after a colon.
pub(super) fn after_colon(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}", first.to_lowercase(), letters.as_str()))
}

/// A number of things: `1 window`, `2 windows`.
pub(super) fn plural(n: u64, thing: &str) -> String {
    format!("{} {thing}{}", count(n), if n == 1 { "" } else { "s" })
}

/// Text cut to `most` characters, keeping the beginning.
pub(super) fn head(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_string();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// Control characters made visible, so that a name cannot move the cursor, colour the screen or break a line.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || is_bidi(c) { '\u{fffd}' } else { c }).collect()
}

fn is_bidi(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A JSON value on one line for people: strings without quotes, lists and objects compact.
pub(super) fn json(value: &serde_json::Value) -> String {
    use serde_json::Value;
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_u64() {
            // Years, versions and small numbers read better without separators.
            Some(n) if n >= 100_000 => count(n),
            _ => number.to_string(),
        },
        Value::Array(items) => items.iter().map(json).collect::<Vec<_>>().join(", "),
        Value::Object(map) => map.iter().map(|(k, v)| format!("{k} {}", json(v))).collect::<Vec<_>>().join(", "),
        Value::Null => "unknown".to_string(),
        Value::Bool(true) => "yes".to_string(),
        Value::Bool(false) => "no".to_string(),
    }
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
        assert_eq!([plural(1, "window"), plural(2000, "window")], ["1 window", "2,000 windows"]);
    }

    #[test]
    fn ranges_say_their_unit_once() {
        assert_eq!(range("ns", 13.91e6, 14.02e6), "13.9 – 14.0 ms");
        assert_eq!(range("ns", 999e3, 1.5e6), "999 µs – 1.50 ms");
        assert_eq!(range("tokens/s", 71.7, 71.84), "71.7 – 71.8");
    }

    #[test]
    fn names_cannot_command_the_terminal() {
        assert_eq!(printable("a\u{1b}[31mb\n\u{202e}"), "a\u{fffd}[31mb\u{fffd}\u{fffd}");
        assert_eq!(tail("abcdef", 4), "…def");
        assert_eq!(head("abcdef", 4), "abc…");
        assert_eq!(tail("abc", 4), "abc");
    }
}
