//! Quantised weights that are expanded at every step.

use super::draft::RuleResults;
use super::kernel_groups::of_family;
use super::scene::{Scene, StepScene};
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel};
use candlescope_figures::kernel_family::KernelFamily;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut RuleResults) {
    let sure =
        (ConfidenceLevel::Medium, "their time is measured; what a product of quantised weights would take is not");
    of_family(scene, step, (AdviceCode::Dequantise, KernelFamily::Dequantise), sure, out);
}
