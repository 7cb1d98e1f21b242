//! Charts as files of a study.

use super::{Study, StudyError};
use candlescope_charts::Chart;
use candlescope_document::Picture;

impl Study {
    /// Writes `charts/FILE.svg` and `charts/FILE.png` into the study and returns the chart for a document; `None` if
    /// there is nothing to draw.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write_chart(&self, chart: &Chart) -> Result<Option<Picture>, StudyError> {
        let Some(picture) = chart.picture() else { return Ok(None) };
        let name = |extension| format!("charts/{}.{extension}", chart.file);
        self.write(&name("svg"), picture.svg.as_bytes())?;
        let failed = |cause| StudyError::Write { path: self.dir().join(name("png")), cause };
        let png = chart.png().map_err(failed)?;
        self.write(&name("png"), &png)?;
        Ok(Some(picture))
    }
}
