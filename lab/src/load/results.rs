//! The results of a run, and their files.

use super::chart;
use super::figures::Figures;
use super::level::Level;
use super::options::{Endpoint, LoadOptions};
use super::record::RequestRecord;
use super::requests_csv;
use super::server_metrics::ServerMetrics;
use super::summary;
use candlescope_core::RedactedUrl;
use candlescope_core::files::write_whole;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The file with everything.
pub const RESULTS_FILE: &str = "load_test_results.json";
/// The file with a row a request.
pub const REQUESTS_FILE: &str = "load_requests.csv";
/// The chart of latency against load.
const CHART_FILE: &str = "load_latency.svg";

/// Version of the form of [`RESULTS_FILE`].
pub const SCHEMA_VERSION: u32 = 1;

/// What the server is.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Target {
    /// Where requests went, without credentials.
    pub url: RedactedUrl,
    /// Chat or completions.
    pub endpoint: Endpoint,
    /// The model that was asked for.
    pub model: String,
    /// The server's name, as its header `Server` has it.
    pub server: Option<String>,
    /// Its list of models, as it was answered.
    pub models: Option<Value>,
    /// Why there is no such list.
    pub models_absent: Option<String>,
    /// Whether answers came in streams; without them there is no time to first token.
    pub streams: bool,
    /// Whether it counts tokens. Otherwise chunks with output are counted.
    pub counts_tokens: bool,
    /// How many different prompts there are; absent where each is new.
    pub prompts: Option<usize>,
    /// Whether the length of synthetic prompts rests on the server's own counts; otherwise a word counts as a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_tokens_counted: Option<bool>,
}

/// One stage.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Stage {
    /// Its load.
    pub level: Level,
    /// Begin and end of the time in which the load was steady and figures were taken, in nanoseconds since the run
    /// began; absent if it was ended before.
    pub window_ns: Option<(u64, u64)>,
    /// Requests sent, those of the warm-up and those after the window included.
    pub requests: u64,
    /// Absent without a window.
    pub figures: Option<Figures>,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "how")]
#[non_exhaustive]
pub enum End {
    /// All stages were gone through.
    Complete,
    /// Somebody ended it.
    Stopped,
    /// The server no longer answered.
    ServerGone {
        /// Since when, in nanoseconds since the run began.
        since_ns: u64,
        /// The same in Unix nanoseconds.
        since_unix_ns: i64,
        /// What the first requests without an answer said.
        why: String,
    },
    /// More stages are to come: what there is so far.
    UnderWay,
}

/// Everything about a run. `requests` have the samples behind every figure.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct LoadResults {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of candlescope.
    pub candlescope: &'static str,
    /// When it began, in Unix nanoseconds; all other times count from here.
    pub began_unix_ns: i64,
    /// How long it took, in nanoseconds.
    pub took_ns: u64,
    /// How it ended.
    pub end: End,
    /// The server.
    pub target: Target,
    /// What was asked for; without the key.
    pub options: LoadOptions,
    /// The machine that put the load on the server.
    pub machine: BTreeMap<String, Value>,
    /// One stage after another.
    pub stages: Vec<Stage>,
    /// The highest rate that the server carried, of a sweep.
    pub carried_per_s: Option<f64>,
    /// The lowest that it did not.
    pub saturated_per_s: Option<f64>,
    /// The server's own metrics; absent until the last stage has ended.
    pub server_metrics: Option<ServerMetrics>,
    /// Each request, with each token's time.
    pub requests: Vec<RequestRecord>,
}

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
        let mut value = serde_json::to_value(Self { requests: Vec::new(), ..self.clone() })?;
        if let Some(fields) = value.as_object_mut() {
            fields.remove("requests");
        }
        Ok(value)
    }

    /// Writes [`RESULTS_FILE`], [`REQUESTS_FILE`] and, from two stages on, a chart into `dir`, which is made if it is
    /// missing. Files of an earlier run are replaced, each of them whole or not at all. Returns their paths.
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
        if let Some(svg) = chart::latency(&self.stages) {
            let chart = dir.join(CHART_FILE);
            write_whole(&chart, |out| out.write_all(svg.as_bytes()))?;
            written.push(chart);
        }
        Ok(written)
    }
}
