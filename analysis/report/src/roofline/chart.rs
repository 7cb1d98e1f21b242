//! The roofline chart: FLOP/s over FLOPs a byte, both logarithmic. Colours are placeholders that the page's style
//! replaces, as in the plots of `report.html`.

use crate::charts::page_theme::{GRID, LINE, POINT, TEXT, scaled};
use candlescope_document::{Picture, Plot, PlotLine, PlotPoint};
use plotters::prelude::*;

const SIZE: (u32, u32) = (1120, 460);
const X: &str = "FLOP/B, activations included";
const Y: &str = "FLOP/s";

/// A roof: its name, FLOP/s and bytes/s.
pub(super) struct RoofLine {
    pub(super) name: String,
    pub(super) flops: f64,
    pub(super) bandwidth: f64,
}

/// A point: its name, FLOPs a byte, FLOP/s. Marked ones are larger and have their name beside them.
pub(super) struct ChartPoint {
    pub(super) name: String,
    pub(super) intensity: f64,
    pub(super) flops: f64,
    pub(super) marked: bool,
}

/// `None` without a roof or a point, and if the plot library fails, which leaves the chart out.
pub(super) fn chart(roofs: &[RoofLine], points: &[ChartPoint]) -> Option<Picture> {
    let usable = |value: f64| value.is_finite() && value > 0.0;
    let points: Vec<&ChartPoint> = points.iter().filter(|p| usable(p.intensity) && usable(p.flops)).collect();
    let roofs: Vec<&RoofLine> = roofs.iter().filter(|r| usable(r.flops) && usable(r.bandwidth)).collect();
    if roofs.is_empty() || points.is_empty() {
        return None;
    }
    let ridges = || roofs.iter().map(|roof| roof.flops / roof.bandwidth);
    let xs = || points.iter().map(|point| point.intensity).chain(ridges());
    let ys = || points.iter().map(|point| point.flops).chain(roofs.iter().map(|roof| roof.flops));
    let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::INFINITY, f64::min);
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
    let (left, right) = (least(&mut xs()) / 3.0, most(&mut xs()) * 10.0);
    let (bottom, top) = (least(&mut ys()) / 3.0, most(&mut ys()) * 3.0);
    let line = |roof: &RoofLine| {
        let start = left.max(bottom / roof.bandwidth);
        [(start, start * roof.bandwidth), (roof.flops / roof.bandwidth, roof.flops), (right, roof.flops)]
    };
    let mut out = String::new();
    {
        let root = SVGBackend::with_string(&mut out, SIZE).into_drawing_area();
        let mut chart = ChartBuilder::on(&root)
            .margin(10)
            .margin_right(24)
            .x_label_area_size(44)
            .y_label_area_size(84)
            .build_cartesian_2d((left..right).log_scale(), (bottom..top).log_scale())
            .ok()?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(GRID)
            .x_desc(X)
            .y_desc(Y)
            .x_label_formatter(&|v| short(*v))
            .y_label_formatter(&|v| short(*v))
            .label_style(("sans-serif", 13, &TEXT))
            .axis_desc_style(("sans-serif", 13, &TEXT))
            .draw()
            .ok()?;
        let style = ("sans-serif", 13).into_font().color(&TEXT);
        for roof in &roofs {
            chart.draw_series(LineSeries::new(line(roof), LINE.stroke_width(2))).ok()?;
            let at = (roof.flops / roof.bandwidth * 1.1, roof.flops * 1.6);
            chart.draw_series([Text::new(roof.name.clone(), at, style.clone())]).ok()?;
        }
        let radius = |point: &ChartPoint| if point.marked { 6 } else { 3 };
        chart
            .draw_series(points.iter().map(|p| Circle::new((p.intensity, p.flops), radius(p), POINT.filled())))
            .ok()?;
        let marked = points.iter().filter(|point| point.marked);
        let named = marked.map(|p| Text::new(p.name.clone(), (p.intensity * 1.15, p.flops), style.clone()));
        chart.draw_series(named).ok()?;
        root.present().ok()?;
    }
    let mut lines: Vec<PlotLine> = roofs.iter().map(|roof| PlotLine::new(&*roof.name, true, line(roof))).collect();
    lines.extend([(true, "large"), (false, "small")].map(|(marked, name)| {
        let points = points.iter().filter(|point| point.marked == marked);
        let at = |p: &&ChartPoint| PlotPoint { name: p.name.clone(), x: p.intensity, y: p.flops, spread: None };
        PlotLine { name: name.to_string(), connected: false, points: points.map(at).collect() }
    }));
    lines.retain(|line| !line.points.is_empty());
    let plot = Plot { title: String::new(), x: X.to_string(), y: Y.to_string(), log: true, lines };
    Some(Picture::new(scaled(&out, SIZE, "plot wide"), plot))
}

/// A power of ten in few letters: `10 G`, `0.1`.
fn short(value: f64) -> String {
    let units = [(1e15, " P"), (1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")];
    match units.iter().find(|(size, _)| value >= *size * 0.999) {
        Some((size, unit)) => format!("{}{unit}", (value / size * 1000.0).round() / 1000.0),
        None => format!("{}", (value * 1e6).round() / 1e6),
    }
}
