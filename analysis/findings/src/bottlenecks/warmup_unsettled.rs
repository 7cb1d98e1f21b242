//! Steps that still get faster: the warm-up was too short.

use super::draft::{Draft, RuleResults};
use super::scene::{Scene, StepScene};
use super::spread::{ComparableSteps, alike, quartiles};
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel, Missing};

/// Fewer steps cannot show that they settle.
const FEWEST: usize = 32;
/// With so many, a first step that is far above the others is seen nevertheless.
const COLD_OF: usize = 20;
/// Steps of the rolling median.
const ROLLING: usize = 8;
/// This much above the settled steps' median is not settled.
const ABOVE: f64 = 1.05;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut RuleResults) {
    let code = AdviceCode::WarmupUnsettled;
    if !step.decodes() && scene.steps.first().is_none_or(|first| first.name != step.name) {
        return;
    }
    let ComparableSteps { ns: all, share: of_all, cold, table } = alike(scene, step);
    let fewest = if cold > 0 { COLD_OF } else { FEWEST };
    if all.len() < fewest {
        return out.abstain(code, step, Missing::Steps);
    }
    let later = &all[all.len() / 2..];
    let Some((low, settled, high)) = quartiles(later.to_vec()) else { return };
    let limit = (settled * ABOVE).max(settled + (high - low));
    let rolling = all.windows(ROLLING).map(|window| quartiles(window.to_vec()).map_or(0.0, |(_, median, _)| median));
    let unsettled = rolling.take_while(|median| *median > limit).count().max(cold);
    // What lasts for half of the run is no warm-up.
    if unsettled == 0 || unsettled > all.len() / 2 {
        return;
    }
    let first = &all[..unsettled];
    let excess: f64 = first.iter().map(|ns| ns - settled).sum();
    let share = of_all * excess / all.iter().sum::<f64>();
    let half = all.len() / 2;
    let draft = Draft::new(code, step)
        .steps(all.len() as u64)
        .measured("unsettled_steps", "count", unsettled as f64, all.len() as u64)
        .measured("first_ns", "ns", first.iter().sum::<f64>() / first.len() as f64, unsettled as u64)
        .measured("settled_ns", "ns", settled, later.len() as u64)
        .query(format!(
            "WITH {table} SELECT sum(CASE WHEN nth <= {unsettled} THEN 1 ELSE 0 END) AS unsettled_steps, \
             avg(CASE WHEN nth <= {unsettled} THEN ns END) AS first_ns, \
             median(CASE WHEN nth > {half} THEN ns END) AS settled_ns FROM alike"
        ))
        .sure(
            ConfidenceLevel::Medium,
            "measured; leaving these steps out corrects the figures, and the program stays as fast",
        );
    out.found.push(draft.gain(|rate| share * rate));
}
