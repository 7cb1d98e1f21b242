//! Which paths and modules changed, and how much of the whole change each of them is.

use super::discoveries::{UNPROVEN, adjusted, name_none};
use super::estimate::{Basis, ChangeEstimate, Design, Scale, estimate};
use super::path_times::PathFacts;
use super::run_facts::RunFacts;
use super::sampled::RunFigure;
use serde::Serialize;
use std::collections::BTreeMap;

/// Paths below this share of a step on both sides together are not tested: each test makes the others harder to pass.
const LEAST_SHARE: f64 = 0.005;

/// The clock by which a path was timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// Self time on the host; a run that lacks the path counts as 0.
    Host,
    /// Self time on the device, between marks or as the sum of kernels; a run that lacks it counts as unknown.
    Device,
}

/// A path, or all paths of one rollup, that changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PathChange {
    /// Phase of the steps that it is in, or their name where no phases are marked.
    pub kind: String,
    /// The path with its ordinals, or the rollup.
    pub path: String,
    /// The module that it stands for.
    pub module: Option<String>,
    /// The clock of all times here: a path that changed by both is two changes.
    pub clock: Clock,
    /// Self time on side A, nanoseconds for each step of its kind (a median).
    pub a_ns: f64,
    /// The same on side B: a median over its runs.
    pub b_ns: f64,
    /// The change in nanoseconds for each step of its kind, with its interval.
    pub estimate: ChangeEstimate,
    /// The change in nanoseconds for a typical step of the run, in which all kinds share.
    pub of_step_ns: f64,
    /// `of_step_ns` ÷ the time of A's step.
    pub share_of_step: f64,
    /// `of_step_ns` ÷ the change of the whole step; absent if the step's own change cannot be told from 0.
    pub share_of_change: Option<f64>,
    /// The probability that naming it is false, after all the tests beside it (Benjamini and Hochberg).
    pub adjusted_p: f64,
    /// Whether other paths are inside it: what changed is then outside all of those, in what has no interval of its
    /// own.
    pub outside_others: bool,
}

/// Paths that were looked at, and those that changed.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct PathChanges {
    /// Paths tested, by each clock: those with a mean of both sides of at least 0.5 % of A's step.
    pub tested: usize,
    /// Those that changed, the largest change first.
    pub changed: Vec<PathChange>,
    /// Where none could be named because the runs cannot decide: the largest differences. None of them is shown to be a
    /// change of the program.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unproven: Vec<PathChange>,
}

impl PathChanges {
    /// Takes back all names: what was named is only what differs most.
    pub(super) fn name_none(&mut self) {
        name_none(&mut self.changed, &mut self.unproven);
    }
}

/// What the whole step took and how it changed, which shares refer to.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepChange {
    pub(super) a_ns: f64,
    /// The change, if it can be told from 0.
    pub(super) change_ns: Option<f64>,
}

/// Key of a path: kind of step, path, clock.
type Key = (String, String, Clock);

/// Times of a path in the runs of both sides.
struct Times {
    module: Option<String>,
    a: Vec<Option<RunFigure>>,
    b: Vec<Option<RunFigure>>,
}

/// The paths that changed, under a limit on false discoveries. `name` says what stands for a path: itself, or its
/// rollup, over which times are summed.
pub(super) fn path_changes(
    design: &Design,
    (a, b): (&[RunFacts], &[RunFacts]),
    whole: StepChange,
    (alpha, limit): (f64, f64),
    name: impl Fn(&PathFacts) -> &str,
) -> PathChanges {
    let mut times: BTreeMap<Key, Times> = BTreeMap::new();
    let size = (a.len(), b.len());
    for (side, runs) in [a, b].into_iter().enumerate() {
        for (at, run) in runs.iter().enumerate() {
            for path in &run.paths {
                let clocks = [(Clock::Host, Some(&path.host_ns)), (Clock::Device, path.gpu_ns.as_ref())];
                for (clock, sampled) in clocks.into_iter().filter_map(|(clock, s)| Some((clock, s?))) {
                    let key = (path.kind.clone(), name(path).to_string(), clock);
                    let times = times.entry(key).or_insert_with(|| Times {
                        module: path.module.clone().filter(|_| name(path) == path.path),
                        a: vec![None; size.0],
                        b: vec![None; size.1],
                    });
                    let slots = if side == 0 { &mut times.a } else { &mut times.b };
                    add(&mut slots[at], sampled);
                }
            }
        }
    }
    let tests: Vec<PathChange> = times
        .into_iter()
        .filter_map(|(key, mut times)| {
            // A path that a run does not have took no time in it, as far as the host is concerned.
            for (side, runs) in [(&mut times.a, a), (&mut times.b, b)] {
                for (slot, run) in side.iter_mut().zip(runs) {
                    let absent = slot.is_none() && key.2 == Clock::Host && run.kinds.contains_key(&key.0);
                    *slot = slot.take().or(absent.then(|| RunFigure::whole(0.0)));
                }
            }
            test(design, key, times, (a, b), whole, alpha)
        })
        .collect();
    let p_values: Vec<f64> = tests.iter().map(|test| test.estimate.p).collect();
    let tested = tests.len();
    let largest = |changes: &mut Vec<PathChange>| {
        changes.sort_by(|a, b| b.of_step_ns.abs().total_cmp(&a.of_step_ns.abs()).then_with(|| a.path.cmp(&b.path)));
    };
    let mut unproven: Vec<PathChange> = tests.iter().filter(|test| test.estimate.doubt.is_some()).cloned().collect();
    largest(&mut unproven);
    unproven.truncate(UNPROVEN);
    let mut changed: Vec<PathChange> = tests
        .into_iter()
        .zip(adjusted(&p_values))
        .filter(|(_, p)| *p <= limit)
        .map(|(test, adjusted_p)| PathChange { adjusted_p, ..test })
        .collect();
    largest(&mut changed);
    PathChanges { tested, changed, unproven }
}

fn add(slot: &mut Option<RunFigure>, more: &RunFigure) {
    let Some(sum) = slot else {
        *slot = Some(more.clone());
        return;
    };
    sum.value += more.value;
    if sum.parts.len() == more.parts.len() {
        sum.parts.iter_mut().zip(&more.parts).for_each(|(sum, more)| *sum += more);
    } else {
        sum.parts.clear();
    }
}

fn test(
    design: &Design,
    (kind, path, clock): Key,
    times: Times,
    (a, b): (&[RunFacts], &[RunFacts]),
    whole: StepChange,
    alpha: f64,
) -> Option<PathChange> {
    let middle = |side: &[Option<RunFigure>]| {
        let values: Vec<f64> = side.iter().flatten().map(|sampled| sampled.value).collect();
        (!values.is_empty()).then(|| super::change_points::median(&values))
    };
    let (a_ns, b_ns) = (middle(&times.a)?, middle(&times.b)?);
    let weight = weight(a, &kind).or_else(|| weight(b, &kind))?;
    // Both sides together, so that the choice says nothing about the difference.
    if (a_ns + b_ns) / 2.0 * weight < LEAST_SHARE * whole.a_ns {
        return None;
    }
    let estimate = estimate(design, &times.a, &times.b, Scale::Difference, alpha)?.withheld();
    let inside = format!("{path}/");
    let is_inside = |other: &PathFacts| {
        other.kind == kind && (other.path.starts_with(&inside) || other.rollup.starts_with(&inside))
    };
    let outside_others = a.first().into_iter().chain(b.first()).flat_map(|run| &run.paths).any(is_inside);
    let of_step_ns = estimate.change * weight;
    Some(PathChange {
        kind,
        path,
        module: times.module,
        clock,
        a_ns,
        b_ns,
        estimate,
        of_step_ns,
        share_of_step: of_step_ns / whole.a_ns,
        share_of_change: whole.change_ns.filter(|change| *change != 0.0).map(|change| of_step_ns / change),
        adjusted_p: 1.0,
        outside_others,
    })
}

/// Steps of a kind for each step of the most frequent kind, in the first run that has it.
fn weight(runs: &[RunFacts], kind: &str) -> Option<f64> {
    let run = runs.iter().find(|run| run.kinds.contains_key(kind))?;
    let most = run.kinds.values().map(|kind| kind.steps).max()?;
    Some(run.kinds.get(kind)?.steps as f64 / most as f64)
}

/// Whether more pairs could name paths that these do not.
pub(super) fn wants_more(changes: &PathChanges, basis: Basis) -> bool {
    basis == Basis::Pairs && changes.changed.is_empty() && changes.tested > 0
}
