//! A step on a CPU waits for something that is no thread of a pool.
//!
//! A wait costs more than itself: threads of the pool fall asleep, and others use the caches. That it took a moment until
//! its thread had a processor again is part of the wait. What comes behind is seen where a step waits outside of its
//! layers, in the first of these alone: it takes longer than all that follow. That is in the upper bound; what is slower
//! in the whole step is not, because no step of such a run shows what it takes without a wait.

use super::counted_gain::CountedGain;
use super::draft::{Draft, RuleResults};
use super::query::thread_time;
use super::scene::{Scene, StepScene};
use super::two_lines::Relief;
use candlescope_figures::Layer;
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel, Missing};
use candlescope_figures::stats::total;
use candlescope_work::estimate::median;
use std::collections::BTreeMap;

/// From this share of a step on.
const LEAST: f64 = 0.05;
/// Fewer layers do not show what one of them takes.
const FEWEST: usize = 4;
/// Most intervals around one.
const MOST_DEEP: usize = 64;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut RuleResults) {
    // On a GPU a step waits for the device, which other findings are about.
    if scene.on_gpu {
        return;
    }
    let Some(host) = &step.host else { return };
    let share = host.waits.blocked_ns / host.elapsed_ns;
    if share < LEAST {
        return;
    }
    let waits = &host.waits;
    // A wait is measured where it begins and ends, which is no sample of anything. Where a thread waits so often that
    // only a part of the time was recorded, the waits of that part stand for those of the rest.
    let gained = CountedGain::of_part(waits, host.waits_measured, host.elapsed_ns);
    if gained.rests_on_few() {
        return out.abstain(AdviceCode::Blocked, step, Missing::MoreStackSamples);
    }
    let main = waits.place().map(str::to_string);
    let resumed = main.as_deref().and_then(|place| resumed(scene, step, place));
    let draft = Draft::new(AdviceCode::Blocked, step)
        .at(|at| {
            let at = waits.place().map_or(at.clone(), |place| at.path(place));
            waits.function().map_or(at.clone(), |function| at.function(&function.function))
        })
        .steps(step.row.steps)
        .derived("share", "ratio", share, step.row.steps)
        .derived_if("share_error", "ratio", gained.share_error(host.elapsed_ns), waits.waits)
        .derived("waits_ns", "ns", waits.blocked_ns / step.row.steps.max(1) as f64, step.row.steps)
        .derived_if("resumed_ns", "ns", resumed, step.usual_steps())
        .query(thread_time(step, "blocked_ns"))
        .sure(ConfidenceLevel::Low, "measured; what is waited for may be needed");
    // Each path has its part of what is gained.
    let places: Vec<(String, f64)> = waits.spread(step.lines.t / host.elapsed_ns).collect();
    let of_place = |place: &String, part: f64, rate: f64| {
        let behind = resumed.filter(|_| rate >= 1.0 && Some(place) == main.as_ref()).unwrap_or(0.0);
        Relief::Wait(place.clone(), part * gained.at(rate) * rate + behind)
    };
    out.found.push(draft.reliefs(|rate| places.iter().map(|(place, part)| of_place(place, *part, rate)).collect()));
}

/// What the first of a step's layers takes beyond the others, in nanoseconds a step, where most of what the step waits is
/// at `place`, outside of them; `None` where it does not stand out.
fn resumed(scene: &Scene<'_>, step: &StepScene<'_>, place: &str) -> Option<f64> {
    let mut siblings: BTreeMap<&str, Vec<&Layer>> = BTreeMap::new();
    let entered = |layer: &&Layer| layer.calls > layer.replayed && step.has(&layer.path.path);
    for layer in scene.analysis.layers.iter().filter(entered) {
        siblings.entry(&layer.path.rollup).or_default().push(layer);
    }
    let (rollup, layers) =
        siblings.into_iter().max_by_key(|(_, layers)| total(layers.iter().map(|layer| layer.host_ns)))?;
    // A module's rollup is its name, whatever it is in.
    let mut around = std::iter::successors(Some(place), |at| scene.totals(at)?.parent.as_deref()).take(MOST_DEEP);
    if around.any(|at| at == rollup) {
        return None;
    }
    let mean = |layer: &Layer| layer.host_ns as f64 / layer.calls as f64;
    let is_first = |layer: &&&Layer| layer.path.path.ends_with("[0]");
    let first = layers.iter().find(is_first)?;
    let others = layers.iter().filter(|layer| !is_first(layer)).map(|layer| mean(layer)).collect();
    let each = first.calls as f64 / step.usual_steps().max(1) as f64;
    // Layers are measured in usual steps.
    let of_step = step.usual_mean_ns().map_or(1.0, |ns| step.lines.t / ns);
    Some(beyond(mean(first), others)? * each * of_step)
}

/// What the first layer takes beyond the middle one of the others; `None` if one of these takes as long.
fn beyond(first: f64, others: Vec<f64>) -> Option<f64> {
    let stands_out = others.len() + 1 >= FEWEST && others.iter().all(|other| first > *other);
    Some(first - median(others)?).filter(|_| stands_out)
}

#[cfg(test)]
mod tests {
    use super::beyond;

    #[test]
    fn a_first_layer_that_takes_longer_than_all_others_stands_out() {
        assert_eq!(beyond(371.0, vec![249.0, 255.0, 272.0, 268.0, 267.0]), Some(104.0));
        assert_eq!(beyond(218.0, vec![215.0, 214.0, 222.0, 224.0, 220.0]), None);
        assert_eq!(beyond(371.0, vec![249.0, 255.0]), None, "three are too few");
        assert_eq!(beyond(371.0, Vec::new()), None);
    }
}
