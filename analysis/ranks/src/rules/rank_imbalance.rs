//! Ranks take different times, and it is not always the same one that takes longest.

use super::collectives_query::times_of_steps;
use super::ranks_scene::RanksScene;
use super::{WORTH, straggler_rank};
use crate::facts::{JudgedTimes, longest, mean};
use candlescope_figures::advice::{Advice, AdviceCode, AdviceFigure};
use candlescope_work::estimate::Estimate;

pub(super) fn find(scene: &RanksScene<'_>) -> Vec<Advice> {
    of(scene).into_iter().collect()
}

fn of(scene: &RanksScene<'_>) -> Option<Advice> {
    let steps = scene.steps()?;
    if straggler_rank::of(scene).is_some() {
        return None;
    }
    let most = |step: &JudgedTimes| step.own.iter().copied().fold(0.0, f64::max);
    let gain = scene.share(|step| most(step) - mean(step.own.iter().copied()));
    let differ = steps.iter().any(|step| longest(&step.own).is_some());
    if !differ || gain.mid <= WORTH {
        return None;
    }
    // What differs from step to step may be anybody's; what one rank takes longer on average is its own.
    let of_rank = |rank: usize| scene.share(|step| step.own[rank] - mean(step.own.iter().copied())).low;
    let low = (0..scene.analysis.ranks.len()).map(of_rank).fold(0.0, f64::max);
    let evidence = vec![AdviceFigure::derived("share", "ratio", gain.mid, steps.len() as u64)];
    let gain = Estimate { low: low.min(gain.mid), ..gain };
    Some(scene.advice(AdviceCode::RankImbalance, gain, evidence, times_of_steps(scene.analysis)))
}
