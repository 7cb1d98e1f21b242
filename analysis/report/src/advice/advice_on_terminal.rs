//! Findings with gains on a terminal.

use super::diagnosis::{abstentions, nothing_found, rows, steps, together};
use candlescope_document::text::wrap;
use candlescope_figures::advice::Diagnosis;
use std::fmt::Write as _;

/// Columns of a line.
const WIDTH: usize = 110;

/// The findings, ranked, and what could not be judged.
pub fn text(diagnosis: &Diagnosis) -> String {
    let mut out = String::from("What to change, by what it gains\n");
    if diagnosis.findings.is_empty() {
        let _ = writeln!(out, "  {}", nothing_found());
    }
    for (at, row) in rows(diagnosis).iter().enumerate() {
        let head = format!("{}. {}  {}", at + 1, row.advice.code, row.gain);
        let sure = row.advice.confidence.level.name();
        let _ = writeln!(out, "  {head} of a step `{}`, confidence {sure}", row.advice.place.phase);
        let lines = [row.words.message.clone(), format!("→ {}", row.words.remedy)];
        for line in lines.iter().flat_map(|line| wrap(line, WIDTH - 5)) {
            let _ = writeln!(out, "     {line}");
        }
    }
    for line in together(diagnosis).into_iter().chain(steps(diagnosis)) {
        for (nth, part) in wrap(&line, WIDTH - 4).into_iter().enumerate() {
            let _ = writeln!(out, "{}{part}", if nth == 0 { "  " } else { "    " });
        }
    }
    let missing = abstentions(diagnosis);
    if !missing.is_empty() {
        let _ = writeln!(out, "  Not judged:");
    }
    for (codes, what, record) in missing {
        for (nth, part) in wrap(&format!("{codes}: {what} → {record}"), WIDTH - 6).into_iter().enumerate() {
            let _ = writeln!(out, "{}{part}", if nth == 0 { "    " } else { "      " });
        }
    }
    out
}
