//! Single steps that take much longer than the others.

use super::draft::{Draft, RuleResults};
use super::scene::{Scene, StepScene};
use super::spread::{ComparableSteps, FEWEST, alike, beyond, quartiles};
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel, Missing};

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut RuleResults) {
    let code = AdviceCode::StragglerStep;
    let ComparableSteps { ns: all, share: of_all, cold, table } = alike(scene, step);
    if all.len() < FEWEST {
        return out.abstain(code, step, Missing::Steps);
    }
    let Some(quartiles) = quartiles(all.clone()) else { return };
    let limit = beyond(quartiles);
    // The first ones of a run are cold: `warmup_unsettled` tells of them.
    let late: Vec<f64> = all[cold..].iter().copied().filter(|ns| *ns > limit).collect();
    let excess: f64 = late.iter().map(|ns| ns - quartiles.1).sum();
    let share = of_all * excess / all.iter().sum::<f64>();
    if late.is_empty() {
        return;
    }
    let is_late = format!("nth > {cold} AND ns > {limit}");
    let draft = Draft::new(code, step)
        .steps(all.len() as u64)
        .measured("late_steps", "count", late.len() as f64, all.len() as u64)
        .measured("median_ns", "ns", quartiles.1, all.len() as u64)
        .measured("late_mean_ns", "ns", late.iter().sum::<f64>() / late.len() as f64, late.len() as u64)
        .derived("limit_ns", "ns", limit, all.len() as u64)
        .query(format!(
            "WITH {table} SELECT sum(CASE WHEN {is_late} THEN 1 ELSE 0 END) AS late_steps, median(ns) AS median_ns, \
             avg(CASE WHEN {is_late} THEN ns END) AS late_mean_ns, max(ns) AS longest_ns FROM alike"
        ))
        .sure(ConfidenceLevel::Low, "their excess is measured; why they were late is not known");
    out.found.push(draft.gain(|rate| share * rate));
}
