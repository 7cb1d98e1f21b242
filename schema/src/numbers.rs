//! Formats numbers and dates for people, in findings and reports. Pure functions.

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

/// Reads a share above 0 and up to 1, written as `0.01` or `1%`; `None` for anything else.
pub fn read_share(text: &str) -> Option<f64> {
    let share: f64 = match text.strip_suffix('%') {
        Some(percent) => percent.trim_end().parse::<f64>().ok()? / 100.0,
        None => text.parse().ok()?,
    };
    (share > 0.0 && share <= 1.0).then_some(share)
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

/// A share as a percentage: `12.3 %`; `<0.1 %` for a positive share that would otherwise be rounded to zero.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if share > 0.0 && percent < 0.05 { "<0.1 %".to_string() } else { format!("{percent:.1} %") }
}

/// A change as a percentage, with its sign: `+5.1 %`, `−12.3 %`; none has no sign.
pub fn signed_percent(share: f64) -> String {
    let shown = percent(share.abs());
    if shown == "0.0 %" { shown } else { format!("{}{shown}", if share < 0.0 { "−" } else { "+" }) }
}

/// A gain as a percentage; a loss has a minus.
pub fn gain(share: f64) -> String {
    if share < 0.0 { format!("−{}", percent(-share)) } else { percent(share) }
}

/// A number of things: `1 window`, `2 windows`.
pub fn plural(n: u64, thing: &str) -> String {
    format!("{} {thing}{}", count(n), if n == 1 { "" } else { "s" })
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

/// Watts, with three significant digits.
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

/// A value with its unit, which is one of the units of `run.json` and `metrics.json`.
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

/// Unix nanoseconds as `2026-01-31 12:34:56 UTC`.
pub fn utc(ns: i64) -> String {
    let time = ns.div_euclid(1_000_000_000).rem_euclid(86_400);
    format!("{} {:02}:{:02}:{:02} UTC", day(ns), time / 3600, time / 60 % 60, time % 60)
}

/// Nanoseconds of a day.
pub const DAY_NS: i64 = 86_400_000_000_000;

/// The day of Unix nanoseconds in UTC, as days since 1970-01-01.
pub fn day_number(ns: i64) -> i64 {
    ns.div_euclid(DAY_NS)
}

/// The day of Unix nanoseconds in UTC: `2026-01-31`.
pub fn day(ns: i64) -> String {
    let (year, month, day) = civil(day_number(ns));
    format!("{year:04}-{month:02}-{day:02}")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        assert_eq!([plural(1, "window"), plural(2000, "window")], ["1 window", "2,000 windows"]);
    }

    #[test]
    fn only_changes_have_a_sign() {
        assert_eq!([-0.123, 0.0, 0.051].map(signed_percent), ["−12.3 %", "0.0 %", "+5.1 %"]);
        assert_eq!([-0.123, 0.0, 0.051].map(gain), ["−12.3 %", "0.0 %", "5.1 %"]);
    }

    #[test]
    fn dates_by_hand() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_400_000_000_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_767_225_599_999_999_999), "2025-12-31 23:59:59 UTC");
        assert_eq!(utc(-1), "1969-12-31 23:59:59 UTC");
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        let at = |seconds: i64| day(seconds * 1_000_000_000);
        assert_eq!(at(0), "1970-01-01");
        assert_eq!(at(951_782_399), "2000-02-28");
        assert_eq!(at(951_782_400), "2000-02-29");
        assert_eq!(at(1_773_446_400), "2026-03-14");
        assert_eq!(at(-1), "1969-12-31");
        assert_eq!([-1, 0, DAY_NS - 1, DAY_NS].map(day_number), [-1, 0, 0, 1]);
    }

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
    fn energy_chooses_its_unit() {
        assert_eq!(
            [0.0, 0.0124, 1.0, 1250.0, 2.5e6].map(joules),
            ["0.00 J", "12.4 mJ", "1.00 J", "1.25 kJ", "2.50 MJ"]
        );
        assert_eq!(watts(694.5), "694 W");
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
}
