//! Single steps that take much longer than the others.

use super::draft::{Draft, Out};
use super::query::durations;
use super::scene::{Scene, StepScene};
use super::spread::{Alike, alike, beyond, quartiles};
use crate::advice::{AdviceCode, ConfidenceLevel, Missing};

/// Fewer steps have no spread.
const FEWEST: usize = 20;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut Out) {
    let code = AdviceCode::StragglerStep;
    let Alike { ns: all, share: of_all } = alike(scene, step);
    if all.len() < FEWEST {
        return out.abstain(code, step, Missing::Steps);
    }
    let Some(quartiles) = quartiles(all.clone()) else { return };
    let limit = beyond(quartiles);
    let late: Vec<f64> = all.iter().copied().filter(|ns| *ns > limit).collect();
    let excess: f64 = late.iter().map(|ns| ns - quartiles.1).sum();
    let share = of_all * excess / all.iter().sum::<f64>();
    if late.is_empty() {
        return;
    }
    let draft = Draft::new(code, step)
        .steps(all.len() as u64)
        .measured("late_steps", "count", late.len() as f64, all.len() as u64)
        .measured("median_ns", "ns", quartiles.1, all.len() as u64)
        .measured("late_mean_ns", "ns", late.iter().sum::<f64>() / late.len() as f64, late.len() as u64)
        .derived("limit_ns", "ns", limit, all.len() as u64)
        .query(format!(
            "{} -- those above limit_ns",
            durations(step).replace("ORDER BY run, host_start_ns", "ORDER BY host_dur_ns DESC")
        ))
        .sure(ConfidenceLevel::Low, "their excess is measured; why they were late is not known");
    out.found.push(draft.gain(|rate| share * rate));
}
