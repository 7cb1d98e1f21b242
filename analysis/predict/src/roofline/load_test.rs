//! A load test's results against the prediction: `load_test_results.json` of `candlescope load`, stage by stage.
//!
//! A server that batches continuously decodes as many sequences at once as requests are under way, and processes one
//! prompt at a time. So the time per output token is predicted for a batch of the mean number of requests under way,
//! and the time to first token for a prompt alone: what a request waits for others is what the measurement has more.

use super::outlook::{Outlook, latencies};
use super::predict::Bound;
use super::ratings::{Rating, Thresholds, rate_figures};
use super::scenario::{MOST, Scenario};
use candlescope_work::devices::Device;
use candlescope_work::estimate::Estimate;
use candlescope_work::shape::ModelShape;
use serde::{Deserialize, Serialize};
use std::io::Read;

/// Version of the results that is read.
const SCHEMA_VERSION: u64 = candlescope_schema::load_results::VERSION as u64;

/// Results of a load test cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "its messages say what the fields are")]
pub enum LoadTestError {
    /// It is not the file of a load test.
    #[error(
        "this is not the result of a load test: {0}. Give load_test_results.json as `candlescope load` wrote it; results of \
         other generators are not read"
    )]
    Form(String),
    /// A figure that no load test has.
    #[error("`{figure}` is {value} in the results, which no load test gives: the file is damaged, run the load again")]
    Damaged { figure: &'static str, value: f64 },
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

impl Figures {
    fn check(&self) -> Result<(), LoadTestError> {
        let median = |spread: &Option<Spread>| spread.map_or(0.0, |spread| spread.median);
        let counts = [
            ("in_flight", self.in_flight),
            ("prompt_tokens", median(&self.prompt_tokens)),
            ("output_tokens", median(&self.output_tokens)),
        ];
        let damaged = |value: f64| !(0.0..=MOST as f64).contains(&value);
        match counts.into_iter().find(|(_, value)| damaged(*value)) {
            Some((figure, value)) => Err(LoadTestError::Damaged { figure, value }),
            None => Ok(()),
        }
    }
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
        let read: Self = serde_json::from_reader(from).map_err(|error| LoadTestError::Form(error.to_string()))?;
        if read.schema_version > SCHEMA_VERSION {
            return Err(LoadTestError::Version(read.schema_version));
        }
        for figures in read.stages.iter().filter_map(|stage| stage.figures.as_ref()) {
            figures.check()?;
        }
        if read.stages.iter().all(|stage| stage.figures.is_none()) {
            return Err(LoadTestError::NoFigures);
        }
        Ok(read)
    }

    /// The prediction for the load itself: prompts, outputs and requests under way of the stage with the most of these.
    pub fn outlook(&self, shape: &ModelShape, device: &Device, base: &Scenario) -> Outlook {
        let figures = self.stages.iter().filter_map(|stage| stage.figures.as_ref());
        let known =
            figures.filter_map(|figures| Some((figures.in_flight, asked(base, figures)?.batch(batch(figures)))));
        let most = known.max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, asked)| asked);
        Outlook::of(shape, device, &most.unwrap_or_else(|| base.clone()))
    }

    /// The model that the server was asked for.
    pub fn model(&self) -> &str {
        &self.target.model
    }
}

/// A latency of a stage.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoadLatency {
    /// Median measured over the requests that succeeded, in nanoseconds.
    pub median_ns: f64,
    /// 95th percentile measured, if there were enough requests.
    pub p95_ns: Option<f64>,
    /// Requests that the median is over: of those that succeeded, the ones that have this latency.
    pub n: u64,
    /// Nanoseconds predicted: to the first token of a prompt alone, a token in a batch of the requests under way.
    /// `None` if the server counts no tokens, or the device lacks a figure.
    pub predicted_ns: Option<Estimate>,
    /// Predicted ÷ median − 1.
    pub error: Option<f64>,
}

/// A token of each request under way, on the roofline.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LoadPoint {
    /// FLOPs ÷ bytes with activations, as predicted for this batch.
    pub intensity: f64,
    /// FLOPs of these tokens ÷ the median time per output token measured.
    pub flops_per_s: f64,
}

/// A stage of a load test beside its prediction.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoadStage {
    /// Its load: `8 clients`, `2.5 requests/s`.
    pub level: String,
    /// Requests under way, mean: the batch that a token is predicted for, at least 1.
    pub in_flight: f64,
    /// Prompt tokens of a request, median, rounded; `None` if they are not counted.
    pub prompt: Option<u64>,
    /// Output tokens of a request, median, rounded; `None` if they are not counted.
    pub output: Option<u64>,
    /// Time to first token.
    pub ttft: Option<LoadLatency>,
    /// Time per output token.
    pub tpot: Option<LoadLatency>,
    /// Output tokens a second measured.
    pub tokens_per_s: Option<f64>,
    /// The same predicted, like for like: requests under way × output tokens ÷ (time to first token + the other tokens' time).
    pub predicted_tokens_per_s: Option<f64>,
    /// Predicted without the waiting for first tokens: requests under way ÷ time per output token.
    pub predicted_decode_tokens_per_s: Option<f64>,
    /// Where a token of this stage is on the roofline, by the measured time per output token.
    pub point: Option<LoadPoint>,
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

fn tokens(spread: Option<Spread>) -> Option<u64> {
    spread.map(|s| s.median.round() as u64).filter(|n| *n > 0)
}

/// Requests under way: the batch of a token.
fn batch(figures: &Figures) -> u64 {
    (figures.in_flight.round() as u64).max(1)
}

/// What the requests of a stage asked, for one of them.
fn asked(base: &Scenario, figures: &Figures) -> Option<Scenario> {
    let (prompt, output) = (tokens(figures.prompt_tokens)?, tokens(figures.output_tokens)?);
    Some(base.clone().tokens(prompt, output))
}

fn one(
    level: &Level,
    figures: &Figures,
    (shape, device, base): (&ModelShape, &Device, &Scenario),
    thresholds: &Thresholds,
) -> LoadStage {
    let (prompt, output) = (tokens(figures.prompt_tokens), tokens(figures.output_tokens));
    let batch = batch(figures);
    let asked = asked(base, figures);
    let alone = asked.as_ref().map(|asked| latencies(shape, device, &asked.clone().batch(1)));
    let together = asked.as_ref().map(|asked| latencies(shape, device, &asked.clone().batch(batch)));
    let latency = |spread: Option<Spread>, predicted_ns: Option<Estimate>| {
        spread.map(|s| LoadLatency {
            median_ns: s.median,
            p95_ns: s.p95,
            n: s.n,
            predicted_ns,
            error: predicted_ns.filter(|_| s.median > 0.0).map(|ns| ns.mid / s.median - 1.0),
        })
    };
    let tpot = together.as_ref().and_then(|both| both.decode.ns);
    let ttft = alone.as_ref().and_then(|both| both.prefill.ns);
    // A request's tokens come within its first token's time and that of the others.
    let whole = ttft.zip(tpot).zip(output).map(|((ttft, tpot), output)| {
        let request = ttft.mid + (output - 1) as f64 * tpot.mid;
        batch as f64 * output as f64 / request * 1e9
    });
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
        ttft: latency(figures.ttft_ns, ttft),
        tpot: latency(figures.tpot_ns, tpot),
        tokens_per_s: figures.output_tokens_per_s,
        predicted_tokens_per_s: whole,
        predicted_decode_tokens_per_s: tpot.map(|ns| batch as f64 / ns.mid * 1e9),
        point: together.as_ref().zip(figures.tpot_ns).filter(|(_, tpot)| tpot.median > 0.0).map(|(both, tpot)| {
            LoadPoint { intensity: both.decode.intensity, flops_per_s: both.decode.flops / tpot.median * 1e9 }
        }),
        bound: together.as_ref().and_then(|both| both.decode.bound),
        ratings: rate_figures(
            (millis(figures.ttft_ns), millis(figures.tpot_ns), figures.output_tokens_per_s),
            (None, "a load test does not see the device"),
            thresholds,
        ),
        missing: asked.is_none().then(|| "the server counts no tokens of prompts or answers".to_string()),
    }
}
