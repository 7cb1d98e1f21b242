//! Kernels that only move data within the device's memory.

use super::draft::RuleResults;
use super::kernel_groups::of_family;
use super::scene::{Scene, StepScene};
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel};
use candlescope_figures::kernel_family::KernelFamily;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut RuleResults) {
    let sure = (ConfidenceLevel::Medium, "their time is measured; writing a token into the KV cache has to stay");
    of_family(scene, step, (AdviceCode::DataMovement, KernelFamily::Move), sure, out);
}
