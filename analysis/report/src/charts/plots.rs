//! Plots as SVG. Their colours are placeholders that the page's style replaces, so that they follow the light and dark
//! themes.

use super::super::format::{duration, head, printable, significant};
use super::page_theme::{GRID, LINE, POINT, TEXT, scaled};
use candlescope_document::{Picture, Plot, PlotLine};
use candlescope_figures::memory::Series;
use candlescope_figures::stats::percentile;
use candlescope_figures::tokens::Tokens;
use plotters::prelude::*;

const WIDE: (u32, u32) = (1120, 300);
const NARROW: (u32, u32) = (560, 240);
/// More points than this look the same and make the page large.
const MOST_POINTS: usize = 4000;

/// The unit of time with the shortest numbers up to `ns`, and its length in nanoseconds.
fn time_unit(ns: f64) -> (&'static str, f64) {
    match ns {
        ns if ns < 1e3 => ("ns", 1.0),
        ns if ns < 1e6 => ("µs", 1e3),
        ns if ns < 1e9 => ("ms", 1e6),
        _ => ("s", 1e9),
    }
}

/// What is said of the duration of each decoding step, and its chart over the context; `None` without decoding steps.
pub(crate) fn tokens(tokens: &Tokens) -> Option<(String, Picture)> {
    let by_context = tokens.points.iter().all(|p| p.context_len.is_some());
    let points: Vec<(f64, f64)> = tokens
        .points
        .iter()
        .map(|p| (if by_context { f64::from(p.context_len.unwrap_or(0)) } else { p.index as f64 }, p.dur_ns as f64))
        .collect();
    if points.len() < 2 {
        return None;
    }
    let mut sorted: Vec<f64> = points.iter().map(|p| p.1).collect();
    sorted.sort_by(f64::total_cmp);
    // The plot ends above nearly all points; the few outliers are drawn at its edge and counted below it.
    let top = sorted[sorted.len() - 1].min(percentile(&sorted, 0.99) * 1.25).max(1.0);
    let beyond = sorted.iter().filter(|&&v| v > top).count();
    let bottom = if sorted[0] > top * 0.5 { sorted[0] * 0.9 } else { 0.0 };
    let (unit, per) = time_unit(top);
    let stride = points.len().div_ceil(MOST_POINTS);
    let at_edge = |&(x, y): &(f64, f64)| (x, y.min(top) / per);
    let shown: Vec<(f64, f64)> = points.iter().step_by(stride).map(at_edge).collect();
    let x_label =
        if by_context { "context length after the step, tokens" } else { "number of the token in its request" };
    let medians = binned_medians(&points);
    let y_label = format!("duration of a decoding step, {unit}");
    let line: Vec<(f64, f64)> = medians.iter().map(at_edge).collect();
    let svg = draw(&shown, &line, WIDE, (bottom / per, top / per), x_label, &y_label)?;
    let in_unit = |(x, y): (f64, f64)| (x, y / per);
    let lines = vec![
        PlotLine::new("steps", false, points.iter().step_by(stride).copied().map(in_unit)),
        PlotLine::new("median of neighbours", true, medians.into_iter().map(in_unit)),
    ];
    let plot = Plot { x: x_label.to_string(), y: y_label, lines, ..Plot::default() };
    let trend = tokens.trend.map(|t| {
        let noise =
            if t.slope_ns.abs() <= t.slope_ci95_ns { "No change with the context beyond the noise: " } else { "" };
        format!(
            "{noise}{} ± {} for each further 100 tokens of context (least squares, 95 %), from {} to {} tokens",
            duration(t.slope_ns * 100.0),
            duration(t.slope_ci95_ns * 100.0),
            t.context.0,
            t.context.1
        )
    });
    let (n, shown) = (points.len(), shown.len());
    let drawn = if shown == n { String::new() } else { format!(", {shown} drawn") };
    let beyond = if beyond == 0 {
        String::new()
    } else {
        format!(" {beyond} beyond {} are drawn at the upper edge.", duration(top))
    };
    let trend = trend.map_or(String::new(), |trend| format!(" {trend}."));
    let note = format!(
        "One point for each decoding step of the measured requests (n {n}{drawn}); the line is the median of \
         neighbours.{trend}{beyond}"
    );
    Some((note, Picture::new(svg, plot)))
}

/// Median of each of about sixty slices along x: a line through scattered points that outliers do not affect.
fn binned_medians(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut points = points.to_vec();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let size = points.len().div_ceil(60).max(5);
    points
        .chunks(size)
        .map(|chunk| {
            let mut ys: Vec<f64> = chunk.iter().map(|p| p.1).collect();
            ys.sort_by(f64::total_cmp);
            (chunk.iter().map(|p| p.0).sum::<f64>() / chunk.len() as f64, percentile(&ys, 0.5))
        })
        .collect()
}

/// One metric over time since `start` (Unix nanoseconds), with its caption.
pub(crate) fn series(series: &Series, start: i64) -> Option<Picture> {
    let (unit, per) = match series.unit.as_str() {
        "bytes" if series.max >= 1024.0 * 1024.0 * 1024.0 * 4.0 => ("GiB".to_string(), 1024.0 * 1024.0 * 1024.0),
        "bytes" => ("MiB".to_string(), 1024.0 * 1024.0),
        other => (printable(other), 1.0),
    };
    let points: Vec<(f64, f64)> = series.points.iter().map(|p| ((p.0 - start) as f64 / 1e9, p.1 / per)).collect();
    if points.len() < 2 {
        return None;
    }
    let (low, high) = (series.min / per, series.max / per);
    let spread = (high - low).max(high.abs() * 0.05).max(1e-9);
    let range = (if low >= 0.0 { (low - spread * 0.3).max(0.0) } else { low - spread * 0.3 }, high + spread * 0.2);
    let name = printable(&series.metric);
    let (x, y) = ("time since the first sample, s".to_string(), format!("{}, {unit}", short(&name)));
    let svg = draw(&[], &points, NARROW, range, &x, &y)?;
    let plot = Plot { x, y, lines: vec![PlotLine::new(name.clone(), true, points)], ..Plot::default() };
    Some(Picture::new(svg, plot).caption(format!("{name} · {}", series.device)))
}

/// A metric's name without the unit at its end, because the axis has the unit.
fn short(name: &str) -> String {
    let name =
        ["_bytes", "_ratio", "_total", "_seconds", "_watts"].iter().find_map(|s| name.strip_suffix(s)).unwrap_or(name);
    head(&name.replace('_', " "), 34)
}

/// Points, and a line, over labelled axes. `None` if the plot library fails, which leaves the plot out.
fn draw(
    points: &[(f64, f64)],
    line: &[(f64, f64)],
    size: (u32, u32),
    y: (f64, f64),
    x_label: &str,
    y_label: &str,
) -> Option<String> {
    let xs = || points.iter().chain(line).map(|p| p.0);
    let (left, right) = (xs().fold(f64::INFINITY, f64::min), xs().fold(f64::NEG_INFINITY, f64::max));
    let right = if right > left { right } else { left + 1.0 };
    let radius = if points.len() < 300 { 4 } else { 2 };
    let mut out = String::new();
    {
        let root = SVGBackend::with_string(&mut out, size).into_drawing_area();
        let mut chart = ChartBuilder::on(&root)
            .margin(10)
            .margin_right(24)
            .x_label_area_size(44)
            .y_label_area_size(70)
            .build_cartesian_2d(left..right, y.0..y.1)
            .ok()?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .axis_style(GRID)
            .x_labels(size.0 as usize / 90)
            .y_labels(6)
            .x_desc(x_label)
            .y_desc(y_label)
            .x_label_formatter(&|v| tick(*v, right - left))
            .y_label_formatter(&|v| tick(*v, y.1 - y.0))
            .label_style(("sans-serif", 13, &TEXT))
            .axis_desc_style(("sans-serif", 13, &TEXT))
            .draw()
            .ok()?;
        chart.draw_series(points.iter().map(|&p| Circle::new(p, radius, POINT.filled()))).ok()?;
        chart.draw_series(LineSeries::new(line.iter().copied(), LINE.stroke_width(2))).ok()?;
        root.present().ok()?;
    }
    Some(scaled(&out, size, if size == WIDE { "plot wide" } else { "plot" }))
}

fn tick(value: f64, range: f64) -> String {
    if value.abs() >= 1000.0 {
        significant(value)
    } else if range >= 10.0 {
        format!("{value:.0}")
    } else if range >= 1.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}
