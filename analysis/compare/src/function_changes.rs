//! Which functions account for what changed, as far as call stacks were sampled.
//!
//! A sampled time of *n* samples has a standard error of 1/√n of itself, which is all that one run of a side tells; of
//! several runs of a side, what they differ by among themselves is taken where that is more.

use super::discoveries::{UNPROVEN, adjusted, name_none};
use super::function_facts::{FunctionFacts, HostFacts};
use super::run_facts::RunFacts;
use super::student::{Mean, welch};
use serde::Serialize;
use std::collections::BTreeMap;

/// Functions below this share of the step on both sides together are not tested.
const LEAST_SHARE: f64 = 0.002;
/// Degrees of freedom of an error that comes from counting samples, of which there are many.
const OF_COUNTING: f64 = 1e6;

/// A function whose time changed inside the intervals of a path.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FunctionChange {
    /// Rollup path of the intervals that it ran in, those inside them left out.
    pub path: String,
    /// Path of the function as far as symbols tell it, or its binary in brackets.
    pub function: String,
    /// Its crate, where that is known.
    pub crate_name: Option<String>,
    /// Its time on the CPU on side A, nanoseconds for each typical step (a mean over the runs).
    pub a_ns: f64,
    /// The same on side B; a run that did not keep the function counts as 0.
    pub b_ns: f64,
    /// `b_ns` less `a_ns`: above 0 if B takes longer.
    pub change_ns: f64,
    /// Ends of the interval of the change.
    pub interval_ns: (f64, f64),
    /// Samples on each side.
    pub samples: (u64, u64),
    /// `change_ns` ÷ the change of the whole step; absent if the step's own change cannot be told from 0, and of a
    /// function that runs on a pool's threads, too, whose time is no part of the step's.
    pub share_of_change: Option<f64>,
    /// The probability that naming it is false, after all the tests beside it (Benjamini and Hochberg).
    pub adjusted_p: f64,
}

/// Functions that were looked at, and those that changed: from samples of call stacks.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct FunctionChanges {
    /// Functions tested, in each path by itself: those with a mean of both sides of at least 0.2 % of A's step, or more
    /// where runs left functions out.
    pub tested: usize,
    /// Those that changed, the largest change first.
    pub changed: Vec<FunctionChange>,
    /// Where none could be named: the largest differences, which may be chance.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unproven: Vec<FunctionChange>,
}

impl FunctionChanges {
    /// Takes back all names: what was named is only what differs most.
    pub(super) fn name_none(&mut self) {
        name_none(&mut self.changed, &mut self.unproven);
    }
}

/// Path, function and crate.
type Key<'a> = (&'a str, &'a str, Option<&'a str>);
/// What the runs of A and of B have of a function.
type RunsOfSides<'a> = [Vec<Option<&'a FunctionFacts>>; 2];

/// The functions that changed; `None` unless stacks were sampled in all runs. `step_ns` is the time of A's step,
/// `change_ns` its change if that can be told from 0.
pub(super) fn function_changes(
    (a, b): (&[RunFacts], &[RunFacts]),
    (step_ns, change_ns): (f64, Option<f64>),
    (alpha, limit): (f64, f64),
) -> Option<FunctionChanges> {
    let hosts = |side| <[RunFacts]>::iter(side).map(|run| run.host.as_ref()).collect::<Option<Vec<&HostFacts>>>();
    let sides = [hosts(a)?, hosts(b)?];
    // A function that a run has not kept may have had up to this in it.
    let unkept = sides.iter().flatten().map(|run| run.least_kept_ns()).fold(0.0, f64::max);
    let least = (LEAST_SHARE * step_ns).max(unkept);
    // Debug information often has only the last word of a name, which several crates share.
    let mut times: BTreeMap<Key<'_>, RunsOfSides<'_>> = BTreeMap::new();
    for (side, runs) in sides.iter().enumerate() {
        for (at, run) in runs.iter().enumerate() {
            for function in &run.functions {
                let both = times
                    .entry((&function.path, &function.function, function.crate_name.as_deref()))
                    .or_insert_with(|| [vec![None; sides[0].len()], vec![None; sides[1].len()]]);
                both[side][at] = Some(function);
            }
        }
    }
    let tests: Vec<(FunctionChange, f64)> = times
        .values()
        .filter_map(|both| {
            let (of_a, of_b) = (mean(&both[0], &sides[0]), mean(&both[1], &sides[1]));
            // Both sides together, so that the choice says nothing about the difference.
            if (of_a.mean + of_b.mean) / 2.0 < least {
                return None;
            }
            let (change_ns_of_it, interval_ns, p) = welch(of_a, of_b, alpha);
            let one = both.iter().flatten().flatten().next()?;
            let samples =
                |side: &[Option<&FunctionFacts>]| side.iter().flatten().map(|function| function.samples).sum();
            let change = FunctionChange {
                path: one.path.clone(),
                function: one.function.clone(),
                crate_name: one.crate_name.clone(),
                a_ns: of_a.mean,
                b_ns: of_b.mean,
                change_ns: change_ns_of_it,
                interval_ns,
                samples: (samples(&both[0]), samples(&both[1])),
                share_of_change: change_ns
                    .filter(|whole| {
                        *whole != 0.0 && !both.iter().flatten().flatten().any(|function| function.pool_ns > 0.0)
                    })
                    .map(|whole| change_ns_of_it / whole),
                adjusted_p: 1.0,
            };
            Some((change, p))
        })
        .collect();
    let p_values: Vec<f64> = tests.iter().map(|(_, p)| *p).collect();
    let tested = tests.len();
    let tests = tests.into_iter().zip(adjusted(&p_values));
    let mut all: Vec<FunctionChange> =
        tests.map(|((test, _), adjusted_p)| FunctionChange { adjusted_p, ..test }).collect();
    all.sort_by(|a, b| b.change_ns.abs().total_cmp(&a.change_ns.abs()).then_with(|| a.function.cmp(&b.function)));
    let (changed, mut unproven): (Vec<_>, Vec<_>) = all.into_iter().partition(|test| test.adjusted_p <= limit);
    unproven.truncate(if changed.is_empty() { UNPROVEN } else { 0 });
    Some(FunctionChanges { tested, changed, unproven })
}

/// The mean over a side's runs and its error.
fn mean(values: &[Option<&FunctionFacts>], runs: &[&HostFacts]) -> Mean {
    let ns: Vec<f64> = values.iter().map(|value| value.map_or(0.0, |function| function.ns)).collect();
    // One more than was counted, so that nothing counted is no certainty.
    let counted = values.iter().zip(runs).map(|(value, run)| {
        let samples = value.map_or(0, |function| function.samples);
        // A function that was not kept may have had as much as the last one that was.
        let unkept = if value.is_none() { run.least_kept_ns() } else { 0.0 };
        (samples + 1) as f64 * run.sample_ns.powi(2) + unkept.powi(2)
    });
    let n = runs.len() as f64;
    let counting =
        Mean { mean: ns.iter().sum::<f64>() / n, variance: counted.sum::<f64>() / (n * n), freedom: OF_COUNTING };
    match Mean::of(&ns) {
        Some(between) if between.variance > counting.variance => between,
        _ => counting,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run in which each sample stands for 1 µs of a step, with samples of functions.
    fn run(functions: &[(&str, u64)]) -> RunFacts {
        let of = |(name, samples): &(&str, u64)| FunctionFacts {
            path: "decode/q_proj".into(),
            function: (*name).into(),
            crate_name: None,
            ns: *samples as f64 * 1e3,
            pool_ns: 0.0,
            samples: *samples,
        };
        let host = HostFacts { sample_ns: 1e3, functions: functions.iter().map(of).collect() };
        RunFacts { host: Some(host), ..RunFacts::default() }
    }

    #[test]
    fn a_function_is_named_where_samples_cannot_be_chance() {
        let a = [run(&[("steady", 400), ("grew", 100)])];
        let b = [run(&[("steady", 410), ("grew", 200), ("new", 30)])];
        let changes = function_changes((&a, &b), (5e5, Some(1e5)), (0.05, 0.05)).unwrap();
        assert_eq!(changes.tested, 3);
        let named: Vec<&str> = changes.changed.iter().map(|change| change.function.as_str()).collect();
        assert_eq!(named, ["grew", "new"]);
        let grew = &changes.changed[0];
        // (101 + 201) samples of 1 µs: an error of √302 µs = 17.4 µs.
        assert!((grew.interval_ns.0 - (1e5 - 1.96 * 17.38e3)).abs() < 100.0, "{grew:?}");
        assert_eq!((grew.change_ns, grew.share_of_change), (1e5, Some(1.0)));
        assert_eq!(grew.samples, (100, 200));
        assert!(changes.unproven.is_empty());
    }

    #[test]
    fn runs_that_differ_among_themselves_name_nothing() {
        let a = [run(&[("noisy", 100)]), run(&[("noisy", 300)])];
        let b = [run(&[("noisy", 200)]), run(&[("noisy", 400)])];
        let changes = function_changes((&a, &b), (5e5, None), (0.05, 0.05)).unwrap();
        assert!(changes.changed.is_empty());
        assert_eq!(changes.unproven.len(), 1);
        assert_eq!(function_changes((&a, &[RunFacts::default()]), (5e5, None), (0.05, 0.05)), None);
    }
}
