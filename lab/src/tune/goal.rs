//! What a batch is chosen for, and how well a measured one serves it.

use super::forecast::Latency;
use candlescope_work::slo::Slo;
use serde::{Deserialize, Serialize};

/// What is made as large, or as short, as possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Metric {
    /// Output tokens a second, of batches that keep the service level if there is one.
    Throughput,
    /// Time of a request, likewise.
    Latency,
    /// Output tokens a second of the requests that kept the service level.
    Goodput,
}

impl Metric {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Latency => "latency",
            Self::Goodput => "goodput",
        }
    }
}

/// A metric, and the limits to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Goal {
    /// What batches are ranked by; with [`Metric::Goodput`] also those whose median request misses `slo`.
    pub metric: Metric,
    /// The limits; none at all if it is empty.
    pub slo: Slo,
}

/// A batch that was measured: medians over its plain repetitions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BatchFigures {
    /// Repetitions that the medians are over: those that count, of both passes together.
    pub samples: usize,
    /// Times of a request.
    #[serde(flatten)]
    pub latency: Latency,
    /// Output tokens a second of all sequences, the prompts' time included.
    #[serde(rename = "output_tps")]
    pub output_tokens_per_s: f64,
    /// 95 % interval of that median, or the range where there are too few repetitions.
    #[serde(rename = "output_tps_spread")]
    pub output_tokens_per_s_spread: Option<(f64, f64)>,
    /// The same of the time of a request, in nanoseconds.
    pub e2e_ns_spread: Option<(f64, f64)>,
    /// Share of the repetitions that kept the service level; 1 without one.
    pub kept: f64,
    /// Most memory in use, in bytes, if it was read.
    pub memory_bytes: Option<f64>,
}

impl Goal {
    /// How far `latency` is above the limits: the largest ratio of a time to its limit, 0 without limits. At most 1
    /// keeps them.
    pub fn excess(&self, latency: &Latency) -> f64 {
        let Slo { ttft_ns, tpot_ns, e2e_ns, .. } = self.slo;
        let ratio = |time: Option<f64>, limit: Option<u64>| Some(time? / limit? as f64);
        let ratios = [
            ratio(Some(latency.ttft_ns), ttft_ns),
            ratio(latency.tpot_ns, tpot_ns),
            ratio(Some(latency.e2e_ns), e2e_ns),
        ];
        ratios.into_iter().flatten().fold(0.0, f64::max)
    }

    /// Whether there is a limit at all.
    pub fn limits(&self) -> bool {
        self.slo != Slo::default()
    }

    /// How well a batch serves: more is better, 0 if it serves not at all because it misses the limits. `kept` is the
    /// share of requests that keep them.
    pub(super) fn score(&self, latency: &Latency, output_tokens_per_s: f64, kept: f64) -> f64 {
        match self.metric {
            Metric::Goodput => kept * output_tokens_per_s,
            _ if self.excess(latency) > 1.0 => 0.0,
            Metric::Throughput => output_tokens_per_s,
            Metric::Latency => 1e9 / latency.e2e_ns,
        }
    }

    /// Whether two measured batches cannot be told apart: the spreads of what counts overlap.
    pub(super) fn alike(&self, a: &BatchFigures, b: &BatchFigures) -> bool {
        let spread = |found: &BatchFigures| match self.metric {
            Metric::Latency => found.e2e_ns_spread,
            _ => found.output_tokens_per_s_spread,
        };
        spread(a).zip(spread(b)).is_some_and(|((a_low, a_high), (b_low, b_high))| a_low <= b_high && b_low <= a_high)
    }

    /// How well a measured batch serves.
    pub fn score_of(&self, found: &BatchFigures) -> f64 {
        self.score(&found.latency, found.output_tokens_per_s, found.kept)
    }
}
