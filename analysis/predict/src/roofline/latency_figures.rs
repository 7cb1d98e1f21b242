//! Latencies that are both measured and predicted.

use super::predict::{StepPrediction, StepTimes};
use candlescope_figures::{Analysis, Distribution, KernelLaunch};
use candlescope_schema::{GpuSource, Phase};
use candlescope_work::devices::OperationClass;
use candlescope_work::estimate::Estimate;
use candlescope_work::shape::ModelShape;
use serde::{Serialize, Serializer};

/// A time that can be predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Figure {
    /// Median time to first token.
    Ttft,
    /// Median time per output token.
    Tpot,
    /// Mean time of a prefill's kernels.
    PrefillKernels,
    /// Mean time of a decoding step's kernels.
    DecodeKernels,
    /// Mean time of a prefill's kernels of one kind.
    PrefillOf(OperationClass),
    /// Mean time of a decoding step's kernels of one kind.
    DecodeOf(OperationClass),
    /// Median time of the host from launch to launch while it decodes and kernels are recorded.
    Launch(KernelLaunch),
}

impl Figure {
    /// As reports call it.
    pub fn name(self) -> &'static str {
        use OperationClass::{Activations, Attention, Pointwise, Projections, Softmax};
        match self {
            Self::Ttft => "time to first token",
            Self::Tpot => "time per output token",
            Self::PrefillKernels => "kernels of a prefill",
            Self::DecodeKernels => "kernels of a decoding step",
            Self::PrefillOf(Projections) => "prefill, projections",
            Self::PrefillOf(Attention) => "prefill, attention",
            Self::PrefillOf(Softmax) => "prefill, softmax",
            Self::PrefillOf(Activations) => "prefill, activations",
            Self::PrefillOf(Pointwise) => "prefill, pointwise",
            Self::DecodeOf(Projections) => "decode, projections",
            Self::DecodeOf(Attention) => "decode, attention",
            Self::DecodeOf(Softmax) => "decode, softmax",
            Self::DecodeOf(Activations) => "decode, activations",
            Self::DecodeOf(Pointwise) => "decode, pointwise",
            Self::Launch(KernelLaunch::Plain) => "launch to launch, recorded",
            Self::Launch(KernelLaunch::Product) => "launch to launch, recorded, products",
            Self::Launch(KernelLaunch::Divided) => "launch to launch, recorded, sums of divided products",
            Self::Launch(KernelLaunch::Strided) => "launch to launch, recorded, strided operands",
        }
    }

    /// As files call it: `ttft`, `decode_kernels`, `decode_softmax`.
    pub fn code(self) -> String {
        match self {
            Self::Ttft => "ttft".to_string(),
            Self::Tpot => "tpot".to_string(),
            Self::PrefillKernels => "prefill_kernels".to_string(),
            Self::DecodeKernels => "decode_kernels".to_string(),
            Self::PrefillOf(class) => format!("prefill_{}", class.name()),
            Self::DecodeOf(class) => format!("decode_{}", class.name()),
            Self::Launch(launched) => format!("launch_{}", launched.name()),
        }
    }

    /// Whether it is of the prefill.
    pub(super) fn is_prefill(self) -> bool {
        matches!(self, Self::Ttft | Self::PrefillKernels | Self::PrefillOf(_))
    }

    /// The phase that it is of.
    pub(super) fn phase(self) -> Phase {
        if self.is_prefill() { Phase::Prefill } else { Phase::Decode }
    }

    /// Whether a user sees it.
    pub(super) fn is_latency(self) -> bool {
        matches!(self, Self::Ttft | Self::Tpot)
    }

    /// What is predicted for it, in nanoseconds.
    pub(super) fn predicted(self, prefill: &StepPrediction, decode: &StepPrediction) -> Option<Estimate> {
        let step = if self.is_prefill() { prefill } else { decode };
        match self {
            Self::Ttft | Self::Tpot => step.ns,
            Self::PrefillKernels | Self::DecodeKernels => step.device_ns.map(Estimate::exact),
            Self::PrefillOf(class) | Self::DecodeOf(class) => {
                let own = step.operations.iter().filter(|timed| timed.class == class);
                own.map(|timed| timed.device_ns).sum::<Option<f64>>().map(Estimate::exact)
            }
            // No run is predicted as it is recorded.
            Self::Launch(_) => None,
        }
    }

    /// The same of the times alone.
    pub(super) fn of_times(self, step: &StepTimes) -> f64 {
        match self {
            Self::Ttft | Self::Tpot => step.ns,
            Self::PrefillKernels | Self::DecodeKernels => step.device_ns,
            Self::PrefillOf(class) | Self::DecodeOf(class) => step.by_class.of(class),
            Self::Launch(launched) => step.launches.of(launched),
        }
    }
}

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.code())
    }
}

/// The figures that a run measured: nanoseconds, and the number of measurements.
pub(super) fn measured(analysis: &Analysis, shape: &ModelShape) -> Vec<(Figure, f64, u64)> {
    let median = |d: &Option<Distribution>| d.as_ref().map(|d| (d.median, d.n as u64));
    // An encoder is a phase of its own in a run, and within the prefill of a prediction.
    let prefill = kernels(analysis, Phase::Prefill).filter(|_| shape.encoder_layers == 0);
    let decode = kernels(analysis, Phase::Decode);
    let mut all = vec![
        (Figure::Ttft, median(&analysis.latency.ttft)),
        (Figure::Tpot, median(&analysis.latency.tpot)),
        (Figure::PrefillKernels, prefill),
        (Figure::DecodeKernels, decode),
    ];
    for class in OperationClass::ALL {
        let of = |phase: Phase, whole: Option<(f64, u64)>| {
            let (ns, n) = whole?;
            Some((ns * class_share(analysis, phase, class)?, n))
        };
        all.push((Figure::PrefillOf(class), of(Phase::Prefill, prefill)));
        all.push((Figure::DecodeOf(class), of(Phase::Decode, decode)));
    }
    let known = all.into_iter().filter_map(|(figure, found)| found.map(|(ns, n)| (figure, ns, n)));
    known.filter(|(_, ns, _)| *ns > 0.0).collect()
}

/// The times from launch to launch of a run in nanoseconds, as far as they were recorded.
pub(super) fn launch_paces(analysis: &Analysis) -> impl Iterator<Item = (Figure, f64)> {
    let of = |launched| Some((Figure::Launch(launched), analysis.kernels.pace.of(launched)?.0));
    KernelLaunch::ALL.into_iter().filter_map(of)
}

/// Mean time of the kernels of a phase's steps, and of how many steps.
fn kernels(analysis: &Analysis, phase: Phase) -> Option<(f64, u64)> {
    let kind = analysis.gpu.kinds.iter().find(|kind| kind.is_phase && kind.name == phase.as_str())?;
    let cupti = kind.elapsed.iter().find(|e| e.source == GpuSource::Cupti && e.measured > 0)?;
    Some((cupti.measured_ns as f64 / cupti.measured as f64, cupti.measured))
}

/// Whether the steps of a phase state their work: only then do the names of intervals say what kind of operation they are.
pub(super) fn states_work(analysis: &Analysis, phase: Phase) -> bool {
    let row = analysis.phases.rows.iter().find(|row| row.is_phase && row.name == phase.as_str());
    row.is_some_and(|row| row.work.is_stated())
}

/// Which share of the kernels' time in a phase was launched by intervals of this kind; `None` if that is not known.
fn class_share(analysis: &Analysis, phase: Phase, class: OperationClass) -> Option<f64> {
    if !states_work(analysis, phase) {
        return None;
    }
    let (mut own, mut whole) = (0u64, 0u64);
    for row in &analysis.kernels.by_path {
        let Some(path) = row.path.as_deref() else { continue };
        let mut names = path.split('/');
        if names.next() != Some(phase.as_str()) {
            continue;
        }
        whole += row.total_ns;
        if names.next_back().map_or(OperationClass::Pointwise, OperationClass::of) == class {
            own += row.total_ns;
        }
    }
    (whole > 0).then(|| own as f64 / whole as f64)
}

/// Kernels recorded a step of a phase; `None` if none were.
pub(super) fn kernels_a_step(analysis: &Analysis, phase: Phase) -> Option<f64> {
    let (_, steps) = kernels(analysis, phase)?;
    let own = analysis
        .kernels
        .by_path
        .iter()
        .filter(|row| row.path.as_deref().and_then(|path| path.split('/').next()) == Some(phase.as_str()));
    Some(own.map(|row| row.kernels).sum::<u64>() as f64 / steps as f64)
}

/// Whether kernels were recorded in so many of a phase's steps that the host's times are those of a recorded program.
pub(super) fn is_watched(analysis: &Analysis, phase: Phase) -> bool {
    let steps = analysis.phases.rows.iter().find(|row| row.is_phase && row.name == phase.as_str());
    let recorded = kernels(analysis, phase).map_or(0, |(_, n)| n);
    steps.is_some_and(|row| 2 * recorded > row.steps)
}
