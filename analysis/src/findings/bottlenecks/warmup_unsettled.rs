//! Steps that still get faster: the warm-up was too short.

use super::draft::{Draft, Out};
use super::query::durations;
use super::scene::{Scene, StepScene};
use super::spread::{Alike, alike, quartiles};
use crate::advice::{AdviceCode, ConfidenceLevel, Missing};

/// Fewer steps cannot show that they settle.
const FEWEST: usize = 32;
/// Steps of the rolling median.
const ROLLING: usize = 8;
/// This much above the settled steps' median is not settled.
const ABOVE: f64 = 1.05;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut Out) {
    let code = AdviceCode::WarmupUnsettled;
    if !step.decodes() && scene.steps.first().is_none_or(|first| first.name != step.name) {
        return;
    }
    let Alike { ns: all, share: of_all } = alike(scene, step);
    if all.len() < FEWEST {
        return out.abstain(code, step, Missing::Steps);
    }
    let Some((low, settled, high)) = quartiles(all[all.len() / 2..].to_vec()) else { return };
    let limit = (settled * ABOVE).max(settled + (high - low));
    let rolling = all.windows(ROLLING).map(|window| quartiles(window.to_vec()).map_or(0.0, |(_, median, _)| median));
    let unsettled = rolling.take_while(|median| *median > limit).count();
    // What lasts for half of the run is no warm-up.
    if unsettled == 0 || unsettled > all.len() / 2 {
        return;
    }
    let first = &all[..unsettled];
    let excess: f64 = first.iter().map(|ns| ns - settled).sum();
    let share = of_all * excess / all.iter().sum::<f64>();
    let draft = Draft::new(code, step)
        .steps(all.len() as u64)
        .measured("unsettled_steps", "count", unsettled as f64, all.len() as u64)
        .measured("first_ns", "ns", first.iter().sum::<f64>() / first.len() as f64, unsettled as u64)
        .measured("settled_ns", "ns", settled, (all.len() - all.len() / 2) as u64)
        .query(durations(step))
        .sure(
            ConfidenceLevel::High,
            "measured; leaving these steps out corrects the figures, and the program stays as fast",
        );
    out.found.push(draft.gain(|rate| share * rate));
}
