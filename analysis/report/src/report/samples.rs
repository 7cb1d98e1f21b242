//! What was sampled over time, and the latency of each token.

use super::super::charts::plots;
use super::super::format::{bytes, count, duration, significant, value};
use candlescope_document::{Block, Cell, Forms, MostRows, Row, Section, Table, column, figure, missing, words};
use candlescope_figures::Analysis;
use candlescope_figures::memory::{RESIDENT, Series};

/// Curves of a page.
const MOST_PLOTS: usize = 4;

/// The latency of each token, for a page.
pub(super) fn tokens(analysis: &Analysis) -> Section {
    let (note, chart) = plots::tokens(&analysis.tokens).unzip();
    Section::new("tokens", "Latency of each token", note.unwrap_or_default())
        .nav("Tokens")
        .with(Block::Pictures(chart.into_iter().collect()))
        .or_say("The run marks no decoding steps, so single tokens cannot be told apart.")
        .only(Forms::PAGE.and(Forms::JSON))
}

/// Every series, the most telling ones drawn.
pub(super) fn section(analysis: &Analysis) -> Section {
    let all = &analysis.memory.series;
    let start = all.iter().filter_map(|s| s.points.first()).map(|p| p.0).min().unwrap_or(0);
    // Counters only rise, and a high-water mark adds nothing to the curve of its metric: these are in the table only.
    let drawn = |s: &Series| s.points.len() > 1 && !s.metric.ends_with("_total") && !s.metric.contains("_peak_");
    let mut order: Vec<_> = all.iter().filter(|s| drawn(s)).collect();
    order.sort_by_key(|s| (s.metric != RESIDENT, s.min == s.max));
    let curves = order.iter().take(MOST_PLOTS).filter_map(|s| plots::series(s, start)).collect();
    let table = Table::new("metric", columns(), all.iter().map(row).collect()).of_code(48);
    let section = Section::new("memory", "Memory and other samples over time", kv(analysis).unwrap_or_default())
        .nav("Samples")
        .with(Block::Pictures(curves))
        .with(table.most(MostRows::of(0, 64, 100), "series", "in the table `samples`"));
    let empty = "The run holds no samples. Turn on the host collector to see memory and CPU use.";
    if all.is_empty() { section.only(Forms::PAGE.and(Forms::JSON)).or_say(empty) } else { section.only(Forms::FILES) }
}

/// How much of the memory for keys and values was needed.
fn kv(analysis: &Analysis) -> Option<String> {
    let kv = analysis.memory.kv()?;
    let allocated = bytes(kv.allocated);
    Some(match kv.allocated_per_used() {
        Some(times) => format!(
            "Slots have {allocated} for keys and values, of which at most {} held tokens: allocated ÷ used is {}.",
            bytes(kv.used),
            significant(times)
        ),
        None => format!("Slots have {allocated} for keys and values, of which none held tokens at a sample."),
    })
}

fn columns() -> Vec<candlescope_document::Column> {
    let figures = ["min", "mean", "max", "last", "n", "resolution"].map(|name| column(name, ""));
    [words("device"), words("unit")].into_iter().chain(figures).collect()
}

fn row(s: &Series) -> Row {
    let show = |v: f64| figure(if s.unit == "ratio" { significant(v) } else { value(&s.unit, v) }, v);
    let period = s.period_ns.map_or(missing(), |ns| figure(duration(ns as f64), ns as f64));
    let words = [s.device.clone(), s.unit.clone()].map(Cell::from);
    let figures = [show(s.min), show(s.mean), show(s.max), show(s.last), figure(count(s.n), s.n as f64), period];
    Row::new(s.metric.clone(), words.into_iter().chain(figures).collect())
}
