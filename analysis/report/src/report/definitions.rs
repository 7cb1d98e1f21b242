//! What the figures of a report mean.

use super::super::format::{count, duration};
use super::super::headline_figures::{Figure, FigureValue, figures};
use super::super::shown_definitions::shown_definitions;
use candlescope_document::{Cell, Forms, Row, Section, Table, column, missing, sentences, words};
use candlescope_figures::Analysis;
use candlescope_figures::definitions::{Definition, STATISTICS};
use candlescope_figures::memory::RESIDENT;

/// Every figure that is shown.
pub(super) fn section(analysis: &Analysis) -> Section {
    let shown = figures(analysis);
    let rows = shown_definitions(analysis).map(|d| row(d, analysis, &shown));
    let columns = vec![
        words("label"),
        words("key"),
        column("n", ""),
        column("resolution", ""),
        sentences("meaning"),
        sentences("same as"),
    ];
    let note = format!(
        "Measured: read off a clock or sensor. Derived: computed from measured and analytic figures. {STATISTICS}"
    );
    Section::new("definitions", "Definitions", note).only(Forms::FILES).with(Table::new(
        "figure",
        columns,
        rows.collect(),
    ))
}

fn row(d: &Definition, analysis: &Analysis, shown: &[Figure<'_>]) -> Row {
    let n = shown.iter().find(|f| f.definition.key == d.key).map(|f| match f.value {
        FigureValue::Spread(s) => s.n,
        FigureValue::Single(_, n) => n,
    });
    let maybe = |text: Option<String>| text.map_or(missing(), Cell::from);
    let cells = vec![
        d.label.to_string().into(),
        d.key.to_string().into(),
        maybe(n.map(|n| count(n as u64))),
        maybe(resolution(d, analysis)),
        d.meaning.to_string().into(),
        d.same_as.to_string().into(),
    ];
    Row::new(d.title, cells)
}

/// How finely a figure can be read off its clock or sensor.
fn resolution(d: &Definition, analysis: &Analysis) -> Option<String> {
    let clock = &analysis.manifest.clock;
    match (d.key, d.unit) {
        // The CPU time of a thread is counted by the operating system, not by us.
        ("background", _) => None,
        ("peak_memory", _) if analysis.memory.peak_resident().is_some_and(|peak| !peak.kept_by_kernel) => {
            let period = analysis.memory.host(RESIDENT).and_then(|s| s.period_ns)?;
            Some(format!("a sample every {}", duration(period as f64)))
        }
        (_, "ns" | "tokens/s") => {
            let tick = clock.ticks_per_second;
            (tick > 0.0).then(|| format!("{:.2} ns (clock tick)", 1e9 / tick))
        }
        _ => None,
    }
}
