//! Charts as files of a study.

use super::{Study, StudyError};
use candlescope_charts::Chart;
use std::path::PathBuf;

impl Study {
    /// Writes `charts/FILE.svg` and `charts/FILE.png` into the study and returns the SVG and both paths; `None` if there
    /// is nothing to draw.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write_chart(&self, chart: &Chart) -> Result<Option<(String, Vec<PathBuf>)>, StudyError> {
        let Some(svg) = chart.svg() else { return Ok(None) };
        let name = |extension| format!("charts/{}.{extension}", chart.file);
        let mut paths = vec![self.write(&name("svg"), svg.as_bytes())?];
        let failed = |cause| StudyError::Write { path: self.dir().join(name("png")), cause };
        let png = chart.png().map_err(failed)?;
        paths.push(self.write(&name("png"), &png)?);
        Ok(Some((svg, paths)))
    }
}
