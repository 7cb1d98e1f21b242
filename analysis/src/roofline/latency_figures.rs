//! Latencies that are both measured and predicted.

use super::predict::StepPrediction;
use super::shape::ModelShape;
use crate::devices::Cost;
use crate::passes::{Analysis, Distribution};
use candlescope_core::{GpuSource, Phase};
use serde::Serialize;

/// A latency that can be predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Median time to first token.
    Ttft,
    /// Median time per output token.
    Tpot,
    /// Mean time of a prefill's kernels.
    PrefillKernels,
    /// Mean time of a decoding step's kernels.
    DecodeKernels,
}

impl Figure {
    /// As reports call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ttft => "time to first token",
            Self::Tpot => "time per output token",
            Self::PrefillKernels => "kernels of a prefill",
            Self::DecodeKernels => "kernels of a decoding step",
        }
    }

    /// What is predicted for it, in nanoseconds.
    pub(super) fn predicted(self, prefill: &StepPrediction, decode: &StepPrediction) -> Option<Cost> {
        match self {
            Self::Ttft => prefill.ns,
            Self::Tpot => decode.ns,
            Self::PrefillKernels => prefill.device_ns.map(Cost::exact),
            Self::DecodeKernels => decode.device_ns.map(Cost::exact),
        }
    }
}

/// The figures that a run measured: nanoseconds, and the number of measurements.
pub(super) fn measured(analysis: &Analysis, shape: &ModelShape) -> Vec<(Figure, f64, u64)> {
    let median = |d: &Option<Distribution>| d.as_ref().map(|d| (d.median, d.n as u64));
    let kernels = |phase: Phase| {
        let kind = analysis.gpu.kinds.iter().find(|kind| kind.is_phase && kind.name == phase.as_str())?;
        let cupti = kind.elapsed.iter().find(|e| e.source == GpuSource::Cupti && e.measured > 0)?;
        Some((cupti.measured_ns as f64 / cupti.measured as f64, cupti.measured))
    };
    // An encoder is a phase of its own in a run, and within the prefill of a prediction.
    let prefill = kernels(Phase::Prefill).filter(|_| shape.encoder_layers == 0);
    let all = [
        (Figure::Ttft, median(&analysis.latency.ttft)),
        (Figure::Tpot, median(&analysis.latency.tpot)),
        (Figure::PrefillKernels, prefill),
        (Figure::DecodeKernels, kernels(Phase::Decode)),
    ];
    let known = all.into_iter().filter_map(|(figure, found)| found.map(|(ns, n)| (figure, ns, n)));
    known.filter(|(_, ns, _)| *ns > 0.0).collect()
}
