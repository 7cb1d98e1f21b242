//! Conversions to a wider type and back.

use super::draft::RuleResults;
use super::kernel_groups::of_family;
use super::scene::{Scene, StepScene};
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel};
use candlescope_figures::kernel_family::KernelFamily;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut RuleResults) {
    let sure = (ConfidenceLevel::Medium, "their time is measured; some conversions may be needed for accuracy");
    of_family(scene, step, (AdviceCode::Upcast, KernelFamily::Cast), sure, out);
}
