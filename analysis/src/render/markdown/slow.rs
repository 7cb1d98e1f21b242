//! The slowest requests in `report.md`.

use super::super::format::{count, duration};
use super::super::slow_requests::{PARTS, slow_requests};
use super::text::{escape, table};
use crate::passes::Analysis;
use std::fmt::Write as _;

/// The slowest requests, taken apart; nothing if there are fewer than two to compare.
pub(super) fn slow(out: &mut String, analysis: &Analysis) {
    let Some(slow) = slow_requests(analysis) else { return };
    let _ = writeln!(
        out,
        "\n## Slow requests\n\nThe slowest of {}, and where their time went; the parts add up to the duration.\n",
        count(slow.n as u64)
    );
    let mut header = vec!["request", "duration", "of the median", "prompt", "output"];
    header.extend(PARTS.iter().map(|(name, _)| *name));
    header.push("what stands out");
    let rows = slow.rows.iter().map(|row| {
        let [prompt, output] = row.tokens();
        let first = [
            row.figures.request.to_string(),
            duration(row.figures.dur_ns as f64),
            row.times_in_words(),
            prompt,
            output,
        ];
        let parts = row.parts_ns.iter().map(|ns| duration(*ns as f64));
        first.into_iter().chain(parts).chain([escape(&row.why())]).collect()
    });
    let none = || String::from("–");
    let usual = [String::from("median"), duration(slow.median_ns), none(), none(), none()];
    let usual = usual.into_iter().chain(slow.usual_ns.iter().map(|ns| duration(*ns))).chain([String::new()]).collect();
    out.push_str(&table(&header, rows.chain([usual])));
}
