//! Bars beside each other, one row for each thing that is compared, as SVG and as PNG.

use super::{Study, StudyError};
use candlescope_charts::palette::{BLUE, TEXT};
use candlescope_charts::{png, svg};
use candlescope_document::{Picture, Plot, PlotLine, PlotPoint};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::io;
use std::path::PathBuf;

const WIDTH: u32 = 1100;
const ROW: u32 = 34;
const HEAD: u32 = 84;
/// Share of the width for names; the panels share the rest.
const NAMES: f64 = 0.19;

/// A bar, or the reason why there is none.
#[derive(Debug, Clone, PartialEq)]
pub enum Bar {
    /// Its length, the interval of its value if there is one, and what stands beside it.
    Value {
        /// Length of the bar, in the unit of the chart.
        value: f64,
        /// Its interval, or range.
        spread: Option<(f64, f64)>,
        /// What stands beside it.
        text: String,
    },
    /// There is no value: a dash is drawn in place of the bar.
    Absent,
}

/// One figure of all rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// What the figure is, with its unit.
    pub title: String,
    /// A bar for each row.
    pub bars: Vec<Bar>,
}

/// Rows with several figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Bars {
    /// Name of the file, without extension.
    pub file: String,
    /// Heading of the drawing, above all panels.
    pub title: String,
    /// Names of the rows.
    pub rows: Vec<String>,
    /// One for each figure, side by side, each with a scale of its own.
    pub panels: Vec<Panel>,
}

impl Bars {
    /// Writes `charts/FILE.svg` and `charts/FILE.png` into a study and returns both paths; none if there is nothing to
    /// draw.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, study: &Study) -> Result<Vec<PathBuf>, StudyError> {
        let Some(svg) = self.svg() else { return Ok(Vec::new()) };
        let name = |extension| format!("charts/{}.{extension}", self.file);
        let failed = |cause| StudyError::Write { path: study.dir().join(name("png")), cause };
        let svg = study.write(&name("svg"), svg.as_bytes())?;
        let png = study.write(&name("png"), &self.png().map_err(failed)?)?;
        Ok(vec![svg, png])
    }

    fn size(&self) -> (u32, u32) {
        (WIDTH, HEAD + ROW * u32::try_from(self.rows.len()).unwrap_or(1) + 12)
    }

    /// As SVG; `None` if there is nothing to draw.
    pub fn svg(&self) -> Option<String> {
        svg(self.size(), |area| self.draw(area))
    }

    /// For a document; `None` if there is nothing to draw.
    pub fn picture(&self) -> Option<Picture> {
        let plots = self.panels.iter().map(|panel| {
            let points = self.rows.iter().zip(&panel.bars).zip(0_u32..).filter_map(|((name, bar), at)| match bar {
                Bar::Value { value, spread, .. } => {
                    Some(PlotPoint { name: name.clone(), x: f64::from(at), y: *value, spread: *spread })
                }
                Bar::Absent => None,
            });
            let line = PlotLine { points: points.collect(), ..PlotLine::default() };
            Plot { title: self.title.clone(), y: panel.title.clone(), lines: vec![line], ..Plot::default() }
        });
        Some(Picture { svg: self.svg()?, caption: String::new(), plots: plots.collect() })
    }

    /// As a PNG file.
    ///
    /// # Errors
    /// When there is nothing to draw, or it cannot be encoded.
    pub fn png(&self) -> io::Result<Vec<u8>> {
        png(self.size(), |area| self.draw(area))
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Option<()> {
        if self.rows.is_empty() || self.panels.is_empty() {
            return None;
        }
        area.fill(&WHITE).ok()?;
        let (width, _) = area.dim_in_pixel();
        let style = |size: i32| ("sans-serif", size).into_font().color(&TEXT).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(self.title.clone(), (16, 24), style(18))).ok()?;
        let names = (f64::from(width) * NAMES) as i32;
        let panel_width = (width as i32 - names) / i32::try_from(self.panels.len()).ok()?;
        let middle = |row: usize| HEAD as i32 + (row as u32 * ROW + ROW / 2) as i32;
        for (row, name) in self.rows.iter().enumerate() {
            area.draw(&Text::new(name.clone(), (16, middle(row)), style(14))).ok()?;
        }
        for (number, panel) in self.panels.iter().enumerate() {
            let left = names + number as i32 * panel_width;
            area.draw(&Text::new(panel.title.clone(), (left, HEAD as i32 - 18), style(14))).ok()?;
            let most = panel.most()?;
            // Room for the text beside the longest bar.
            let full = f64::from(panel_width) * 0.52;
            let x = |value: f64| left + (value / most * full) as i32;
            for (row, bar) in panel.bars.iter().enumerate() {
                let (y, half) = (middle(row), ROW as i32 / 3);
                let Bar::Value { value, spread, text } = bar else {
                    area.draw(&Text::new("–", (left, y), style(13))).ok()?;
                    continue;
                };
                area.draw(&Rectangle::new([(left, y - half), (x(*value).max(left + 1), y + half)], BLUE.filled()))
                    .ok()?;
                let end = spread.map_or(*value, |(_, high)| high.max(*value));
                if let Some((low, high)) = spread {
                    area.draw(&PathElement::new(vec![(x(*low), y), (x(*high), y)], TEXT.stroke_width(2))).ok()?;
                }
                area.draw(&Text::new(text.clone(), (x(end) + 8, y), style(13))).ok()?;
            }
        }
        area.present().ok()
    }
}

impl Panel {
    /// The largest value, intervals included; 1 if all are zero or absent, `None` if one is no number.
    fn most(&self) -> Option<f64> {
        let mut values = self.bars.iter().filter_map(|bar| match bar {
            Bar::Value { value, spread, .. } => Some(spread.map_or(*value, |(_, high)| high.max(*value))),
            Bar::Absent => None,
        });
        let most = values.try_fold(0.0f64, |most, value| value.is_finite().then(|| most.max(value)));
        most.map(|most| if most > 0.0 { most } else { 1.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_with_their_words_in_both_forms() {
        let value =
            |value: f64| Bar::Value { value, spread: Some((value * 0.9, value * 1.1)), text: format!("{value} ms") };
        let bars = Bars {
            file: "a".into(),
            title: "All variants".into(),
            rows: vec!["one".into(), "two".into()],
            panels: vec![
                Panel { title: "latency".into(), bars: vec![value(10.0), value(40.0)] },
                Panel { title: "size".into(), bars: vec![value(3.0), Bar::Absent] },
            ],
        };
        let svg = bars.svg().unwrap();
        for word in ["All variants", "one", "two", "latency", "size", "40 ms", "–"] {
            assert!(svg.contains(word), "{word}");
        }
        let png = bars.png().unwrap();
        let mut reader = ::png::Decoder::new(std::io::Cursor::new(&png)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut pixels).unwrap();
        assert!(pixels.chunks(3).filter(|p| *p == [BLUE.0, BLUE.1, BLUE.2]).count() > 1_000, "bars");
        let mut odd = bars.clone();
        odd.panels[0].bars[0] = value(f64::NAN);
        assert_eq!((odd.svg(), Bars { rows: Vec::new(), ..bars }.svg()), (None, None));
    }
}
