//! Lines over two axes, as SVG and as PNG.

use super::palette::{GRID, SERIES, TEXT};
use super::{Axis, label, names_above, png, svg};
use candlescope_document::{Picture, Plot, PlotLine, PlotPoint};
use plotters::coord::Shift;
use plotters::prelude::*;
use std::io;

const SIZE: (u32, u32) = (960, 480);

/// A point of a line, with the interval of its value if there is one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Where it is along the horizontal axis.
    pub x: f64,
    /// Its value on the vertical axis; a chart with one that is not finite is not drawn.
    pub y: f64,
    /// The interval, or the range, of its value.
    pub spread: Option<(f64, f64)>,
}

/// A line with a name in the legend, in one colour; its points are drawn as circles, connected or not.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// What the legend says.
    pub name: String,
    /// The points, in order.
    pub points: Vec<Point>,
    /// Whether points are connected: those of separate measurements are not.
    pub connected: bool,
}

/// Lines over two labelled axes.
#[derive(Debug, Clone)]
pub struct Chart {
    /// Name of the file, without extension.
    pub file: String,
    /// What it shows, in words at its top; the units stand at the axes.
    pub title: String,
    /// Label of the horizontal axis, with the unit.
    pub x: String,
    /// Label of the vertical axis, with the unit.
    pub y: String,
    /// Whether both axes are logarithmic.
    pub log: bool,
    /// What a number at the horizontal axis is shown as, if not as itself.
    pub x_label: Option<fn(f64) -> String>,
    /// The lines in the order of the legend, which there is from two of them on. The colours repeat after six.
    pub lines: Vec<Line>,
}

impl Chart {
    /// The chart as SVG; `None` if there is nothing to draw.
    pub fn svg(&self) -> Option<String> {
        svg(SIZE, |area| self.draw(area))
    }

    /// The chart for a document, with the figures that it is drawn from; `None` if there is nothing to draw.
    pub fn picture(&self) -> Option<Picture> {
        Some(Picture::new(self.svg()?, self.plot()))
    }

    fn plot(&self) -> Plot {
        let name = |x: f64| self.x_label.map_or_else(String::new, |label| label(x));
        let lines = self.lines.iter().map(|line| {
            let points = line.points.iter().map(|p| PlotPoint { name: name(p.x), x: p.x, y: p.y, spread: p.spread });
            PlotLine { name: line.name.clone(), connected: line.connected, points: points.collect() }
        });
        let (title, x, y) = (self.title.clone(), self.x.clone(), self.y.clone());
        Plot { title, x, y, log: self.log, lines: lines.collect() }
    }

    /// The chart as a PNG file.
    ///
    /// # Errors
    /// When there is nothing to draw, or it cannot be encoded.
    pub fn png(&self) -> io::Result<Vec<u8>> {
        png(SIZE, |area| self.draw(area))
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Option<()> {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let ys = || points().flat_map(|p| [Some(p.y), p.spread.map(|s| s.0), p.spread.map(|s| s.1)]).flatten();
        let finite = points().all(|p| p.x.is_finite()) && ys().all(f64::is_finite);
        if points().next().is_none() || !finite || (self.log && points().any(|p| p.x <= 0.0 || p.y <= 0.0)) {
            return None;
        }
        let ends = |values: &mut dyn Iterator<Item = f64>| {
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
        };
        let (left, right) = ends(&mut points().map(|p| p.x));
        let (low, high) = ends(&mut ys());
        area.fill(&WHITE).ok()?;
        let area = area.titled(&self.title, ("sans-serif", 18).into_font().color(&TEXT)).ok()?;
        let colored = || self.lines.iter().zip(SERIES.iter().copied().cycle());
        let names: Vec<(&str, RGBColor)> = colored().map(|(line, color)| (line.name.as_str(), color)).collect();
        let area = names_above(area, &names)?;
        let mut builder = ChartBuilder::on(&area);
        builder.margin(12).margin_right(28).x_label_area_size(46).y_label_area_size(76);
        // Between two requests or two sequences there is nothing.
        let whole = points().all(|p| p.x.fract() == 0.0);
        let axis = |low: f64, high: f64, whole: bool| Axis { low, high, log: self.log, whole };
        let (x, y) = if self.log {
            (axis(left * 0.8, right * 1.25, whole), axis(low.max(high * 1e-6) * 0.8, high * 1.25, false))
        } else {
            let pad = ((right - left) * 0.03).max(0.5);
            (axis(left - pad, right + pad, whole), axis(0.0, (high * 1.12).max(1e-9), false))
        };
        let mut chart = builder.build_cartesian_2d(x, y).ok()?;
        let x_label = |x: &f64| self.x_label.map_or_else(|| label(*x), |label| label(*x));
        chart
            .configure_mesh()
            .x_label_formatter(&x_label)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .axis_style(GRID)
            .x_desc(self.x.as_str())
            .y_desc(self.y.as_str())
            .label_style(("sans-serif", 13, &TEXT))
            .axis_desc_style(("sans-serif", 14, &TEXT))
            .draw()
            .ok()?;
        // What was measured lies above what was expected.
        let (curves, measured): (Vec<_>, Vec<_>) = colored().partition(|(line, _)| line.connected);
        for (line, color) in curves.into_iter().chain(measured) {
            let at = || line.points.iter().map(|p| (p.x, p.y));
            if line.connected {
                chart.draw_series(LineSeries::new(at(), color.stroke_width(2))).ok()?;
            }
            let bars = line.points.iter().filter_map(|p| p.spread.map(|(low, high)| vec![(p.x, low), (p.x, high)]));
            chart.draw_series(bars.map(|bar| PathElement::new(bar, color.stroke_width(1)))).ok()?;
            chart.draw_series(at().map(|p| Circle::new(p, 4, color.filled()))).ok()?;
        }
        area.present().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(log: bool) -> Chart {
        let point = |x: f64, y: f64| Point { x, y, spread: Some((y * 0.9, y * 1.1)) };
        let line = |name: &str, factor: f64| Line {
            name: name.into(),
            points: [1.0, 2.0, 4.0].iter().map(|x| point(*x, x * factor)).collect(),
            connected: true,
        };
        Chart {
            file: "a".into(),
            title: "Tokens a second".into(),
            x: "sequences at once".into(),
            y: "tokens/s".into(),
            log,
            x_label: None,
            lines: vec![line("one", 10.0), line("two", 30.0)],
        }
    }

    #[test]
    fn both_forms_have_the_lines_and_the_words() {
        for log in [false, true] {
            let svg = chart(log).svg().unwrap();
            for word in ["Tokens a second", "sequences at once", "tokens/s", "one", "two"] {
                assert!(svg.contains(word), "{word}");
            }
            let png = chart(log).png().unwrap();
            let mut reader = ::png::Decoder::new(std::io::Cursor::new(&png)).read_info().unwrap();
            let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
            let info = reader.next_frame(&mut pixels).unwrap();
            assert_eq!((info.width, info.height), SIZE);
            let has = |color: RGBColor| pixels.chunks(3).filter(|p| *p == [color.0, color.1, color.2]).count();
            assert!(has(SERIES[0]) > 100 && has(SERIES[1]) > 100, "both lines");
            // Text: dark pixels that are neither lines nor grid.
            assert!(pixels.chunks(3).filter(|p| p.iter().all(|v| *v < 80)).count() > 300, "words");
        }
    }

    /// Texts of an SVG, and where each begins.
    fn texts(svg: &str) -> Vec<(String, f64, f64)> {
        let number = |tag: &str, name: &str| {
            let rest = tag.split_once(&format!(" {name}=\"")).expect("the attribute").1;
            rest.split_once('"').expect("its end").0.parse::<f64>().expect("a number")
        };
        let tags = svg.split("<text ").skip(1).filter_map(|tag| {
            let (tag, rest) = tag.split_once('>')?;
            Some((
                rest.split_once("</text>")?.0.trim().to_string(),
                number(&format!(" {tag}"), "x"),
                number(&format!(" {tag}"), "y"),
            ))
        });
        tags.collect()
    }

    #[test]
    fn the_legend_covers_no_point_and_every_axis_has_numbers() {
        for log in [false, true] {
            let svg = chart(log).svg().unwrap();
            let names = texts(&svg);
            let lowest = |name: &str| names.iter().find(|text| text.0 == name).unwrap_or_else(|| panic!("{name}")).2;
            // The two circles of the legend come first; the highest point of the lines lies below them.
            let circles: Vec<f64> = svg
                .split("<circle ")
                .skip(1)
                .map(|tag| tag.split_once("cy=\"").unwrap().1.split_once('"').unwrap().0.parse().unwrap())
                .collect();
            assert_eq!(circles.len(), 2 + 6);
            assert!(circles[2..].iter().all(|y| *y > lowest("one").max(lowest("two")) + 8.0), "{circles:?}");
            let numbers = names.iter().filter(|text| text.0.parse::<f64>().is_ok()).count();
            assert!(numbers >= 6, "{names:?}");
            assert!(!names.iter().any(|text| text.0 == "1.5" || text.0 == "2.5"), "no half sequences: {names:?}");
        }
    }

    #[test]
    fn what_cannot_be_drawn_is_left_out() {
        assert_eq!(Chart { lines: Vec::new(), ..chart(false) }.svg(), None);
        let mut odd = chart(true);
        odd.lines[0].points[0].y = 0.0;
        assert_eq!(odd.svg(), None, "no logarithm of zero");
    }
}
