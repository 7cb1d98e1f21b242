//! A load test's results against the prediction: `load_test_results.json` of `candlescope load`, stage by stage.
//!
//! A server that batches continuously decodes as many sequences at once as requests are under way, and processes one
//! prompt at a time. So the time per output token is predicted for a batch of the mean number of requests under way,
//! and the time to first token for a prompt alone: what a request waits for others is what the measurement has more.

use super::outlook::latencies;
use super::predict::Bound;
use super::ratings::{Rating, Thresholds, rate_figures};
use super::scenario::Scenario;
use super::shape::ModelShape;
use crate::devices::{Cost, Device};
use serde::{Deserialize, Serialize};
use std::io::Read;

/// Version of the results that is read.
const SCHEMA_VERSION: u64 = 1;

/// Results of a load test cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadTestError {
    /// It is not the file of a load test.
    #[error("this is not the result of a load test: {0}. Give load_test_results.json as `candlescope load` wrote it")]
    Form(#[from] serde_json::Error),
    /// It was written by a newer release.
    #[error(
        "the results have schema version {0}, and this candlescope reads version {SCHEMA_VERSION}: update candlescope"
    )]
    Version(u64),
    /// No stage has figures.
    #[error("no stage of the load test has figures: it was ended before the load was steady. Run it again, for longer")]
    NoFigures,
}

/// What a load test measured, as far as it is used here. What the file has beyond that is left alone.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct LoadTest {
    schema_version: u64,
    target: Target,
    stages: Vec<Stage>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Target {
    model: String,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Stage {
    level: Level,
    figures: Option<Figures>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Level {
    kind: String,
    value: f64,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Figures {
    ttft_ns: Option<Spread>,
    tpot_ns: Option<Spread>,
    prompt_tokens: Option<Spread>,
    output_tokens: Option<Spread>,
    output_tokens_per_s: Option<f64>,
    in_flight: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
struct Spread {
    n: u64,
    median: f64,
    p95: Option<f64>,
}

impl LoadTest {
    /// Reads results. The requests in them are passed over.
    ///
    /// # Errors
    /// If they are not those of a load test, are of a newer version, or have no figures.
    pub fn read(from: impl Read) -> Result<Self, LoadTestError> {
        let read: Self = serde_json::from_reader(from)?;
        if read.schema_version > SCHEMA_VERSION {
            return Err(LoadTestError::Version(read.schema_version));
        }
        if read.stages.iter().all(|stage| stage.figures.is_none()) {
            return Err(LoadTestError::NoFigures);
        }
        Ok(read)
    }

    /// The model that the server was asked for.
    pub fn model(&self) -> &str {
        &self.target.model
    }
}

/// A latency of a stage.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoadLatency {
    /// Median measured, nanoseconds.
    pub median_ns: f64,
    /// 95th percentile measured, if there were enough requests.
    pub p95_ns: Option<f64>,
    /// Requests.
    pub n: u64,
    /// Nanoseconds predicted.
    pub predicted_ns: Option<Cost>,
    /// Predicted ÷ median − 1.
    pub error: Option<f64>,
}

/// A stage of a load test beside its prediction.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoadStage {
    /// Its load: `8 clients`, `2.5 requests/s`.
    pub level: String,
    /// Requests under way, mean: the batch that a token is predicted for, at least 1.
    pub in_flight: f64,
    /// Prompt tokens, median.
    pub prompt: Option<u64>,
    /// Output tokens, median.
    pub output: Option<u64>,
    /// Time to first token.
    pub ttft: Option<LoadLatency>,
    /// Time per output token.
    pub tpot: Option<LoadLatency>,
    /// Output tokens a second measured.
    pub tokens_per_s: Option<f64>,
    /// The same predicted: batch ÷ time per output token.
    pub predicted_tokens_per_s: Option<f64>,
    /// What the prediction says bounds a token.
    pub bound: Option<Bound>,
    /// Ratings of the measured figures.
    pub ratings: Vec<Rating>,
    /// Why there is no prediction.
    pub missing: Option<String>,
}

/// Every stage with figures beside its prediction; `base` has the formats and the devices.
pub fn load_stages(
    test: &LoadTest,
    shape: &ModelShape,
    device: &Device,
    base: &Scenario,
    thresholds: &Thresholds,
) -> Vec<LoadStage> {
    let with_figures = test.stages.iter().filter_map(|stage| Some((&stage.level, stage.figures.as_ref()?)));
    with_figures.map(|(level, figures)| one(level, figures, (shape, device, base), thresholds)).collect()
}

fn one(
    level: &Level,
    figures: &Figures,
    (shape, device, base): (&ModelShape, &Device, &Scenario),
    thresholds: &Thresholds,
) -> LoadStage {
    let tokens = |spread: Option<Spread>| spread.map(|s| s.median.round() as u64).filter(|n| *n > 0);
    let (prompt, output) = (tokens(figures.prompt_tokens), tokens(figures.output_tokens));
    let batch = (figures.in_flight.round() as u64).max(1);
    let asked = prompt.zip(output).map(|(prompt, output)| base.clone().tokens(prompt, output));
    let alone = asked.as_ref().map(|asked| latencies(shape, device, &asked.clone().batch(1)));
    let together = asked.as_ref().map(|asked| latencies(shape, device, &asked.clone().batch(batch)));
    let latency = |spread: Option<Spread>, predicted_ns: Option<Cost>| {
        spread.map(|s| LoadLatency {
            median_ns: s.median,
            p95_ns: s.p95,
            n: s.n,
            predicted_ns,
            error: predicted_ns.filter(|_| s.median > 0.0).map(|ns| ns.mid / s.median - 1.0),
        })
    };
    let tpot = together.as_ref().and_then(|both| both.decode.ns);
    let millis = |spread: Option<Spread>| spread.map(|s| s.median / 1e6);
    let clients = if level.value == 1.0 { "client" } else { "clients" };
    LoadStage {
        level: match level.kind.as_str() {
            "concurrency" => format!("{} {clients}", level.value),
            _ => format!("{} requests/s", level.value),
        },
        in_flight: figures.in_flight,
        prompt,
        output,
        ttft: latency(figures.ttft_ns, alone.as_ref().and_then(|both| both.prefill.ns)),
        tpot: latency(figures.tpot_ns, tpot),
        tokens_per_s: figures.output_tokens_per_s,
        predicted_tokens_per_s: tpot.map(|ns| batch as f64 / ns.mid * 1e9),
        bound: together.as_ref().and_then(|both| both.decode.bound),
        ratings: rate_figures(
            (millis(figures.ttft_ns), millis(figures.tpot_ns), figures.output_tokens_per_s),
            (None, "a load test does not see the device"),
            thresholds,
        ),
        missing: asked.is_none().then(|| "the server counts no tokens of prompts or answers".to_string()),
    }
}
