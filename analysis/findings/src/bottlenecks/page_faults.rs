//! Memory is taken from the system and given back at every step.

use super::draft::{Draft, Out};
use super::host_causes::HostOfStep;
use super::query::thread_time;
use super::scene::{Scene, StepScene};
use super::two_lines::Relief;
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel};

/// From this share of a step on.
const LEAST: f64 = 0.05;
/// Fewer faults in a step are not what takes the time.
const FEWEST: f64 = 10.0;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut Out) {
    let Some(host) = HostOfStep::of(scene, step) else { return };
    let share = host.memory.own_ns / host.elapsed_ns;
    let threads = scene.totals(step.name).map(|totals| totals.threads).filter(|threads| threads.faults_known_ns > 0);
    let faults = threads.map(|threads| threads.page_faults as f64 / step.row.steps.max(1) as f64);
    if share < LEAST || faults.is_some_and(|faults| faults < FEWEST) {
        return;
    }
    let memory = &host.memory;
    let draft = Draft::new(AdviceCode::PageFaults, step)
        .at(|at| {
            let at = memory.place().map_or(at.clone(), |place| at.path(place));
            memory.function().map_or(at.clone(), |function| at.function(&function.function))
        })
        .steps(step.row.steps)
        .measured("share", "ratio", share, memory.samples)
        .measured("kernel_ns", "ns", memory.own_ns / step.row.steps.max(1) as f64, memory.samples)
        .derived_if("page_faults", "count", faults, step.row.steps)
        .query(thread_time(step, "page_faults"))
        .sure(ConfidenceLevel::Medium, "sampled; the first use of memory that is kept costs the same once");
    let places: Vec<(String, f64)> =
        memory.places.iter().map(|(place, ns)| (place.clone(), ns / host.elapsed_ns * step.lines.t)).collect();
    out.found.push(draft.reliefs(|rate| {
        places.iter().map(|(place, ns)| Relief::Operation(place.clone(), ns * rate)).collect()
    }));
}
