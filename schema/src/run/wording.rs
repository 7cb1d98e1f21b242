//! Fills the templates of findings; [`Finding`](super::Finding) describes their form.

use super::evidence::{Evidence, EvidenceValue};
use crate::numbers;

/// Fills `template` with evidence and places. Outside of brackets, an unknown value is shown as a dash.
pub(super) fn fill<'a>(template: &str, evidence: &[Evidence], place: impl Fn(&str) -> Option<&'a String>) -> String {
    let mut out = String::with_capacity(template.len() + 32);
    // Where the bracket began in `out`, and whether all values in it are known so far.
    let mut brackets: Option<(usize, bool)> = None;
    let mut rest = template;
    while let Some(at) = rest.find(['{', '[', ']']) {
        out.push_str(&rest[..at]);
        let mark = rest.as_bytes()[at];
        rest = &rest[at + 1..];
        match mark {
            b'[' => brackets = Some((out.len(), true)),
            b']' => {
                if let Some((start, false)) = brackets.take() {
                    out.truncate(start);
                }
            }
            _ => {
                let (what, after) = rest.split_once('}').unwrap_or((rest, ""));
                rest = after;
                let (name, form) = what.split_once(':').unwrap_or((what, ""));
                let known = evidence.iter().find(|evidence| evidence.name == name);
                match (known, place(name), &mut brackets) {
                    (Some(evidence), _, _) => out.push_str(&shown(evidence, form)),
                    (None, Some(place), _) => out.push_str(place),
                    (None, None, Some((_, all))) => *all = false,
                    (None, None, None) => out.push('–'),
                }
            }
        }
    }
    out.push_str(rest);
    out
}

fn shown(evidence: &Evidence, form: &str) -> String {
    let number = match &evidence.value {
        EvidenceValue::Text(text) => return text.clone(),
        EvidenceValue::Whole(n) if form == "raw" => return n.to_string(),
        EvidenceValue::Whole(n) if form.is_empty() && evidence.unit == "count" => return numbers::count(*n),
        EvidenceValue::Whole(n) => *n as f64,
        EvidenceValue::Real(n) => *n,
    };
    let (sign, form) = match form.strip_prefix('+') {
        Some(form) if number >= 0.0 => ("+", form),
        Some(form) => ("", form),
        None => ("", form),
    };
    let decimals = |form: &str| form.strip_prefix('.').and_then(|digits| digits.parse().ok()).unwrap_or(0);
    if form.is_empty() {
        return numbers::value(&evidence.unit, number);
    }
    if form == "raw" {
        return number.to_string();
    }
    match (form.strip_suffix('%'), form.strip_suffix('e')) {
        (Some(form), _) => format!("{sign}{:.*} %", decimals(form), number * 100.0),
        (_, Some(form)) => format!("{sign}{number:.*e}", decimals(form)),
        _ => format!("{sign}{number:.*}", decimals(form)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(template: &str) -> String {
        let evidence =
            |name: &'static str, unit: &'static str, value| Evidence { name: name.into(), unit: unit.into(), value };
        let known = [
            evidence("n", "count", EvidenceValue::Whole(12_345)),
            evidence("t", "ns", EvidenceValue::Whole(250_000)),
            evidence("s", "ratio", EvidenceValue::Real(0.125)),
            evidence("x", "s", EvidenceValue::Real(-1.26)),
            evidence("word", "text", EvidenceValue::Text("{n}".into())),
        ];
        let path = "decode/linear".to_string();
        fill(template, &known, |name| (name == "path").then_some(&path))
    }

    #[test]
    fn numbers_take_the_form_that_is_asked_for() {
        assert_eq!(filled("{n} of {n:raw} in {t} ({t:raw} ns), {s}"), "12,345 of 12345 in 250 µs (250000 ns), 12.5 %");
        assert_eq!(filled("{s:.2} {s:.0%} {n:.1e} {x:+.1} {s:+.1}"), "0.12 12 % 1.2e4 -1.3 +0.1");
        assert_eq!(filled("`{path}` {word}"), "`decode/linear` {n}", "what was filled in is not filled again");
    }

    #[test]
    fn what_is_not_known_is_left_out_with_what_is_around_it() {
        assert_eq!(filled("a[, {n} b][, {nothing} c {n}]; {nothing}"), "a, 12,345 b; –");
        assert_eq!(filled("open {n"), "open 12,345");
    }
}
