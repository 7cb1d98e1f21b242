//! Latency against load, as SVG and as PNG.

use crate::figures::Spread;
use crate::level::Level;
use crate::results::Stage;
use candlescope_charts::palette::{BLUE, GREEN, TEXT, VERMILION};
use candlescope_charts::{Axis, label, names_above, png, svg};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::collections::BTreeMap;

const SIZE: (u32, u32) = (900, 420);
const TTFT: RGBColor = BLUE;
const TPOT: RGBColor = VERMILION;
const E2E: RGBColor = GREEN;

/// Medians, and the 95th percentiles dashed where they are known, over the requests that were answered a second.
/// `None` with fewer than two stages that have them.
pub(crate) fn latency(stages: &[Stage]) -> Option<String> {
    svg(SIZE, |area| draw(stages, area))
}

/// The same as a PNG file.
pub(crate) fn latency_png(stages: &[Stage]) -> Option<Vec<u8>> {
    png(SIZE, |area| draw(stages, area)).ok()
}

/// Stages from the smallest load to the largest: a line goes from one to the next, also where more clients are answered
/// less often.
fn by_load<T>(stages: &mut [(Level, T)]) {
    let load = |level: &Level| match level {
        Level::Concurrency(clients) => (0, f64::from(*clients)),
        Level::Rate(rate) => (1, *rate),
    };
    stages.sort_by(|a, b| {
        let (a, b) = (load(&a.0), load(&b.0));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
}

fn draw<B: DrawingBackend>(stages: &[Stage], root: &DrawingArea<B, Shift>) -> Option<()> {
    let mut figures: Vec<_> = stages.iter().filter_map(|s| s.figures.as_ref().map(|f| (s.level, f))).collect();
    by_load(&mut figures);
    let line = |of: &dyn Fn(Level, &crate::figures::Figures) -> Option<f64>| -> Vec<(f64, f64)> {
        figures.iter().filter_map(|(level, f)| Some((f.requests_per_s, of(*level, f)? / 1e6))).collect()
    };
    // What clients of a given rate see counts from the planned arrival.
    let pick = |level: Level, sent: &Option<Spread>, planned: &Option<Spread>| match level {
        Level::Rate(_) => planned.clone(),
        Level::Concurrency(_) => sent.clone(),
    };
    let median = |s: Option<Spread>| s.map(|s| s.median);
    let tail = |s: Option<Spread>| s.and_then(|s| s.p95);
    let series = [
        ("time to first token", TTFT, false, line(&|l, f| median(pick(l, &f.ttft_ns, &f.ttft_from_planned_ns)))),
        ("time to first token", TTFT, true, line(&|l, f| tail(pick(l, &f.ttft_ns, &f.ttft_from_planned_ns)))),
        ("time per output token", TPOT, false, line(&|_, f| median(f.tpot_ns.clone()))),
        ("time per output token", TPOT, true, line(&|_, f| tail(f.tpot_ns.clone()))),
        ("end to end", E2E, false, line(&|l, f| median(pick(l, &f.e2e_ns, &f.e2e_from_planned_ns)))),
        ("end to end", E2E, true, line(&|l, f| tail(pick(l, &f.e2e_ns, &f.e2e_from_planned_ns)))),
    ];
    let all = || series.iter().flat_map(|s| s.3.iter().copied());
    if all().count() < 2 || figures.len() < 2 {
        return None;
    }
    let ends = |values: &mut dyn Iterator<Item = f64>| {
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
    };
    let (left, right) = ends(&mut all().map(|p| p.0));
    let (low, high) = ends(&mut all().map(|p| p.1));
    // Points fill the chart: from 0 on only where that is near them.
    let pad = ((right - left) * 0.08).max(right * 0.02);
    let left = if left < right * 0.4 { 0.0 } else { left - pad };
    let x = Axis { low: left, high: (right + pad).max(1e-9), log: false, whole: false };
    // Room for the numbers above the highest points.
    let y = Axis { low: low.max(1e-6) * 0.8, high: high.max(2e-6) * 1.6, log: true, whole: false };
    // Above all points of a stage: how many clients it had, or how many requests were sent a second.
    let mut loads: BTreeMap<u64, (f64, f64, String)> = BTreeMap::new();
    for (level, f) in &figures {
        let above = all().filter(|p| p.0 == f.requests_per_s).map(|p| p.1).fold(0.0, f64::max);
        let name = match level {
            Level::Concurrency(clients) => clients.to_string(),
            Level::Rate(rate) => format!("{}/s", label(*rate)),
        };
        if above > 0.0 {
            let all = loads.entry(f.requests_per_s.to_bits()).or_insert((f.requests_per_s, above, String::new()));
            all.2 = if all.2.is_empty() { name } else { format!("{}, {name}", all.2) };
        }
    }
    root.fill(&WHITE).ok()?;
    let title = "latency against load: medians, and 95th percentiles in a lighter line; above each point its clients";
    let area = root.titled(title, ("sans-serif", 15).into_font().color(&TEXT)).ok()?;
    let named = series.iter().filter(|s| !s.2 && !s.3.is_empty());
    let names: Vec<(&str, RGBColor)> = named.map(|(name, colour, ..)| (*name, *colour)).collect();
    let area = names_above(area, &names)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(12)
        .margin_right(28)
        .x_label_area_size(44)
        .y_label_area_size(70)
        .build_cartesian_2d(x, y)
        .ok()?;
    let mut mesh = chart.configure_mesh();
    mesh.x_desc("requests answered a second").y_desc("ms").light_line_style(TRANSPARENT).draw().ok()?;
    for (_, colour, is_tail, points) in series.iter().filter(|s| !s.3.is_empty()) {
        let style = if *is_tail { colour.mix(0.35) } else { colour.to_rgba() };
        chart.draw_series(LineSeries::new(points.iter().copied(), style.stroke_width(2))).ok()?;
        chart.draw_series(points.iter().map(|&p| Circle::new(p, 3, style.filled()))).ok()?;
    }
    let style = ("sans-serif", 13).into_font().color(&TEXT).pos(Pos::new(HPos::Center, VPos::Bottom));
    let numbers =
        loads.into_values().map(|(x, y, name)| EmptyElement::at((x, y)) + Text::new(name, (0, -7), style.clone()));
    chart.draw_series(numbers).ok()?;
    root.present().ok()?;
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_from_one_client_to_more() {
        // Requests answered a second: four clients got fewer than two.
        let mut stages = [
            (Level::Concurrency(4), 7.5),
            (Level::Rate(2.0), 2.0),
            (Level::Concurrency(1), 7.0),
            (Level::Concurrency(2), 8.0),
        ];
        by_load(&mut stages);
        assert_eq!(stages.map(|(_, answered)| answered), [7.0, 8.0, 7.5, 2.0]);
    }
}
