//! Operations that one thread computes while those of the pool wait.

use super::counted_gain::FEWEST_COUNTS;
use super::draft::{Draft, RuleResults};
use super::host_causes::CauseTime;
use super::operations::{one_row_of_f32, operations};
use super::query::computing_threads;
use super::scene::{SEVERAL, Scene, StepScene};
use super::two_lines::Relief;
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel};
use candlescope_figures::recording_overhead::cores;
use candlescope_schema::run::{MachineUse, env_key};

/// From this share of a step on.
const LEAST: f64 = 0.15;
/// What the pool's threads compute for an operation is nothing below this share of what they could.
const ALONE: f64 = 0.1;
/// A shorter call is not worth sharing: handing its parts to other threads takes some 10 to 40 µs.
const SHORTEST_NS: f64 = 100e3;

/// What one thread computes alone in the steps of a kind.
pub(super) struct SerialPart<'s> {
    /// Threads that could share it: those that compute, as far as others left processors for them.
    threads: f64,
    /// By path: its time as sampled, nanoseconds of all steps.
    places: Vec<(&'s String, &'s CauseTime)>,
    /// Time that passed in the steps, as sampled.
    elapsed_ns: f64,
}

impl<'s> SerialPart<'s> {
    /// `None` where stacks do not tell or are too few, where there is one thread anyway, or where it is too little.
    pub(super) fn of(scene: &Scene<'_>, step: &'s StepScene<'_>) -> Option<Self> {
        let manifest = &scene.analysis.manifest;
        // Of several steps at once, each has a thread that works.
        if scene.on_gpu || step.row.steps_at_once.is_some_and(|n| n > SEVERAL) {
            return None;
        }
        let host = step.host.as_ref()?;
        let others = manifest.machine.as_ref().and_then(MachineUse::others_cores).unwrap_or(0.0);
        let free = cores(manifest)? as f64 - others;
        let threads = (env_key::COMPUTE_THREADS.of(&manifest.environment)? as f64).min(free);
        if threads < 1.5 {
            return None;
        }
        let places = host
            .alone
            .iter()
            .filter(|(path, time)| {
                let on_pool = host.computed.get(*path).map_or(0.0, CauseTime::ns);
                let calls = scene.totals(path).map_or(0, |totals| totals.calls);
                on_pool < ALONE * (threads - 1.0) * time.own_ns
                    && calls > 0
                    && time.own_ns / calls as f64 >= SHORTEST_NS
            })
            .collect();
        let part = Self { threads, places, elapsed_ns: host.elapsed_ns };
        (part.share() >= LEAST && part.samples() as f64 >= FEWEST_COUNTS).then_some(part)
    }

    fn samples(&self) -> u64 {
        self.places.iter().map(|(_, time)| time.samples).sum()
    }

    fn ns(&self) -> f64 {
        self.places.iter().map(|(_, time)| time.own_ns).sum()
    }

    fn share(&self) -> f64 {
        self.ns() / self.elapsed_ns
    }
}

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut RuleResults) {
    let Some(part) = SerialPart::of(scene, step) else { return };
    let Some((path, most)) = part.places.iter().max_by(|a, b| a.1.own_ns.total_cmp(&b.1.own_ns)) else { return };
    let all = operations(scene, step);
    let operation = |path: &str| all.iter().find(|one| one.totals.rollup == path);
    let one_row: f64 = part
        .places
        .iter()
        .filter(|(path, _)| operation(path).is_some_and(one_row_of_f32))
        .map(|(_, time)| time.own_ns)
        .sum();
    let samples = part.samples();
    let draft = Draft::new(AdviceCode::SerialPart, step)
        .at(|at| {
            let at = at.path(path);
            most.function().map_or(at.clone(), |function| at.function(&function.function))
        })
        .steps(step.row.steps)
        .derived("share", "ratio", part.share(), samples)
        .derived("cpu_ns", "ns", part.ns() / step.row.steps.max(1) as f64, samples)
        .derived("threads", "count", part.threads, 1)
        .derived("paths", "count", part.places.len() as f64, samples)
        .derived("one_row", "ratio", one_row / part.elapsed_ns, samples)
        .query(computing_threads(step))
        .sure(
            ConfidenceLevel::Low,
            "sampled; what cannot be divided, and what the memory limits, does not gain from more threads",
        );
    // What the memory's rate allows at least, where it is known.
    let least_ns = |path: &str| {
        let bytes = operation(path).and_then(|one| one.io_bytes)?;
        scene.roof.bandwidth().map(|peak| bytes / peak.value * 1e9)
    };
    out.found.push(draft.reliefs(|rate| {
        // Half, three quarters, and all of what the other threads could do.
        let threads = 1.0 + (part.threads - 1.0) * (2.0 * rate - 1.0);
        let relief = |(path, time): &(&String, &CauseTime)| {
            let ns = time.own_ns / part.elapsed_ns * step.lines.t;
            let after = (ns / threads).max(least_ns(path).unwrap_or(0.0)).min(ns);
            Relief::Operation(path.to_string(), ns - after)
        };
        part.places.iter().map(relief).collect()
    }));
}
