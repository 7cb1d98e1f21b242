//! A step on a CPU waits for something that is no thread of a pool.

use super::draft::{Draft, Out};
use super::query::thread_time;
use super::scene::{Scene, StepScene};
use super::two_lines::Relief;
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel};

/// From this share of a step on.
const LEAST: f64 = 0.05;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut Out) {
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
    let draft = Draft::new(AdviceCode::Blocked, step)
        .at(|at| {
            let at = waits.place().map_or(at.clone(), |place| at.path(place));
            waits.function().map_or(at.clone(), |function| at.function(&function.function))
        })
        .steps(step.row.steps)
        .derived("share", "ratio", share, step.row.steps)
        .derived("waits_ns", "ns", waits.blocked_ns / step.row.steps.max(1) as f64, step.row.steps)
        .query(thread_time(step, "blocked_ns"))
        .sure(ConfidenceLevel::Low, "measured; what is waited for may be needed");
    let places: Vec<(String, f64)> =
        waits.places.iter().map(|(place, ns)| (place.clone(), ns / host.elapsed_ns * step.lines.t)).collect();
    out.found
        .push(draft.reliefs(|rate| places.iter().map(|(place, ns)| Relief::Wait(place.clone(), ns * rate)).collect()));
}
