//! The files that results are written into, and their text for people.

use crate::chart;
use crate::requests_csv;
use crate::results::LoadResults;
use crate::summary;
use candlescope_core::files::write_whole;
use serde_json::Value;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The file with everything.
pub const RESULTS_FILE: &str = candlescope_core::load_results::FILE;
/// The file with a row a request.
pub const REQUESTS_FILE: &str = "load_requests.csv";
/// The chart of latency against load.
const CHART_FILE: &str = "load_latency.svg";
/// The same for what shows no SVG.
const CHART_PNG: &str = "load_latency.png";

impl LoadResults {
    /// The figures as text.
    pub fn summary(&self) -> String {
        summary::text(self)
    }

    /// Everything but the requests, for machines.
    ///
    /// # Errors
    /// If it cannot be written as JSON, which does not happen with numbers that are finite.
    pub fn to_json_without_requests(&self) -> serde_json::Result<Value> {
        // Without a copy of the requests, which may be most of what this process holds.
        let mut value = serde_json::to_value(Self {
            requests: Vec::new(),
            target: self.target.clone(),
            end: self.end.clone(),
            options: self.options.clone(),
            machine: self.machine.clone(),
            stages: self.stages.clone(),
            server_metrics: self.server_metrics.clone(),
            ..*self
        })?;
        if let Some(fields) = value.as_object_mut() {
            fields.remove("requests");
        }
        Ok(value)
    }

    /// Writes [`RESULTS_FILE`], [`REQUESTS_FILE`] and, from two stages on, a chart into `dir`, which is made if it is
    /// missing. Files of an earlier run are replaced, each of them whole or not at all. Returns their paths; a chart of an
    /// earlier run stays where there is none now ([`remove_chart`](Self::remove_chart)).
    ///
    /// # Errors
    /// If one cannot be written; those before it are there.
    pub fn write(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        std::fs::create_dir_all(dir)?;
        let mut written = Vec::new();
        let results = dir.join(RESULTS_FILE);
        write_whole(&results, |out| {
            serde_json::to_writer(&mut *out, self)?;
            out.write_all(b"\n")
        })?;
        written.push(results);
        let requests = dir.join(REQUESTS_FILE);
        write_whole(&requests, |out| requests_csv::write(out, self))?;
        written.push(requests);
        let chart = dir.join(CHART_FILE);
        if let Some(svg) = chart::latency(&self.stages) {
            write_whole(&chart, |out| out.write_all(svg.as_bytes()))?;
            written.push(chart);
            if let Some(png) = chart::latency_png(&self.stages) {
                let chart = dir.join(CHART_PNG);
                write_whole(&chart, |out| out.write_all(&png))?;
                written.push(chart);
            }
        }
        Ok(written)
    }

    /// Removes the chart in `dir`: for whoever knows that it is of results that were replaced by some without a chart.
    ///
    /// # Errors
    /// If it is there and cannot be removed.
    pub fn remove_chart(dir: &Path) -> io::Result<()> {
        for name in [CHART_FILE, CHART_PNG] {
            match std::fs::remove_file(dir.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Those of the files that stand in `dir` already, whoever made them.
    pub fn files_there(dir: &Path) -> Vec<PathBuf> {
        let files = [RESULTS_FILE, REQUESTS_FILE, CHART_FILE, CHART_PNG].map(|name| dir.join(name));
        files.into_iter().filter(|path| std::fs::symlink_metadata(path).is_ok()).collect()
    }
}
