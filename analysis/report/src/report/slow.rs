//! The slowest requests, taken apart.

use super::super::format::{count, duration};
use super::super::slow_requests::{PARTS, slow_requests};
use candlescope_document::{Bar, Cell, Forms, Part, Row, Section, Table, column, missing, sentences};
use candlescope_figures::Analysis;

/// Colours of the parts.
const COLORS: [&str; 5] = ["rest", "prefill", "decode", "sample", "outside"];

/// `None` if there are fewer than two to compare. All bars are on one scale: the slowest is whole.
pub(super) fn section(analysis: &Analysis) -> Option<Section> {
    let slow = slow_requests(analysis)?;
    let longest = slow.rows.iter().map(|row| row.figures.dur_ns).max().unwrap_or(0).max(1) as f64;
    let time = |ns: f64| Cell::from(duration(ns));
    let mut rows: Vec<Row> = Vec::new();
    for row in &slow.rows {
        let parts =
            PARTS.iter().zip(COLORS).zip(row.parts_ns).filter(|(_, ns)| *ns > 0).map(|((part, color), ns)| Part {
                name: part.0.to_string(),
                color: color.to_string(),
                share: ns as f64 / longest,
                percent: String::new(),
                amount: duration(ns as f64),
            });
        let mut cells = vec![time(row.figures.dur_ns as f64), row.times_in_words().into()];
        cells.extend(row.tokens().map(Cell::from));
        cells.extend(row.parts_ns.iter().map(|ns| time(*ns as f64)));
        cells.push(row.why().into());
        let bar = Bar::Parts(parts.collect());
        rows.push(Row { bar, ..Row::new(row.figures.request.to_string(), cells) });
    }
    let mut usual = vec![time(slow.median_ns), missing(), missing(), missing()];
    usual.extend(slow.usual_ns.iter().map(|ns| time(*ns)));
    usual.push(String::new().into());
    rows.push(Row::new("median", usual));
    let mut columns =
        vec![column("duration", ""), column("of the median", ""), column("prompt", ""), column("output", "")];
    columns.extend(PARTS.iter().map(|(name, hint)| column(*name, *hint)));
    columns.push(sentences("what stands out"));
    let note = format!(
        "The slowest of {}, and where their time went; the parts add up to the duration, and all bars are on one scale. \
         `candlescope report RUN --request {}` takes the slowest apart, step by step. `candlescope query` shows the \
         intervals of a step: `SELECT * FROM spans WHERE step = N`.",
        count(slow.n as u64),
        slow.rows.first().map_or(0, |row| row.figures.request)
    );
    Some(Section::new("slow", "Slow requests", note).only(Forms::FILES).with(Table::new("request", columns, rows)))
}
