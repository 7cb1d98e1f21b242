//! What an overview has: its keys are promises to programs (`docs/json.md`).

use serde::Serialize;

/// What a run says in short: what ran, whether it can be trusted, its figures, what to change, what to ask next.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Overview {
    /// Version of this layout.
    pub schema: u32,
    /// `run`.
    pub kind: &'static str,
    /// The run's directory, as it was given; cut at its begin where it is long.
    pub run: String,
    /// What ran where.
    pub what: RunIdentity,
    /// Whether it can be trusted.
    pub trust: Trust,
    /// What was measured, the most important first.
    pub figures: Vec<OverviewFigure>,
    /// What to change, the largest gain of the run's time first.
    pub findings: Vec<OverviewFinding>,
    /// Where the time goes.
    pub paths: Vec<OverviewPath>,
    /// Commands that go on from here.
    pub next: Vec<NextCommand>,
    /// What there is more of than stands here.
    pub left_out: LeftOut,
}

/// What ran where. What is not known is missing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct RunIdentity {
    /// Model, device, day.
    pub title: String,
    /// The session's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// The machine's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// When it began, Unix nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_ns: Option<i64>,
    /// The model's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Its architecture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// Element type of activations, and of weights that are not quantised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dtype: Option<String>,
    /// Format of quantised weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantization: Option<String>,
    /// Number of weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<u64>,
    /// What ran it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// `cpu`, `cuda:0`, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The name of that device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    /// Version of candlescope.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candlescope: Option<String>,
    /// Version of candle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candle: Option<String>,
    /// What was asked of the model, in words.
    pub work: String,
    /// Whether the run was closed.
    pub complete: bool,
    /// Rows of the tables `steps`, `spans`, `kernels`.
    pub rows: Rows,
}

/// Rows of tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Rows {
    /// Steps.
    pub steps: u64,
    /// Intervals.
    pub spans: u64,
    /// Kernels, copies and memsets.
    pub kernels: u64,
}

/// Whether a run can be trusted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Trust {
    /// Whether its data are whole and consistent.
    pub ok: bool,
    /// Whether something else used the machine, so that times are not the program's alone.
    pub disturbed: bool,
    /// Both in a sentence.
    pub text: String,
    /// Why, the gravest first.
    pub reasons: Vec<TrustReason>,
}

/// A finding about the data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TrustReason {
    /// Its code.
    pub code: String,
    /// `error`, `warning`, `info`.
    pub severity: &'static str,
    /// What happened.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

/// A figure of the run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct OverviewFigure {
    /// Its key in `docs/definitions.md`, or one of `docs/json.md`.
    pub key: &'static str,
    /// What it is of, where there are several: a phase, the name of steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// Median, or the single value, to six digits.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// `measured`, `derived` or `datasheet`.
    pub kind: &'static str,
    /// Measurements behind it.
    pub n: u64,
    /// Lower end of [`interval`](Self::interval).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// Upper end of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// `ci95`, or the range `samples` or `unit_medians` where there are too few for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<&'static str>,
    /// Where it comes from, if that is not clear.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// A finding with its gain.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct OverviewFinding {
    /// Its place in `findings` of `candlescope analyze --json`.
    pub at: usize,
    /// Its code.
    pub code: &'static str,
    /// `high`, `medium`, `low`.
    pub severity: &'static str,
    /// The kind of step.
    pub phase: String,
    /// The path in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Gain: shares of the unobserved step, low, mid, high.
    pub gain: [f64; 3],
    /// The one in the middle as a share of the time of all steps of the run.
    pub gain_of_run: f64,
    /// `high`, `medium`, `low`.
    pub confidence: &'static str,
    /// What was seen.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

/// A path with much time in itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct OverviewPath {
    /// Path without ordinals.
    pub path: String,
    /// Intervals.
    pub calls: u64,
    /// Time on the host in itself, in nanoseconds.
    pub self_ns: u64,
    /// The same as a share of step time.
    pub self_share: f64,
    /// Share of GPU time in itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_self_share: Option<f64>,
}

/// A command to go on with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NextCommand {
    /// As a shell takes it.
    pub command: String,
    /// What it answers.
    pub why: String,
}

/// How many of each do not stand in an overview.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct LeftOut {
    /// Findings about the data.
    pub reasons: usize,
    /// Figures.
    pub figures: usize,
    /// Findings with gains.
    pub findings: usize,
    /// Paths.
    pub paths: usize,
    /// Rules that could not judge: `abstained` of `candlescope analyze --json` says what is missing.
    pub not_judged: usize,
}
