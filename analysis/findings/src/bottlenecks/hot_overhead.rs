//! Functions that compute nothing and take a large part of a step on the host.

use super::counted_gain::CountedGain;
use super::draft::{Draft, RuleResults};
use super::host_causes::{CauseTime, HostOfStep, POOL_SYNC, RECORDING, THREAD_COUNT};
use super::query::functions;
use super::scene::{Scene, StepScene};
use super::two_lines::Relief;
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel, Missing, whole};
use candlescope_schema::run::{RayonThreads, env_key};

/// From this share of a step on.
const LEAST: f64 = 0.05;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut RuleResults) {
    let code = AdviceCode::HotOverhead;
    let Some(host) = &step.host else {
        return out.abstain(code, step, Missing::Stacks);
    };
    let manifest = &scene.analysis.manifest;
    let threads = RayonThreads::of(manifest);
    let caller_computes = env_key::CALLER_COMPUTES.of(&manifest.environment).filter(|computes| *computes);
    // What recording takes is none of the unobserved step: it is told as the run's own cost.
    for (cause, time) in host.causes.iter().filter(|(cause, _)| **cause != RECORDING) {
        let gained = gain(cause, time, host);
        if gained.ns < LEAST * host.elapsed_ns {
            continue;
        }
        if gained.rests_on_few() {
            out.abstain(code, step, Missing::MoreStackSamples);
            continue;
        }
        // What is within the error of counting samples is not told.
        if gained.ns < gained.error_ns {
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
        let counted = time.samples + time.waits;
        let share = |ns: f64| ns / host.elapsed_ns;
        let draft = Draft::new(code, step)
            .at(|at| {
                let at = time.place().map_or(at.clone(), |place| at.path(place)).because(cause);
                time.function().map_or(at.clone(), |function| at.function(&function.function))
            })
            .steps(step.row.steps)
            .derived("share", "ratio", share(time.ns()), counted)
            .derived("share_error", "ratio", share(time.error_ns(host.elapsed_ns)), counted)
            .derived("cpu_ns", "ns", time.own_ns / step.row.steps.max(1) as f64, time.samples)
            .derived("blocked_ns", "ns", time.blocked_ns / step.row.steps.max(1) as f64, time.waits)
            .derived("gained", "ratio", share(gained.ns), counted)
            .derived_if("rayon_num_threads", "count", threads.told(), 1)
            .derived_if("caller_computes", "count", caller_computes.filter(|_| *cause == POOL_SYNC).map(f64::from), 1)
            .query(functions(step, time.functions.keys().map(|name| &*name.function)))
            .sure(level, reason);
        // Each path has its part of it, so that what another finding gains there is not counted twice.
        let relief = |rate: f64| -> Vec<Relief> {
            // The question is not asked where the variable answers it.
            let part = if *cause == THREAD_COUNT { whole(rate) } else { rate };
            let ns = part * share(gained.at(rate)) * step.lines.t;
            time.spread(ns).map(|(place, ns)| Relief::Operation(place, ns)).collect()
        };
        out.found.push(draft.reliefs(relief));
    }
}

/// What would not be there without the cause.
fn gain(cause: &str, time: &CauseTime, host: &HostOfStep) -> CountedGain {
    let all = CountedGain::of(time, host.elapsed_ns);
    if cause != POOL_SYNC {
        return all;
    }
    // Without the pool, the thread itself computes what the pool's threads did for these paths.
    let computed = time.places.keys().filter_map(|place| host.computed.get(place));
    computed.fold(all, |all, computed| all.without(computed, host.elapsed_ns))
}
