//! The unit of a number, from the text that shows it.

/// Units of texts, the unit in which we compute, and how many of these one has.
const UNITS: [(&str, &str, f64); 15] = [
    ("ns", "ns", 1.0),
    ("µs", "ns", 1e3),
    ("ms", "ns", 1e6),
    ("s", "ns", 1e9),
    ("%", "ratio", 0.01),
    ("B", "bytes", 1.0),
    ("KiB", "bytes", 1024.0),
    ("MiB", "bytes", 1_048_576.0),
    ("GiB", "bytes", 1_073_741_824.0),
    ("TiB", "bytes", 1_099_511_627_776.0),
    ("kB", "bytes", 1e3),
    ("MB", "bytes", 1e6),
    ("GB", "bytes", 1e9),
    ("TB", "bytes", 1e12),
    ("PB", "bytes", 1e15),
];
/// Prefixes of other units; `Mi` before `M`, with which it begins.
const PREFIXES: [(&str, f64); 13] = [
    ("", 1.0),
    ("Ki", 1024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("Ti", 1_099_511_627_776.0),
    ("n", 1e-9),
    ("µ", 1e-6),
    ("m", 1e-3),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("P", 1e15),
];

/// The unit of `value` (`ns`, `bytes`, `ratio`, `FLOP/s`, …), which `text` shows rounded, as `1.20 ms` shows 1,203,456;
/// `None` if the text has no unit, or shows another number. So a unit is said only where both agree.
pub(crate) fn unit_of(text: &str, value: f64) -> Option<String> {
    let text = text.trim();
    let at = text.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | ',' | '-' | '−' | '+'))?;
    let (number, unit) = (text[..at].replace(',', "").replace('−', "-"), text[at..].trim_start());
    let shown: f64 = number.parse().ok()?;
    if unit.is_empty() || unit.contains(|c: char| c.is_whitespace() || c.is_ascii_digit() || "()–±".contains(c)) {
        return None;
    }
    let decimals = number.split_once('.').map_or(0, |(_, after)| after.len());
    // What rounding takes, and a little more: prefixes are further apart.
    let rounded = (0.51 * 0.1_f64.powi(i32::try_from(decimals).ok()?)).max(shown.abs() * 0.006);
    let shows = |scale: f64| (shown - value / scale).abs() <= rounded;
    let known = UNITS.iter().find(|(of_text, _, scale)| *of_text == unit && shows(*scale));
    let prefixed = || {
        PREFIXES.iter().find_map(|(prefix, scale)| {
            let bare = unit.strip_prefix(prefix).filter(|bare| !bare.is_empty() && shows(*scale))?;
            Some(bare.to_string())
        })
    };
    known.map(|(_, of_value, _)| (*of_value).to_string()).or_else(prefixed)
}

#[cfg(test)]
mod tests {
    use super::unit_of;

    #[test]
    fn a_unit_is_said_where_text_and_number_agree() {
        for (text, value, unit) in [
            ("1.20 ms", 1_203_456.0, "ns"),
            ("999 ns", 999.2, "ns"),
            ("12.5 %", 0.1249, "ratio"),
            ("1.50 GiB", 1.5 * 1_073_741_824.0, "bytes"),
            ("1,024 MiB", 1_073_741_824.0, "bytes"),
            ("312 mJ", 0.3123, "J"),
            ("41.0 TFLOP/s", 41.02e12, "FLOP/s"),
            ("1.20 PFLOP", 1.2e15, "FLOP"),
            ("300 GB/s", 3.001e11, "B/s"),
            ("1 MiB/s", 1_048_576.0, "B/s"),
            ("12.0 KiB/s", 12_288.0, "B/s"),
            ("12.3 µs", 12_345.0, "ns"),
            ("1.50 $", 1.5, "$"),
            ("2.0 ×", 2.0, "×"),
            ("71.7 tokens/s", 71.68, "tokens/s"),
            ("−3.2 %", -0.0321, "ratio"),
            ("0 ns", 0.3, "ns"),
            ("41.0 GFLOP/s", 41.0, "GFLOP/s"),
        ] {
            assert_eq!(unit_of(text, value).as_deref(), Some(unit), "{text} of {value}");
        }
    }

    #[test]
    fn and_nowhere_else() {
        for (text, value) in [
            ("3 of 5", 0.6),
            ("12", 12.0),
            ("1.30 ms", 1.2e6),
            ("1.20 – 1.30 ms", 1.2e6),
            ("<0.1 %", 0.0001),
            ("– ms", 1.0),
            ("", 1.0),
            ("1.20 ms (n 3)", 1.2e6),
            ("$1.50", 1.5),
            ("12 of 14", 12.0),
            ("1.2e-3 GFLOP", 1.2e6),
            ("~3.10 J", 3.1),
        ] {
            assert_eq!(unit_of(text, value), None, "{text} of {value}");
        }
        // A number that was kept in the unit of the text has that one.
        assert_eq!(unit_of("1.20 ms", 1.2).as_deref(), Some("ms"));
        assert_eq!(unit_of("5.0 %", 5.0).as_deref(), Some("%"));
    }
}
