//! What an overview has: its keys are promises to programs (`docs/json.md`).

use serde::Serialize;

/// What a run says in short: what ran, whether it can be trusted, its figures, what to change, what to ask next.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Overview {
    /// Version of this layout.
    pub schema: u32,
    /// Always `run`; a folder has an overview of its own kinds.
    pub kind: &'static str,
    /// The run's directory, as it was given; cut at its begin where it is long.
    pub run: String,
    /// Model, device, versions and work of the run, and how much was recorded.
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
    /// `MODEL on DEVICE, DAY`, as reports have it; the id of a run whose model is not known.
    pub title: String,
    /// Unique name of the run, as `run.json` has it; the last 80 characters of a longer one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// Name of the machine, or of the container in which the program ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// When it began, Unix nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_ns: Option<i64>,
    /// Name of the model, as the program gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Architecture of the model, as its configuration names it: `llama`, `qwen2`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// Element type of activations, and of weights that are not quantised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dtype: Option<String>,
    /// Format of quantised weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantization: Option<String>,
    /// Number of weights, each single value counted: `parameters` of the model in `run.json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<u64>,
    /// `instrumented` for our layers, `candle` for candle's own models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// The device that was asked for: `cpu`, `cuda:0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The name of that device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    /// Version of candlescope that recorded the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candlescope: Option<String>,
    /// Version of candle, where the program or its spans tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candle: Option<String>,
    /// What was asked of the model, in words.
    pub work: String,
    /// Whether the run was closed.
    pub complete: bool,
    /// Rows of the tables `steps`, `spans`, `kernels`.
    pub rows: Rows,
}

/// Rows of tables that were read, those of the warm-up included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Rows {
    /// Steps that have a record.
    pub steps: u64,
    /// Intervals that have a record, at any depth.
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
    /// Name of the finding that stays the same between versions.
    pub code: String,
    /// `error` where numbers are missing or wrong, `warning` where some are less certain, else `info`.
    pub severity: &'static str,
    /// What happened, in a sentence of at most 260 characters.
    pub message: String,
    /// What to do about it, in at most 260 characters.
    pub remedy: String,
}

/// A figure of the run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct OverviewFigure {
    /// Its key in `docs/definitions.md`, or one of `docs/agents.md`.
    pub key: &'static str,
    /// What it is of, where there are several: a phase, the name of steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// Median, or the single value, to six digits.
    pub value: f64,
    /// Unit of `value`, `low` and `high`: `ns`, `bytes`, `ratio`, `count`, or as the definition has it.
    pub unit: &'static str,
    /// `measured`, `derived` or `datasheet`.
    pub kind: &'static str,
    /// Measurements behind it: samples of a median, or what a single value rests on, such as steps or requests.
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
    /// Code of the finding, as `docs/findings.md` lists it.
    pub code: &'static str,
    /// `high` if the program gains 20 % or more of the run's step time by it, `medium` from 5 % on, else `low`.
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
    /// `high` if it was measured directly, `medium` if some of what it rests on is derived, else `low`.
    pub confidence: &'static str,
    /// What was seen, in a sentence of at most 260 characters.
    pub message: String,
    /// What to change, in at most 260 characters.
    pub remedy: String,
}

/// A path with much time in itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct OverviewPath {
    /// Path without ordinals, so that all layers are one; the last 80 characters of a longer one.
    pub path: String,
    /// Intervals of this path, warm-up left out.
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
    /// What its answer tells, in a few words.
    pub why: String,
}

/// How many of each do not stand in an overview.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct LeftOut {
    /// Findings about the data.
    pub reasons: usize,
    /// Figures that the run has, the least important ones.
    pub figures: usize,
    /// Findings with gains, those that stand last in the ranking.
    pub findings: usize,
    /// Paths with intervals, those with the least time in themselves.
    pub paths: usize,
    /// Rules that could not judge: `abstained` of `candlescope analyze --json` says what is missing.
    pub not_judged: usize,
}
