//! A step is ready to go on, and another thread has its CPU.

use super::draft::{Draft, RuleResults};
use super::query::thread_time;
use super::scene::{Scene, StepScene};
use super::two_lines::Relief;
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel, whole};
use candlescope_schema::run::{MachineUse, env_key};

/// From this share of a step on.
const LEAST: f64 = 0.03;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut RuleResults) {
    let Some(threads) = scene.totals(step.name).map(|totals| &totals.threads) else { return };
    let Some(share) = threads.share(threads.preempted_ns).filter(|share| *share >= LEAST) else { return };
    let manifest = &scene.analysis.manifest;
    let computing = env_key::COMPUTE_THREADS.of(&manifest.environment).map(|threads| threads as f64);
    // Switches may be known of a part of the steps: share and time are both of these.
    let draft = Draft::new(AdviceCode::Preempted, step)
        .steps(threads.known)
        .derived("share", "ratio", share, threads.known)
        .measured("preempted_ns", "ns", threads.each(threads.preempted_ns), threads.known)
        .derived_if("others", "count", manifest.machine.as_ref().and_then(MachineUse::others_cores), 1)
        .derived_if("threads", "count", computing, 1)
        .query(thread_time(step, "preempted_ns"))
        .sure(ConfidenceLevel::High, "measured at each switch");
    // It happens in whatever else is found, too.
    out.found.push(draft.relief(|rate| Relief::HostShare(share * whole(rate))));
}
