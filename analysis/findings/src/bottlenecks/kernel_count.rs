//! Many short kernels: fusing neighbours saves launches.

use super::draft::{Draft, RuleResults};
use super::query::kernels;
use super::scene::{Scene, StepScene};
use super::two_lines::Relief;
use super::unfused::{becomes_one_each, pattern};
use candlescope_figures::account::PhaseWork;
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel, Missing};
use candlescope_predict::simulation::Change;
use candlescope_schema::KernelKind;
use std::collections::BTreeMap;

/// Fewer kernels a step are not many.
const MANY: f64 = 50.0;
/// Kernels with a longer mean are not short, in nanoseconds.
const SHORT_NS: f64 = 10_000.0;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut RuleResults) {
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
        .derived("kernel_mean_ns", "ns", mean, work.kernels)
        .derived("could_join", "count", fewer, work.steps)
        .derived("launch_ns", "ns", step.lines.launch, work.launch_every.map_or(0, |(_, n)| n))
        .query(kernels(step, "kind = 'kernel'"))
        .sure(
            ConfidenceLevel::Medium,
            "neighbours of one interval are counted; whether each pair can be one kernel is not known",
        );
    out.found.push(draft.replayed(Relief::Launches, |_| fused(scene, work)));
}

/// Every path whose intervals can become one kernel each; `None` if others have neighbours, too.
fn fused(scene: &Scene<'_>, work: &PhaseWork) -> Option<Vec<Change>> {
    let mut paths: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for row in work.rows.iter().filter(|row| row.kind == KernelKind::Kernel) {
        let sums = paths.entry(row.path.as_deref().unwrap_or_default()).or_default();
        (sums.0, sums.1) = (sums.0 + row.count, sums.1 + row.follows);
    }
    let many = paths.into_iter().filter(|(_, (_, follows))| *follows > 0);
    let one = |(path, (count, follows)): (&str, (u64, u64))| {
        let whole = becomes_one_each(scene, work, path, count - follows);
        Some(Change::Fuse { path: pattern(path).filter(|_| whole)? })
    };
    many.map(one).collect()
}
