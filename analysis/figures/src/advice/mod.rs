//! What an analysis advises: findings with gains, as data. Rules make them (`findings/src/bottlenecks` of steps,
//! `ranks/src/rules` of ranks beside each other), renderers word them (`candlescope_report`).
//!
//! A gain is a share of the *unobserved* step: the time that a step takes when nothing records it. `docs/findings.md`
//! lists the codes, what each tests and how its gain is computed.

mod code;
mod figure;
mod gain;
mod record;

pub use code::{AdviceCode, Missing};
pub use figure::{AdviceFigure, FigureSource};
pub use gain::{LEAST_GAIN, RATES, gain_at_rates, whole};
pub use record::{TrackRecord, came_true};

use candlescope_work::estimate::Estimate;
use serde::Serialize;

/// What was found, and what could not be judged.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Diagnosis {
    /// The kinds of steps that were looked at, the one with the most time first.
    pub steps: Vec<UnobservedStep>,
    /// Findings, the largest gain of the run's step time first.
    pub findings: Vec<Advice>,
    /// What could not be judged, and what is missing for it.
    pub abstained: Vec<Abstention>,
    /// Findings that were left out because their gain is below [`LEAST_GAIN`].
    pub negligible: u64,
    /// What the findings of each kind of step gain together, re-simulated and not added up.
    pub together: Vec<JointGain>,
    /// The order of remedies for each kind of step that has several, with what each gains after those before it.
    pub roadmaps: Vec<Roadmap>,
}

impl Diagnosis {
    /// The same with at most `n` findings; 0 keeps all of them.
    #[must_use]
    pub fn top(mut self, n: usize) -> Self {
        self.findings.truncate(if n == 0 { usize::MAX } else { n });
        self
    }
}

/// One kind of step, and how long it takes when nothing records it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UnobservedStep {
    /// The phase, or the name of the steps.
    pub phase: String,
    /// Steps that the time is the median of.
    pub n: u64,
    /// Median duration as recorded, in nanoseconds (measured).
    pub observed_ns: f64,
    /// The same less what recording costs: T, of which gains are shares (derived).
    pub unobserved_ns: f64,
    /// How far T may be off, in nanoseconds; `None` if it is not known, as of fewer than six steps on a processor.
    pub bound_ns: Option<f64>,
    /// Between which T is, in nanoseconds: the 95 % interval of the median, widened by what recording may cost; `None`
    /// where there is no such interval.
    pub range_ns: Option<(f64, f64)>,
    /// How T was obtained.
    pub basis: &'static str,
    /// Time of work on the device in one step, overlapping work counted once, in nanoseconds (measured); `None` without
    /// recorded kernels.
    pub device_ns: Option<f64>,
    /// Share of the time of all steps.
    pub share_of_time: f64,
}

/// One finding: where time goes that could be had back.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// What it is about.
    pub code: AdviceCode,
    /// How much it matters, by the share of the run's step time that it gains.
    pub severity: AdviceSeverity,
    /// The steps that it is about, and the path, kernel or function in them where it is about one.
    pub place: AdvicePlace,
    /// The figures it rests on.
    pub evidence: Vec<AdviceFigure>,
    /// SQL over the views of `docs/sql.md` that finds the rows again.
    pub query: String,
    /// What part of the run it is about.
    pub coverage: Coverage,
    /// Share of the unobserved step that it gains.
    pub gain: Estimate,
    /// How far to trust the gain.
    pub confidence: Confidence,
    /// Whether the machine was disturbed while the run was recorded, by something that can explain all of it.
    pub disturbed: bool,
    /// How promises of this kind came out before, on this device, if any were put to the test.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<TrackRecord>,
}

impl Diagnosis {
    /// Says of each finding how earlier promises of its kind came out. A kind whose promises mostly fail is not trusted.
    pub fn remember(&mut self, record: impl Fn(AdviceCode) -> Option<TrackRecord>) {
        for advice in &mut self.findings {
            advice.record = record(advice.code);
            if advice.record.is_some_and(|record| record.fails()) {
                let reason = "most promises of this kind that were put to the test on this device did not come true";
                advice.confidence = Confidence { level: ConfidenceLevel::Low, reason };
            }
        }
    }
}

impl Advice {
    /// Its gain in the time of all steps of the run: by this findings are ranked.
    pub fn of_run(&self) -> Estimate {
        self.gain.times(self.coverage.share_of_time)
    }

    /// A figure of the evidence.
    pub fn figure(&self, name: &str) -> Option<f64> {
        self.evidence.iter().find(|figure| figure.name == name).map(|figure| figure.value)
    }
}

/// Where a finding is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct AdvicePlace {
    /// The phase, or the name of the steps.
    pub phase: String,
    /// Rollup path, without ordinals; `None` if it is about the steps as a whole, or about work outside intervals.
    pub path: Option<String>,
    /// Module with `*` for numbers, such as `model.layers.*.mlp`; `None` if the path is no module's.
    pub module: Option<String>,
    /// Kernel, copy direction, or several of them; of ranks the kind of collective.
    pub kernel: Option<String>,
    /// The rank that it is about, by its number; `None` of what is not about one of several ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The function of the program with most of the time, where stacks were sampled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The known cause that its callers tell: see `docs/findings.md`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<&'static str>,
    /// The shapes whose CUDA graphs steps did not run as, the one that took the most time first; empty where none is known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shapes: Vec<LeftShape>,
}

/// Steps of one shape that ran call by call although a CUDA graph was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct LeftShape {
    /// Slots × context, such as `1x512`.
    pub shape: String,
    /// Steps of that shape that ran call by call.
    pub steps: u64,
    /// Tokens that they processed.
    pub tokens: u64,
    /// What they took on the host, all of them, in nanoseconds.
    pub took_ns: u64,
    /// What they took longer than as many median replays would have, in nanoseconds; `None` if no step was a replay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excess_ns: Option<u64>,
}

impl AdvicePlace {
    /// The steps of a phase.
    pub fn of(phase: &str) -> Self {
        Self { phase: phase.to_string(), ..Self::default() }
    }

    /// A path in them. A path that is a module's says so.
    #[must_use]
    pub fn path(mut self, path: &str) -> Self {
        let element = path.split_once('/').map(|(_, rest)| rest).filter(|rest| rest.contains('.'));
        self.module = element.map(str::to_string);
        self.path = Some(path.to_string());
        self
    }

    /// Names the kernel or the copies' direction there, or several of them, joined by the caller.
    #[must_use]
    pub fn kernel(mut self, kernel: &str) -> Self {
        self.kernel = Some(kernel.to_string());
        self
    }

    /// Names the rank.
    #[must_use]
    pub fn rank(mut self, rank: u32) -> Self {
        self.rank = Some(rank);
        self
    }

    /// Names the program's function with most of the time there.
    #[must_use]
    pub fn function(mut self, function: &str) -> Self {
        self.function = Some(function.to_string());
        self
    }

    /// Names shapes whose CUDA graphs were left.
    #[must_use]
    pub fn shapes(mut self, shapes: Vec<LeftShape>) -> Self {
        self.shapes = shapes;
        self
    }

    /// What brings it about.
    #[must_use]
    pub fn because(mut self, cause: &'static str) -> Self {
        self.cause = Some(cause);
        self
    }
}

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AdviceSeverity {
    /// Below 5 % of the run's step time.
    Low,
    /// From 5 % on.
    Medium,
    /// From 20 % on.
    High,
}

impl AdviceSeverity {
    /// By the share of the run's step time that is gained.
    pub fn of(gain: f64) -> Self {
        match gain {
            gain if gain >= 0.20 => Self::High,
            gain if gain >= 0.05 => Self::Medium,
            _ => Self::Low,
        }
    }

    /// As reports call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// What part of a run a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Coverage {
    /// Steps that its figures rest on.
    pub steps: u64,
    /// Share of the time of all steps that is in steps of its kind; of ranks that of the steps that are judged, which
    /// are of one kind.
    pub share_of_time: f64,
}

/// How far to trust a gain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Confidence {
    /// How far, on three levels; low if the figures are of fewer than six steps.
    pub level: ConfidenceLevel,
    /// What the level rests on, in words that reports print.
    pub reason: &'static str,
}

/// How far a gain can be trusted, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfidenceLevel {
    /// An indication: it rests on few steps, a disturbed run, a datasheet or an assumption.
    Low,
    /// Some of what it rests on is derived.
    Medium,
    /// What it rests on is measured directly, or known of the version of candle in use.
    High,
}

impl ConfidenceLevel {
    /// As reports call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// A rule that could not judge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Abstention {
    /// What it looks for.
    pub code: AdviceCode,
    /// The kinds of steps that it could not judge.
    pub phases: Vec<String>,
    /// What the run lacks.
    pub missing: Missing,
}

/// The order of remedies for a kind of step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Roadmap {
    /// The kind of step.
    pub phase: String,
    /// The remedies, in order.
    pub stages: Vec<RoadmapStage>,
}

/// One remedy, once those before it are had.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RoadmapStage {
    /// The finding that it answers.
    pub code: AdviceCode,
    /// Rollup path that the finding names; `None` if it names none.
    pub path: Option<String>,
    /// Kernel, copy direction or several of them that the finding names; `None` if it names none.
    pub kernel: Option<String>,
    /// What it gains by itself: a share of the unobserved step.
    pub alone: f64,
    /// What it gains after those before it, as a share of the same step.
    pub gain: f64,
    /// What all of them gain up to here.
    pub so_far: Estimate,
}

/// What the findings of one kind of step gain together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JointGain {
    /// The kind of step.
    pub phase: String,
    /// The findings that count, in the order in which they were applied.
    pub codes: Vec<AdviceCode>,
    /// Share of the unobserved step that they gain.
    pub gain: Estimate,
}
