//! The headline figures.

use super::super::format::{count, value};
use super::super::headline_figures::{Figure, FigureValue, figures, interval};
use super::cards::cards;
use candlescope_document::{Block, Cell, Forms, Row, Section, Table, column, figure as shown, missing, wide, words};
use candlescope_figures::Analysis;
use candlescope_figures::definitions::STATISTICS;

/// Cards in large letters for a page, and a table; the cards alone where there are no requests.
pub(super) fn section(analysis: &Analysis) -> Option<Section> {
    let figures = figures(analysis);
    let (cards, samples) = cards(analysis);
    if figures.is_empty() && cards.is_empty() {
        return None;
    }
    let warmed = match analysis.latency.warmup {
        0 => String::new(),
        1 => " The first request warmed up and is left out here.".to_string(),
        n => format!(" The first {n} requests warmed up and are left out here."),
    };
    let hint = "95 % interval of the median; with fewer than six independent samples or requests the range, called so";
    let columns = vec![
        column("median", ""),
        column("interval", hint).only(Forms::TERMINAL),
        wide("interval", hint),
        wide("p90", ""),
        column("p95", ""),
        wide("p99", ""),
        column("min", ""),
        column("max", ""),
        wide("mean", ""),
        wide("std. dev.", ""),
        column("n", ""),
        words("label").only(Forms::FILES),
    ];
    let table = Table::new("", columns, figures.iter().map(row).collect());
    let section = Section::new("latency", "Latency and throughput", format!("{STATISTICS}{warmed}"))
        .brief("95 % interval of the median; below 6 the range (med.: requests' medians)")
        .nav("Figures")
        .with_in(Forms::PAGE, Block::Html(cards))
        .with_in(Forms::JSON, Block::Pictures(samples))
        .with(table);
    Some(section)
}

fn row(figure: &Figure<'_>) -> Row {
    let unit = figure.definition.unit;
    let show = |v: f64| shown(value(unit, v), v);
    let text = |text: Option<String>| text.map_or(missing(), Cell::from);
    let maybe = |v: Option<f64>| v.map_or(missing(), show);
    let mut cells = match figure.value {
        FigureValue::Spread(d) => vec![
            show(d.median),
            text(interval(unit, d, true)),
            text(interval(unit, d, false)),
            maybe(d.p90),
            maybe(d.p95),
            maybe(d.p99),
            show(d.min),
            show(d.max),
            show(d.mean),
            maybe(d.stddev),
            shown(count(d.n as u64), d.n as f64),
        ],
        FigureValue::Single(v, n) => {
            let remark = || text(figure.remark.map(str::to_string));
            let mut cells = vec![show(v), remark(), remark()];
            cells.extend(std::iter::repeat_with(missing).take(7));
            cells.push(shown(count(n as u64), n as f64));
            cells
        }
    };
    cells.push(figure.definition.label.to_string().into());
    Row::new(figure.title(), cells)
}
