//! Durations in arguments.

use anyhow::{Result, anyhow};
use std::time::Duration;

/// `30`, `30s`, `1.5m`, `200ms`, `7d`.
pub(crate) fn time(text: &str) -> Result<Duration> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[number.len()..] {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => f64::NAN,
    };
    let seconds = number.trim().parse::<f64>().map_or(f64::NAN, |n| n * unit);
    let time = Some(seconds).filter(|s| *s > 0.0 && *s <= 1e7).map(Duration::from_secs_f64);
    time.ok_or_else(|| anyhow!("`{text}` is no time: write 30s, 200ms or 2m"))
}

/// The same as a number of seconds.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    time(text).map(|time| time.as_secs_f64()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn seconds_are_written_with_their_unit_or_without() {
        let all = ["8", "8s", "0.5", "500ms", "2m"].map(|text| seconds(text).unwrap());
        assert_eq!(all, [8.0, 8.0, 0.5, 0.5, 120.0]);
        assert!(["", "0", "-1", "8x", "nan", "inf"].iter().all(|text| seconds(text).is_err()));
    }
}
