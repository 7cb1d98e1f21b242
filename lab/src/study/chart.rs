//! Charts as files of a study.

use super::{Study, StudyError};
use candlescope_charts::Chart;
use candlescope_document::{Picture, Plot, PlotLine, PlotPoint};

impl Study {
    /// Writes `charts/FILE.svg` and `charts/FILE.png` into the study and returns the chart for a document; `None` if there is
    /// nothing to draw.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write_chart(&self, chart: &Chart) -> Result<Option<Picture>, StudyError> {
        let Some(svg) = chart.svg() else { return Ok(None) };
        let name = |extension| format!("charts/{}.{extension}", chart.file);
        self.write(&name("svg"), svg.as_bytes())?;
        let failed = |cause| StudyError::Write { path: self.dir().join(name("png")), cause };
        let png = chart.png().map_err(failed)?;
        self.write(&name("png"), &png)?;
        Ok(Some(Picture::new(svg, plot(chart))))
    }
}

/// What a chart is drawn from.
fn plot(chart: &Chart) -> Plot {
    let lines = chart.lines.iter().map(|line| {
        let name = |x: f64| chart.x_label.map_or_else(String::new, |label| label(x));
        let points = line.points.iter().map(|p| PlotPoint { name: name(p.x), x: p.x, y: p.y, spread: p.spread });
        PlotLine { name: line.name.clone(), connected: line.connected, points: points.collect() }
    });
    let (title, x, y) = (chart.title.clone(), chart.x.clone(), chart.y.clone());
    Plot { title, x, y, log: chart.log, lines: lines.collect() }
}
