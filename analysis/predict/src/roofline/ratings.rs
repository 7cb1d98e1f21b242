//! Ratings of a run's figures: good, fair or bad, by thresholds that can be set.

use candlescope_figures::Analysis;
use serde::Serialize;

/// How good a figure is by its two [`Thresholds`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// A time up to the first threshold, throughput from the first on, or utilisation between the two.
    Good,
    /// A time or throughput between the two thresholds, or utilisation above the second.
    Fair,
    /// A time above the second threshold, throughput below the second, or utilisation below the first.
    Bad,
    /// The figure is not known.
    Unknown,
}

impl Grade {
    /// As reports call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Fair => "fair",
            Self::Bad => "bad",
            Self::Unknown => "not known",
        }
    }
}

/// Thresholds. Times are good up to the first and fair up to the second; throughput is good from the first and fair
/// from the second; utilisation is good between the two, fair above (nothing is left for a peak of load) and bad below.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Thresholds {
    /// Median time to first token, milliseconds.
    pub ttft_ms: (f64, f64),
    /// Median time per output token, milliseconds.
    pub tpot_ms: (f64, f64),
    /// Share of time in which the device works.
    pub utilisation: (f64, f64),
    /// Output tokens a second.
    pub throughput: (f64, f64),
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { ttft_ms: (100.0, 500.0), tpot_ms: (50.0, 100.0), utilisation: (0.80, 0.95), throughput: (200.0, 150.0) }
    }
}

/// Thresholds cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{given}` is no threshold: write NAME=GOOD,FAIR with ttft or tpot (milliseconds, the smaller first), throughput \
     (tokens/s, the larger first) or utilisation=LOW,HIGH (shares up to 1), for example ttft=100,500"
)]
pub struct ThresholdError {
    /// The whole text that could not be read, name and numbers.
    pub given: String,
}

impl Thresholds {
    /// The same with one of them set, written `ttft=100,500`.
    ///
    /// # Errors
    /// If the name is not known, or the two numbers are not in order.
    pub fn with(mut self, given: &str) -> Result<Self, ThresholdError> {
        let wrong = || ThresholdError { given: given.to_string() };
        let (name, values) = given.split_once('=').ok_or_else(wrong)?;
        let (first, second) = values.split_once(',').ok_or_else(wrong)?;
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|v| v.is_finite() && *v >= 0.0);
        let pair = number(first).zip(number(second)).ok_or_else(wrong)?;
        let rising = pair.0 <= pair.1;
        match name.trim() {
            "ttft" if rising => self.ttft_ms = pair,
            "tpot" if rising => self.tpot_ms = pair,
            "utilisation" if rising && pair.1 <= 1.0 => self.utilisation = pair,
            "throughput" if pair.0 >= pair.1 => self.throughput = pair,
            _ => return Err(wrong()),
        }
        Ok(self)
    }
}

/// The grade of one figure, with the value and the thresholds that it rests on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rating {
    /// Its name: `ttft`, `tpot`, `utilisation` or `throughput`.
    pub figure: &'static str,
    /// Its value in `unit`.
    pub value: Option<f64>,
    /// Unit of the value and of the thresholds.
    pub unit: &'static str,
    /// The two thresholds in `unit`, ordered as in [`Thresholds`]: good and fair, of utilisation low and high.
    pub thresholds: (f64, f64),
    /// The grade by these thresholds; [`Grade::Unknown`] if there is no value.
    pub grade: Grade,
    /// What the value is, or why there is none.
    pub note: String,
}

fn lower(value: f64, (good, fair): (f64, f64)) -> Grade {
    if value <= good {
        Grade::Good
    } else if value <= fair {
        Grade::Fair
    } else {
        Grade::Bad
    }
}

fn higher(value: f64, (good, fair): (f64, f64)) -> Grade {
    if value >= good {
        Grade::Good
    } else if value >= fair {
        Grade::Fair
    } else {
        Grade::Bad
    }
}

fn between(value: f64, (low, high): (f64, f64)) -> Grade {
    if value < low {
        Grade::Bad
    } else if value <= high {
        Grade::Good
    } else {
        Grade::Fair
    }
}

/// Rates a run's latency, throughput and use of the device.
pub(super) fn rate(analysis: &Analysis, thresholds: &Thresholds) -> Vec<Rating> {
    let latency = &analysis.latency;
    let busy = analysis.gpu.busy.as_ref().and_then(|busy| busy.busy_share());
    let sampled = analysis.devices.iter().filter_map(|device| Some(device.utilisation?.0)).reduce(f64::max);
    let used = match (busy, sampled) {
        (Some(share), _) => (Some(share), "share of the steps' time in which kernels ran"),
        (None, Some(share)) => (Some(share), "as the driver samples it: any kernel counts"),
        (None, None) => (None, "neither kernels nor the driver's utilisation were recorded"),
    };
    let median = |d: &Option<candlescope_figures::Distribution>| d.as_ref().map(|d| d.median / 1e6);
    rate_figures((median(&latency.ttft), median(&latency.tpot), latency.output_tokens_per_s), used, thresholds)
}

/// Rates medians of the latencies in milliseconds, output tokens a second, and the share of time in which the device
/// works, with what that share is.
pub(super) fn rate_figures(
    (ttft, tpot, output_tokens_per_s): (Option<f64>, Option<f64>, Option<f64>),
    (used, what): (Option<f64>, &str),
    thresholds: &Thresholds,
) -> Vec<Rating> {
    let rated =
        |figure, value: Option<f64>, unit, thresholds, grade: fn(f64, (f64, f64)) -> Grade, note: &str| Rating {
            figure,
            value,
            unit,
            thresholds,
            grade: value.map_or(Grade::Unknown, |value| grade(value, thresholds)),
            note: note.to_string(),
        };
    vec![
        rated("ttft", ttft, "ms", thresholds.ttft_ms, lower, "median"),
        rated("tpot", tpot, "ms", thresholds.tpot_ms, lower, "median"),
        rated("utilisation", used, "share", thresholds.utilisation, between, what),
        rated(
            "throughput",
            output_tokens_per_s,
            "tokens/s",
            thresholds.throughput,
            higher,
            "output tokens ÷ wall time",
        ),
    ]
}
