//! Allocations on the critical path.

use super::draft::RuleResults;
use super::scene::{Scene, StepScene};
use candlescope_figures::advice::{AdviceCode, Missing};

/// Calls that allocate are not among the calls that a run records: what they cost is within host-bound gaps.
pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut RuleResults) {
    if scene.on_gpu {
        let missing = if step.work.is_none() { Missing::Kernels } else { Missing::AllocatorCalls };
        out.abstain(AdviceCode::Allocator, step, missing);
    }
}
