//! The results of a run.

use crate::figures::Figures;
use crate::level::Level;
use crate::options::{Endpoint, LoadOptions};
use crate::record::RequestRecord;
use crate::server_metrics::ServerMetrics;
use candlescope_core::RedactedUrl;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Version of the form of the results' file.
pub const SCHEMA_VERSION: u32 = candlescope_core::load_results::VERSION;

/// What the server is.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Target {
    /// Where requests went, without credentials.
    pub url: RedactedUrl,
    /// The endpoint that was used: [`Endpoint::Chat`] or [`Endpoint::Completions`], never [`Endpoint::Auto`].
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

/// One level of load, from the first request of its warm-up to the end of its last measured one.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Stage {
    /// Its clients, or the requests a second that were to arrive.
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
    /// Somebody used [`Stop`](crate::Stop) in the last stage, whose figures are of what there was by then.
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
    /// What the server sent, or the number of requests, is more than this run may hold.
    OutOfRoom {
        /// How many bytes it may hold.
        limit_bytes: u64,
    },
    /// More stages are to come: what there is so far.
    UnderWay,
}

/// Everything about a run. `requests` have the samples behind every figure.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct LoadResults {
    /// Version of the form of these results: [`SCHEMA_VERSION`] of the release that made them.
    pub schema_version: u32,
    /// Version of the candlescope that sent the requests.
    pub candlescope: &'static str,
    /// When it began, in Unix nanoseconds; all other times count from here.
    pub began_unix_ns: i64,
    /// How long it took, in nanoseconds.
    pub took_ns: u64,
    /// How it ended; [`End::UnderWay`] in what a watcher gets after each stage.
    pub end: End,
    /// The server, as its list of models and the first requests before all stages showed it.
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
