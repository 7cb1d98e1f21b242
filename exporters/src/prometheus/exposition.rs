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

/// The value of a label in a series.
pub fn label<'a>(series: &'a str, name: &str) -> Option<&'a str> {
    let begin = format!("{name}=\"");
    let at =
        series.match_indices(&begin).find(|(at, _)| matches!(series[..*at].chars().last(), Some('{' | ',' | ' ')))?.0;
    let value = &series[at + begin.len()..];
    Some(&value[..value.find('"')?])
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
        assert_eq!(label("i{host=\"h\",run_id=\"r 1\"}", "run_id"), Some("r 1"));
        assert_eq!((label("i{host=\"h\"}", "run_id"), label("i{xrun_id=\"h\"}", "run_id")), (None, None));
    }
}
