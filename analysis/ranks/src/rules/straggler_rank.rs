//! One rank is the slowest in most steps.

use super::WORTH;
use super::collectives_query::times_of_ranks;
use super::ranks_scene::RanksScene;
use crate::facts::{JudgedTimes, median};
use candlescope_figures::advice::{Advice, AdviceCode, AdviceFigure};
use candlescope_work::estimate::Estimate;

/// A rank is a straggler if its own time is the longest in more than this share of steps.
const MOST_STEPS: f64 = 0.6;
/// And if chance makes that, where each rank is as likely, less often than this.
const CHANCE: f64 = 0.001;

pub(super) fn find(scene: &RanksScene<'_>) -> Vec<Advice> {
    of(scene).into_iter().collect()
}

/// The finding, if there is one.
pub(super) fn of(scene: &RanksScene<'_>) -> Option<Advice> {
    let ranks = &scene.analysis.ranks;
    let steps = scene.steps()?.len();
    let (at, slow) = ranks.iter().enumerate().max_by_key(|(_, rank)| rank.longest)?;
    if slow.longest as f64 <= MOST_STEPS * steps as f64 || by_chance(slow.longest, steps, ranks.len()) > CHANCE {
        return None;
    }
    let behind = |step: &JudgedTimes| {
        let others = step.own.iter().enumerate().filter(|(rank, _)| *rank != at).map(|(_, own)| *own);
        step.own[at] - others.fold(0.0, f64::max)
    };
    let gain = scene.share(|step| behind(step).max(0.0));
    if gain.mid <= WORTH {
        return None;
    }
    // What it loses in some steps and makes good in others may be chance.
    let gain = Estimate { low: scene.share(behind).low, ..gain };
    let others = median(ranks.iter().filter(|rank| rank.rank != slow.rank).map(|rank| rank.own_ns).collect());
    let n = steps as u64;
    let evidence = vec![
        AdviceFigure::derived("own_ns", "ns", slow.own_ns, n),
        AdviceFigure::derived("others_own_ns", "ns", others, n),
        AdviceFigure::derived("slowest_steps", "count", slow.longest as f64, n),
    ];
    let mut advice = scene.advice(AdviceCode::StragglerRank, gain, evidence, times_of_ranks(scene.analysis));
    advice.place = advice.place.rank(slow.rank);
    Some(advice)
}

/// How often chance makes one of `ranks` the longest in at least so many of these steps.
fn by_chance(longest: usize, steps: usize, ranks: usize) -> f64 {
    let p = 1.0 / ranks as f64;
    // log of the binomial's terms, from the largest number down.
    let log = |n: usize| (1..=n).map(|k| (k as f64).ln()).sum::<f64>();
    let all = log(steps);
    let term =
        |k: usize| (all - log(k) - log(steps - k) + k as f64 * p.ln() + (steps - k) as f64 * (1.0 - p).ln()).exp();
    (ranks as f64 * (longest..=steps).map(term).sum::<f64>()).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_makes_one_of_two_the_slowest_often() {
        // Of 8 steps, at least 5 by one of two: 0.363 for each.
        assert!((by_chance(5, 8, 2) - 0.7266).abs() < 1e-3);
        assert!(by_chance(30, 30, 2) < 1e-8 && by_chance(20, 30, 8) < 1e-9);
    }
}
