//! Numbers as people read them. Pure functions.

/// Nanoseconds in the unit that leaves one to three digits before the point: `842 ns`, `12.3 µs`, `4.56 ms`, `1.23 s`.
pub fn duration(ns: f64) -> String {
    let magnitude = ns.abs();
    // The boundaries are where three digits would round up to the next unit.
    let (value, unit) = if magnitude < 999.5 {
        (ns, "ns")
    } else if magnitude < 999.5e3 {
        (ns / 1e3, "µs")
    } else if magnitude < 999.5e6 {
        (ns / 1e6, "ms")
    } else {
        (ns / 1e9, "s")
    };
    if unit == "ns" { format!("{value:.0} ns") } else { format!("{} {unit}", significant(value)) }
}

/// Three significant digits without an exponent; thousands separated from 1000 on.
pub fn significant(value: f64) -> String {
    let magnitude = value.abs();
    if !value.is_finite() {
        "–".to_string()
    } else if magnitude >= 999.5 {
        count_f64(value)
    } else if magnitude >= 99.95 {
        format!("{value:.0}")
    } else if magnitude >= 9.995 {
        format!("{value:.1}")
    } else if magnitude >= 0.01 || magnitude == 0.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.1e}")
    }
}

fn count_f64(value: f64) -> String {
    let sign = if value < 0.0 { "-" } else { "" };
    format!("{sign}{}", count(value.abs().round() as u64))
}

/// A whole number with its thousands separated: `12,345`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// A figure with the half width of its 95 % interval, where it has one: `512 ±3.1 %`.
pub fn with_error(figure: String, relative: Option<f64>) -> String {
    relative.map_or(figure.clone(), |error| format!("{figure} ±{}", percent(error)))
}

/// A share as a percentage: `12.3 %`; `<0.1 %` for what is there but would read as nothing.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if share > 0.0 && percent < 0.05 { "<0.1 %".to_string() } else { format!("{percent:.1} %") }
}

/// Bytes in binary units: `512 B`, `1.50 GiB`.
pub fn bytes(n: f64) -> String {
    scaled(n, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"])
}

/// FLOPs in decimal units: `15.0 GFLOP`.
pub fn flops(n: f64) -> String {
    scaled(n, 1000.0, &["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"])
}

/// Joules in the unit that leaves one to three digits before the point: `312 mJ`, `1.25 kJ`.
pub fn joules(value: f64) -> String {
    let (value, unit) = match value.abs() {
        v if v >= 999.5e3 => (value / 1e6, "MJ"),
        v if v >= 999.5 => (value / 1e3, "kJ"),
        v if v >= 0.9995 || v == 0.0 => (value, "J"),
        _ => (value * 1e3, "mJ"),
    };
    format!("{} {unit}", significant(value))
}

/// Watts.
pub fn watts(value: f64) -> String {
    format!("{} W", significant(value))
}

fn scaled(n: f64, step: f64, units: &[&str]) -> String {
    let mut value = n;
    let mut unit = 0;
    while value.abs() >= step * 0.9995 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    if unit == 0 { format!("{value:.0} {}", units[0]) } else { format!("{} {}", significant(value), units[unit]) }
}

/// A value of `unit` as written in `metrics.json`.
pub fn value(unit: &str, value: f64) -> String {
    match unit {
        "count" if value.fract() == 0.0 && (0.0..1e15).contains(&value) => count(value as u64),
        "ns" => duration(value),
        "bytes" => bytes(value),
        "ratio" => percent(value),
        "J" => joules(value),
        "W" => watts(value),
        _ => significant(value),
    }
}

/// Two values of `unit`, the unit said once where it is the same: `13.9 – 14.0 ms`.
pub fn range(unit: &str, low: f64, high: f64) -> String {
    let (low, high) = (value(unit, low), value(unit, high));
    match (low.rsplit_once(' '), high.rsplit_once(' ')) {
        (Some((number, a)), Some((_, b))) if a == b => format!("{number} – {high}"),
        _ => format!("{low} – {high}"),
    }
}

/// Text cut to `most` characters, the end kept: the last names of a path tell most.
pub fn tail(text: &str, most: usize) -> String {
    let length = text.chars().count();
    if length <= most {
        return text.to_string();
    }
    let kept: String = text.chars().skip(length - most.saturating_sub(1)).collect();
    format!("…{kept}")
}

/// A path cut to `most` characters: its first name and its last ones tell most, `decode/…/mlp/linear`.
pub fn path(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_string();
    }
    let first = text.split('/').next().unwrap_or_default();
    let left = most.saturating_sub(first.chars().count() + 3);
    // Whole names from the end, as many as there is room for.
    let starts = text.match_indices('/').map(|(at, _)| &text[at + 1..]);
    match starts.skip(1).find(|rest| rest.chars().count() <= left) {
        Some(rest) => format!("{first}/…/{rest}"),
        None => tail(text, most),
    }
}

/// A number of things: `1 window`, `2 windows`.
pub fn plural(n: u64, thing: &str) -> String {
    format!("{} {thing}{}", count(n), if n == 1 { "" } else { "s" })
}

/// Text cut to `most` characters, the beginning kept.
pub fn head(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_string();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// Control characters made visible, so that a name cannot move the cursor, colour the screen or break a line.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || is_bidi(c) { '\u{fffd}' } else { c }).collect()
}

fn is_bidi(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Unix nanoseconds as `2026-01-31 12:34:56 UTC`.
pub fn utc(ns: i64) -> String {
    let seconds = ns.div_euclid(1_000_000_000);
    let (days, time) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", time / 3600, time / 60 % 60, time % 60)
}

/// Days since 1970-01-01 as a date [Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days].
fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// A JSON value on one line for people: strings bare, lists and objects compact.
pub fn json(value: &serde_json::Value) -> String {
    use serde_json::Value;
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_u64() {
            // Years, versions and small numbers read better bare.
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
    fn durations_choose_their_unit() {
        let cases = [
            (0.0, "0 ns"),
            (842.4, "842 ns"),
            (999.4, "999 ns"),
            (999.6, "1.00 µs"),
            (12_345.0, "12.3 µs"),
            (999_600.0, "1.00 ms"),
            (4_560_000.0, "4.56 ms"),
            (1.234e9, "1.23 s"),
            (4.2e12, "4,200 s"),
        ];
        for (ns, text) in cases {
            assert_eq!(duration(ns), text);
        }
    }

    #[test]
    fn counts_and_shares() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0.0, 0.0001, 0.1234, 1.0].map(percent), ["0.0 %", "<0.1 %", "12.3 %", "100.0 %"]);
        assert_eq!(bytes(512.0), "512 B");
        assert_eq!(bytes(1.5 * 1024.0 * 1024.0 * 1024.0), "1.50 GiB");
        assert_eq!(flops(15.009e9), "15.0 GFLOP");
        assert_eq!(significant(1234.5), "1,235");
        assert_eq!(significant(0.001), "1.0e-3");
    }

    #[test]
    fn paths_lose_their_middle() {
        assert_eq!(path("decode/block/mlp/linear", 19), "decode/…/mlp/linear");
        assert_eq!(path("decode/block/mlp/linear", 18), "decode/…/linear");
        assert_eq!(path("decode/block/mlp/linear", 14), "…ck/mlp/linear");
        assert_eq!(path("decode/block", 12), "decode/block");
        assert_eq!(path("décode/é", 4), "…e/é");
        assert_eq!([plural(1, "window"), plural(2000, "window")], ["1 window", "2,000 windows"]);
    }

    #[test]
    fn energy_chooses_its_unit() {
        assert_eq!(
            [0.0, 0.0124, 1.0, 1250.0, 2.5e6].map(joules),
            ["0.00 J", "12.4 mJ", "1.00 J", "1.25 kJ", "2.50 MJ"]
        );
        assert_eq!(watts(694.5), "694 W");
    }

    #[test]
    fn ranges_say_their_unit_once() {
        assert_eq!(range("ns", 13.91e6, 14.02e6), "13.9 – 14.0 ms");
        assert_eq!(range("ns", 999e3, 1.5e6), "999 µs – 1.50 ms");
        assert_eq!(range("tokens/s", 71.7, 71.84), "71.7 – 71.8");
    }

    #[test]
    fn dates_by_hand() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_400_000_000_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_767_225_599_999_999_999), "2025-12-31 23:59:59 UTC");
        assert_eq!(utc(-1), "1969-12-31 23:59:59 UTC");
    }

    #[test]
    fn names_cannot_command_the_terminal() {
        assert_eq!(printable("a\u{1b}[31mb\n\u{202e}"), "a\u{fffd}[31mb\u{fffd}\u{fffd}");
        assert_eq!(tail("abcdef", 4), "…def");
        assert_eq!(head("abcdef", 4), "abc…");
        assert_eq!(tail("abc", 4), "abc");
    }
}
