//! What recording cost.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The profiler's own cost on the application's threads, measured in a loop or in place. Derived, unless stated
/// otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct OverheadInfo {
    /// Cost of one enter+exit of a span on the application's thread in nanoseconds: registry and layer, caches warm, in
    /// a loop, measured when the session started. Between a model's operations, when other code has filled the caches,
    /// it is two to three times that.
    pub per_interval_ns: f64,
    /// Time taken from the application's threads, in nanoseconds: `per_interval_ns` × intervals (derived from the
    /// loop), plus the time that GPU marks cost (measured, without waiting).
    pub application_ns: u64,
    /// CPU time of the profiler's own threads in nanoseconds (measured), on platforms that report it.
    pub background_cpu_ns: Option<u64>,
    /// `application_ns` ÷ sum of step durations (derived from the loop).
    pub ratio: Option<f64>,
    /// The better estimate of the cost that is here: `in_place` if there is one, else `loop`. Empty in runs that do not
    /// state it, which means `loop`.
    pub estimate: String,
    /// The cost of recording as measured in place, if some steps were left plain for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_place: Option<InPlaceOverhead>,
    /// What became of a budget for the cost of recording, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetKept>,
}

/// A budget for the cost of recording, and what became of it: steps were left out until it was held.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct BudgetKept {
    /// The share of all steps' time that recording may take.
    pub target: f64,
    /// Steps that were recorded, of those that began while recording was on.
    pub kept: f64,
    /// What recording took of all steps' time: the cost of a recorded step, as measured in place, × `kept` (derived).
    /// With that of windows of kernels; without stacks, whose samples come in every step. `None` if no plain step was
    /// compared.
    pub ratio: Option<f64>,
    /// Lower end of its 95 % interval; `None` without one.
    pub low: Option<f64>,
    /// Upper end of that interval; `None` without one.
    pub high: Option<f64>,
    /// Whether the budget was held: true if the whole interval is within it, false if all of it is above; `None` if
    /// neither, or without an interval.
    pub held: Option<bool>,
}

/// The estimate from a loop: see [`OverheadInfo::estimate`].
pub const ESTIMATE_LOOP: &str = "loop";
/// The estimate from plain steps.
pub const ESTIMATE_IN_PLACE: &str = "in_place";

/// How much longer recorded steps take than plain ones, in which nothing is recorded (measured).
///
/// A plain step is compared with the recorded step of its kind right before it or right after it on its thread, by
/// turns. What the profiler costs even in a plain step is not included: `tracing`'s registry, and the layer's check of
/// each span, some tens of nanoseconds per interval. The figure is that of a typical step; if only some steps get GPU
/// marks in full, their cost is in `gpu.marks_ns`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct InPlaceOverhead {
    /// Steps that were left plain; they have no rows.
    pub left_plain: u64,
    /// Plain steps that were compared with recorded ones.
    pub n_plain: u64,
    /// Recorded steps that they were compared with.
    pub n_recorded: u64,
    /// Recorded ÷ plain − 1: the ratios of the kinds, weighted by their time in recorded steps. If any kinds have a
    /// confidence interval, only these count.
    pub ratio: f64,
    /// Lower end of its 95 % interval; `None` below six plain steps of each kind.
    pub low: Option<f64>,
    /// Upper end of the interval.
    pub high: Option<f64>,
    /// By kind of step, which is its span's name.
    pub kinds: BTreeMap<String, InPlaceKind>,
    /// Steps whose kernels were recorded (`n_recorded`) beside the median of recorded steps of their kind before the
    /// recorder was switched on, in place of plain ones: what a window costs in addition. `None` if there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub windows: Option<InPlaceKind>,
}

/// The comparison for one kind of step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct InPlaceKind {
    /// Plain steps that were compared with recorded ones.
    pub n_plain: u64,
    /// Recorded steps that they were compared with.
    pub n_recorded: u64,
    /// Median of recorded ÷ plain − 1.
    pub ratio: f64,
    /// Lower end of the median's 95 % interval, by order statistics; `None` below six plain steps.
    pub low: Option<f64>,
    /// Upper end of the interval.
    pub high: Option<f64>,
}
