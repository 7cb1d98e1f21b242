//! Functions that compute nothing and take a large part of a step on the host.

use super::draft::{Draft, RuleResults};
use super::host_causes::{CauseTime, HostOfStep, POOL_SYNC, THREAD_COUNT};
use super::query::functions;
use super::scene::{Scene, StepScene};
use super::two_lines::Relief;
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel, Missing};
use candlescope_schema::run::RayonThreads;

/// From this share of a step on.
const LEAST: f64 = 0.05;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut RuleResults) {
    let code = AdviceCode::HotOverhead;
    let Some(host) = &step.host else {
        return out.abstain(code, step, Missing::Stacks);
    };
    let threads = RayonThreads::of(&scene.analysis.manifest);
    for (cause, time) in &host.causes {
        let share = time.ns() / host.elapsed_ns;
        let gained = gained(cause, time, host) / host.elapsed_ns;
        let error = error(time, host);
        // What is within the error of counting samples is not told.
        if gained < LEAST || share < 2.0 * error {
            continue;
        }
        let (level, reason) = match *cause {
            THREAD_COUNT => (
                ConfidenceLevel::High,
                "sampled, and known: this version of candle asks for the number of cores at each product while the \
                 variable is not set",
            ),
            POOL_SYNC => (
                ConfidenceLevel::Medium,
                "sampled; what the pool's threads computed is taken off, but one thread may compute it more slowly or \
                 more quickly",
            ),
            _ => (ConfidenceLevel::Low, "sampled; something needs a part of what the functions do"),
        };
        let draft = Draft::new(code, step)
            .at(|at| {
                let at = time.place().map_or(at.clone(), |place| at.path(place)).because(cause);
                time.function().map_or(at.clone(), |function| at.function(&function.function))
            })
            .steps(step.row.steps)
            .derived("share", "ratio", share, time.samples)
            .derived("share_error", "ratio", error, time.samples)
            .derived("cpu_ns", "ns", time.own_ns / step.row.steps.max(1) as f64, time.samples)
            .derived("blocked_ns", "ns", time.blocked_ns / step.row.steps.max(1) as f64, step.row.steps)
            .derived("gained", "ratio", gained, time.samples)
            .derived_if("rayon_num_threads", "count", threads.told(), 1)
            .query(functions(step, time.functions.keys().map(|name| &*name.function)))
            .sure(level, reason);
        // Each path has its part of it, so that what another finding gains there is not counted twice.
        let of_step = gained * step.lines.t / time.ns();
        let places: Vec<(String, f64)> = time.places.iter().map(|(place, ns)| (place.clone(), ns * of_step)).collect();
        out.found
            .push(draft.reliefs(|rate| {
                places.iter().map(|(place, ns)| Relief::Operation(place.clone(), ns * rate)).collect()
            }));
    }
}

/// What would not be there without the cause, nanoseconds.
fn gained(cause: &str, time: &CauseTime, host: &HostOfStep) -> f64 {
    if cause != POOL_SYNC {
        return time.ns();
    }
    // Without the pool, the thread itself computes what the pool's threads did for these paths.
    let computed: f64 = time.places.keys().filter_map(|place| host.computed.get(place)).sum();
    (time.ns() - computed).max(0.0)
}

/// Standard error of its share, of the samples on the CPU.
fn error(time: &CauseTime, host: &HostOfStep) -> f64 {
    let p = (time.own_ns / host.elapsed_ns).clamp(0.0, 1.0);
    if time.samples == 0 || p <= 0.0 {
        return 0.0;
    }
    let all = time.samples as f64 / p;
    (p * (1.0 - p) / all).sqrt()
}
