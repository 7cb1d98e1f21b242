//! Prometheus's text format, as far as figures need it: samples by name and labels. Without I/O.

use std::collections::BTreeMap;

/// More samples than this are not read.
const MOST_SAMPLES: usize = 20_000;

/// Values by series, as `name{label="value"}`. Lines that are no samples are left out.
pub fn parse(text: &str) -> BTreeMap<String, f64> {
    parse_some(text, |_| true)
}

/// Those of `parse` whose metric is wanted: a program with many paths has far more series than are of interest.
pub fn parse_some(text: &str, wanted: impl Fn(&str) -> bool) -> BTreeMap<String, f64> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let named = |line: &&str| wanted(line.split(|c: char| c == '{' || c.is_whitespace()).next().unwrap_or_default());
    lines.filter(named).filter_map(sample).take(MOST_SAMPLES).collect()
}

fn sample(line: &str) -> Option<(String, f64)> {
    let end = match line.find('{') {
        Some(open) => open + 1 + closing(&line[open + 1..])? + 1,
        None => line.find(char::is_whitespace)?,
    };
    let (series, rest) = line.split_at(end);
    // A time may follow.
    let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
    value.is_finite().then(|| (series.to_string(), value))
}

/// Where the labels end: braces in their values do not count.
fn closing(labels: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in labels.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '}' if !quoted => return Some(at),
            _ => {}
        }
    }
    None
}

/// The value of a label in a series, without the backslashes of the format.
pub fn label(series: &str, name: &str) -> Option<String> {
    let mut rest = series.split_once('{')?.1;
    loop {
        // Only here a label begins: a value may look like one.
        let (key, quoted) = rest.split_once("=\"")?;
        let (value, after) = unquoted(quoted)?;
        if key.trim_start_matches([',', ' ']) == name {
            return Some(value);
        }
        rest = after;
    }
}

/// A value up to its closing quote, and what follows that.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let (mut value, mut escaped) = (String::new(), false);
    for (at, c) in text.char_indices() {
        match c {
            'n' if escaped => value.push('\n'),
            '\\' if !escaped => {
                escaped = true;
                continue;
            }
            '"' if !escaped => return Some((value, &text[at + 1..])),
            // A backslash, a quote, or nothing that the format knows.
            _ => value.push(c),
        }
        escaped = false;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_and_what_is_none() {
        let text = "# HELP a b\na 1\nb{x=\"1}\\\"{\",y=\"2\"} 2.5e3 1700000000\n\nc NaN\nd{ 1\ne\nf{} +Inf\n";
        let found = parse(text);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(parse_some(text, |name| name == "b").len(), 1);
        assert_eq!((found["a"], found["b{x=\"1}\\\"{\",y=\"2\"}"]), (1.0, 2500.0));
        assert_eq!(label("i{host=\"h\",run_id=\"r 1\"}", "run_id").as_deref(), Some("r 1"));
        assert_eq!((label("i{host=\"h\"}", "run_id"), label("i{xrun_id=\"h\"}", "run_id")), (None, None));
    }

    #[test]
    fn labels_are_what_they_were_before_they_were_escaped() {
        let of = |series: &str, name: &str| label(series, name);
        assert_eq!(of("i{m=\"a\\\"b\"}", "m").as_deref(), Some("a\"b"));
        assert_eq!(of("i{m=\"a\\\\\",n=\"line\\nline\"}", "m").as_deref(), Some("a\\"));
        assert_eq!(of("i{m=\"a\\\\\", n=\"line\\nline\"}", "n").as_deref(), Some("line\nline"));
        let like_a_label = "i{m=\"x,run_id=\\\"no\\\"\",run_id=\"yes\"}";
        assert_eq!(of(like_a_label, "run_id").as_deref(), Some("yes"));
        assert_eq!((of("i{m=\"open", "m"), of("i", "m"), of("i{}", "m")), (None, None, None));
    }
}
