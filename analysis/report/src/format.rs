//! Formats figures and texts for people. Pure functions.

pub(super) use candlescope_document::text::{head, path, printable, tail};
pub(super) use candlescope_schema::numbers::{
    bytes, count, day, duration, flops, gain, joules, percent, plural, signed_percent, significant, utc, value, watts,
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

/// A sentence as it goes on after a colon.
pub(super) fn after_colon(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}", first.to_lowercase(), letters.as_str()))
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
    fn ranges_say_their_unit_once() {
        assert_eq!(range("ns", 13.91e6, 14.02e6), "13.9 – 14.0 ms");
        assert_eq!(range("ns", 999e3, 1.5e6), "999 µs – 1.50 ms");
        assert_eq!(range("tokens/s", 71.7, 71.84), "71.7 – 71.8");
    }
}
