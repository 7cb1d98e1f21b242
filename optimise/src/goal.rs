//! What an optimisation is for.

use candlescope_work::slo::Slo;
use serde::{Deserialize, Serialize};

/// What is to become better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aim {
    /// The time of a step, and so of a request alone.
    #[default]
    Latency,
    /// Tokens a second over all sequences.
    Throughput,
    /// Requests a second that keep all limits.
    Goodput,
}

impl Aim {
    /// As options have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Throughput => "throughput",
            Self::Goodput => "goodput",
        }
    }

    /// The figure of requests by which remedies are judged that cut the work into other steps; `None` where requests are counted.
    /// Latency is that of a mean request, because a promise is a share of all requests' time: what is reused by four of five requests
    /// makes the median one much shorter, and the first one not at all.
    pub(crate) const fn of_requests(self) -> Option<&'static str> {
        match self {
            Self::Latency => Some("e2e_mean_ns"),
            Self::Throughput => Some("output_tps"),
            Self::Goodput => None,
        }
    }
}

/// What is to become better, and what must not become worse than it may.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Goal {
    /// What is to become better.
    pub aim: Aim,
    /// Limits of a request: of the medians of all requests, and of each one where the aim is goodput.
    pub slo: Slo,
    /// Most that the distribution of the next token may move: mean KL divergence in nats. Without it nothing is tried that
    /// changes answers.
    pub most_kl: Option<f64>,
}

impl Goal {
    /// A goal with limits of requests; `most_kl` is in nats, and with `None` nothing is tried that changes answers but
    /// for rounding.
    pub fn new(aim: Aim, slo: Slo, most_kl: Option<f64>) -> Self {
        Self { aim, slo, most_kl }
    }

    pub(crate) fn is_latency(&self) -> bool {
        self.aim == Aim::Latency
    }

    /// Whether it is requests that are counted, and not steps that are timed.
    pub(crate) fn counts_requests(&self) -> bool {
        self.aim == Aim::Goodput
    }

    /// The limits that each request is held against, where it is counted how many keep them.
    pub(crate) fn of_each_request(&self) -> Option<Slo> {
        self.counts_requests().then_some(self.slo)
    }

    /// The limit that these medians of requests break, in words; figures are in nanoseconds.
    pub(crate) fn broken_by(&self, figure: impl Fn(&str) -> Option<f64>) -> Option<String> {
        let limits = [
            ("ttft", "ttft_ns", self.slo.ttft_ns),
            ("tpot", "tpot_ns", self.slo.tpot_ns),
            ("e2e", "e2e_ns", self.slo.e2e_ns),
        ];
        limits.into_iter().find_map(|(name, figure_name, limit)| {
            let (limit, value) = (limit? as f64, figure(figure_name)?);
            let words = |ns: f64| candlescope_core::numbers::duration(ns);
            (value > limit).then(|| format!("{name} is {}, above the limit of {}", words(value), words(limit)))
        })
    }
}
