//! Memory is taken from the system and given back at every step.

use super::counted_gain::CountedGain;
use super::draft::{Draft, RuleResults};
use super::query::thread_time;
use super::scene::{Scene, StepScene};
use super::two_lines::Relief;
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel, Missing, RATES};
use candlescope_schema::run::env_key;

/// From this share of a step on.
const LEAST: f64 = 0.05;
/// Bytes of a page, where pages are smallest.
const PAGE: f64 = 4096.0;
/// Fewer faults in a step are not what takes the time.
const FEWEST: f64 = 10.0;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut RuleResults) {
    let Some(host) = &step.host else { return };
    let t = step.row.total_ns as f64 / step.row.steps.max(1) as f64;
    let threads = scene.totals(step.name).map(|totals| totals.threads).filter(|threads| threads.faults_known_ns > 0);
    // Of the steps whose faults are known, as many in each nanosecond.
    let faults = threads.map(|threads| threads.page_faults as f64 / threads.faults_known_ns as f64 * t);
    // Where samples do not show the kernel's side of a fault, what one costs is known, and they have the calls for
    // memory alone.
    let each = env_key::PAGE_FAULT_NS.of(&scene.analysis.manifest.environment);
    let counted = faults.zip(each).map_or(0.0, |(faults, each)| faults * each / t);
    // The faults and what one of them takes are counters of the system, and no samples; time in the kernel is sampled.
    let sampled = CountedGain::of(&host.memory, host.elapsed_ns);
    let share_of = |sampled: &CountedGain| {
        let sampled = sampled.ns / host.elapsed_ns;
        if host.sees_faults { sampled.max(counted) } else { (sampled + counted).min(1.0) }
    };
    if share_of(&sampled) < LEAST || faults.is_some_and(|faults| faults < FEWEST) {
        return;
    }
    let sampled = if sampled.rests_on_few() { CountedGain::default() } else { sampled };
    let share = share_of(&sampled);
    if share < LEAST {
        return out.abstain(AdviceCode::PageFaults, step, Missing::MoreStackSamples);
    }
    let is_sampled = !host.sees_faults || sampled.ns / host.elapsed_ns >= counted;
    // What counting samples leaves open, of the step's time.
    let share_error = sampled.share_error(host.elapsed_ns).filter(|_| is_sampled);
    // A new page is zeroed, which puts out of the caches as much of what the step reads next: at worst that is written
    // back and read again, at the rate of the memory. On a GPU the rate that is known is the device's.
    let bandwidth = scene.roof.bandwidth().map(|peak| peak.value).filter(|_| !scene.on_gpu);
    let evicted = faults.zip(bandwidth).map(|(faults, bandwidth)| 2.0 * faults * PAGE / bandwidth * 1e9);
    let memory = &host.memory;
    let draft = Draft::new(AdviceCode::PageFaults, step)
        .at(|at| {
            let at = at.path(&memory.place().map_or_else(|| busiest(scene, step), str::to_string));
            memory.function().map_or(at.clone(), |function| at.function(&function.function))
        })
        .steps(step.row.steps)
        .derived("share", "ratio", share, memory.samples)
        .derived_if("share_error", "ratio", share_error, memory.samples)
        .derived("kernel_ns", "ns", memory.own_ns / step.row.steps.max(1) as f64, memory.samples)
        .derived_if("page_fault_ns", "ns", each, 256)
        .derived_if("faults", "count", faults, step.row.steps)
        .derived_if("evicted_ns", "ns", evicted, step.row.steps)
        .query(thread_time(step, "page_faults"))
        .sure(ConfidenceLevel::Medium, "sampled; the first use of memory that is kept costs the same once");
    let place = memory.place().map_or_else(|| busiest(scene, step), str::to_string);
    out.found.push(draft.relief(|rate| {
        let of_step = |share: f64| share.clamp(0.0, 1.0) * step.lines.t;
        let error = 2.0 * share_error.unwrap_or(0.0);
        // What was measured is what is expected; a part of the pages may be needed.
        let ns = match rate {
            rate if rate >= 1.0 => of_step(share + error) + evicted.unwrap_or(0.0),
            // What counters say is there in any case.
            rate if rate <= RATES[0] => of_step((share - error).max(counted)) * rate,
            _ => of_step(share),
        };
        Relief::Operation(place.clone(), ns)
    }));
}

/// The innermost path that has half of the step's pages; the step, if none has.
fn busiest(scene: &Scene<'_>, step: &StepScene<'_>) -> String {
    let all = scene.totals(step.name).map_or(0, |totals| totals.threads.page_faults);
    let inside =
        scene.paths.values().filter(|path| step.has(&path.rollup) && 2 * path.threads.page_faults >= all.max(1));
    // What is inside has no more than what is around it, and a longer path.
    inside.max_by_key(|path| path.rollup.len()).map_or(step.name.to_string(), |path| path.rollup.clone())
}
