//! Many short kernels: fusing neighbours saves launches.

use super::draft::{Draft, Out};
use super::gains::Change;
use super::query::kernels;
use super::scene::{Scene, StepScene};
use crate::advice::{AdviceCode, ConfidenceLevel, Missing};

/// Fewer kernels a step are not many.
const MANY: f64 = 50.0;
/// Kernels with a longer mean are not short, in nanoseconds.
const SHORT_NS: f64 = 10_000.0;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut Out) {
    let code = AdviceCode::KernelCount;
    if !scene.on_gpu || step.runs_as_graph() {
        return;
    }
    let Some(work) = step.work else { return out.abstain(code, step, Missing::Kernels) };
    if work.launch_every.is_none() {
        return out.abstain(code, step, Missing::LaunchCalls);
    }
    let (count, mean) = (step.each(work.kernels), work.kernel_ns as f64 / work.kernels.max(1) as f64);
    let fewer = step.each(work.rows.iter().map(|row| row.follows).sum());
    if count < MANY || mean >= SHORT_NS || fewer < 1.0 {
        return;
    }
    let draft = Draft::new(code, step)
        .measured("kernels", "count", count, work.steps)
        .measured("kernel_mean_ns", "ns", mean, work.kernels)
        .measured("could_join", "count", fewer, work.steps)
        .derived("launch_ns", "ns", step.model.launch, work.launch_every.map_or(0, |(_, n)| n))
        .query(kernels(step, "kind = 'kernel'"))
        .sure(
            ConfidenceLevel::Medium,
            "neighbours of one interval are counted; whether each pair can be one kernel is not known",
        );
    out.found.push(draft.change(|rate| Change::Launches(fewer * rate)));
}
