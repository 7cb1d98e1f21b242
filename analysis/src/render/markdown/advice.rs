//! Findings with gains in `report.md`.

use super::super::advice::{abstentions, rows, steps, together};
use super::text::{escape, table};
use crate::passes::Analysis;
use std::fmt::Write as _;

/// Findings in the report; `candlescope analyze` shows all.
const MOST: usize = 10;

/// The findings, ranked; nothing if nobody looked for them.
pub(super) fn advice(out: &mut String, analysis: &Analysis) {
    let Some(diagnosis) = &analysis.diagnosis else { return };
    out.push_str("\n## What to change\n\n");
    let found = rows(diagnosis);
    if found.is_empty() {
        out.push_str("Nothing that gains 0.5 % of a step or more was found.\n");
    } else {
        out.push_str("Gains are shares of the unobserved step (at 87.5 %, and at 75 and 100 %, of what is attainable); ranked by what the whole run gains.\n\n");
    }
    let cells = found.iter().take(MOST).map(|row| {
        let place = if row.place == row.advice.place.phase { String::new() } else { row.place.clone() };
        vec![
            row.advice.code.to_string(),
            row.gain.clone(),
            escape(&row.advice.place.phase),
            if place.is_empty() { place } else { super::text::code(&place) },
            escape(&row.words.message),
            escape(&row.words.remedy),
            row.advice.confidence.level.name().to_string(),
        ]
    });
    if !found.is_empty() {
        let header = ["finding", "gain", "step", "place", "what was seen", "what to do", "confidence"];
        out.push_str(&table(&header, cells));
        out.push('\n');
    }
    if found.len() > MOST {
        let _ = writeln!(out, "{} more: `candlescope analyze --top 0`.\n", found.len() - MOST);
    }
    for line in together(diagnosis).into_iter().chain(steps(diagnosis)) {
        let _ = writeln!(out, "- {}", escape(&line));
    }
    let missing = abstentions(diagnosis);
    for (codes, what, record) in missing {
        let _ = writeln!(out, "- not judged: {}: {}; {}", escape(&codes), escape(&what), escape(&record));
    }
}
