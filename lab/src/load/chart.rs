//! Latency against load, as SVG.

use super::figures::Spread;
use super::level::Level;
use super::results::Stage;
use plotters::prelude::*;

const SIZE: (u32, u32) = (900, 420);
const TTFT: RGBColor = RGBColor(31, 119, 180);
const TPOT: RGBColor = RGBColor(214, 39, 40);
const E2E: RGBColor = RGBColor(44, 160, 44);

/// Medians, and the 95th percentiles dashed where they are known, over the requests that were answered a second.
/// `None` with fewer than two stages that have them.
pub(super) fn latency(stages: &[Stage]) -> Option<String> {
    let figures: Vec<_> = stages.iter().filter_map(|s| s.figures.as_ref().map(|f| (s.level, f))).collect();
    let line = |of: &dyn Fn(Level, &super::figures::Figures) -> Option<f64>| -> Vec<(f64, f64)> {
        let mut points: Vec<(f64, f64)> =
            figures.iter().filter_map(|(level, f)| Some((f.requests_per_s, of(*level, f)? / 1e6))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
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
    let right = all().map(|p| p.0).fold(0.0, f64::max) * 1.05;
    let (low, high) = all().map(|p| p.1).fold((f64::INFINITY, 0f64), |(l, h), y| (l.min(y), h.max(y)));
    let mut out = String::new();
    {
        let root = SVGBackend::with_string(&mut out, SIZE).into_drawing_area();
        root.fill(&WHITE).ok()?;
        let mut chart = ChartBuilder::on(&root)
            .margin(12)
            .margin_right(28)
            .x_label_area_size(44)
            .y_label_area_size(70)
            .caption("latency against load: medians, and 95th percentiles in a lighter line", ("sans-serif", 15))
            .build_cartesian_2d(0.0..right.max(1e-9), (low.max(1e-6) * 0.8..high.max(2e-6) * 1.25).log_scale())
            .ok()?;
        chart.configure_mesh().x_desc("requests answered a second").y_desc("ms").draw().ok()?;
        for (name, colour, is_tail, points) in series.iter().filter(|s| !s.3.is_empty()) {
            let style = if *is_tail { colour.mix(0.35) } else { colour.to_rgba() };
            chart.draw_series(points.iter().map(|&p| Circle::new(p, 3, style.filled()))).ok()?;
            let drawn = chart.draw_series(LineSeries::new(points.iter().copied(), style.stroke_width(2))).ok()?;
            if !is_tail {
                let colour = *colour;
                drawn.label(*name).legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 14, y + 4)], colour.filled()));
            }
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.2))
            .position(SeriesLabelPosition::UpperLeft)
            .draw()
            .ok()?;
        root.present().ok()?;
    }
    Some(out)
}
