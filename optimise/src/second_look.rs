//! Where a promise that did not come true and the result differ: what the replay said that each kind of step and each path would
//! take, what they took, and kernels and functions that changed, the largest difference first.

use crate::account::{Difference, DifferenceScope};
use crate::promise::{ByKind, PromisedGain};
use candlescope_compare::{FigureChange, KernelTime, RunFacts, RunFigure};
use candlescope_core::Side;
use candlescope_core::numbers::duration;
use candlescope_predict::simulation::{PathTime, Simulation, StepGroup};
use std::collections::BTreeMap;

/// Paths, kernels and functions that are named, of each.
const NAMED: usize = 5;
/// A function is named if its time changed by so many standard errors of its samples.
const ERRORS: f64 = 3.0;

/// What a replay says of the paths in one kind of step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SaidOfPaths {
    pub(crate) kind: String,
    /// The side whose work it is of: the device's where it has any.
    pub(crate) side: Side,
    pub(crate) times: Vec<PathTime>,
}

/// What a promise says of paths: nothing, unless it rests on changes that were simulated.
pub(crate) fn said_of_paths(promised: &PromisedGain, simulation: Option<&Simulation>) -> Vec<SaidOfPaths> {
    let groups = simulation.filter(|_| !promised.changes.is_empty()).map_or(&[][..], Simulation::groups);
    let one = |group: &StepGroup| {
        let on_device = group.models().iter().any(|model| model.works() > 0);
        let side = if on_device { Side::Device } else { Side::Host };
        let times = group.path_times(&promised.changes, side).ok()?;
        Some(SaidOfPaths { kind: group.name().to_string(), side, times })
    };
    groups.iter().filter_map(one).collect()
}

/// Kinds of steps, by the runs that were compared: of those about which nothing is promised, nothing is said.
pub(crate) fn of_steps(figures: &[FigureChange], by_kind: &ByKind) -> Vec<Difference> {
    let one = |figure: &FigureChange| {
        let kind = figure.name.strip_prefix("step_ns ")?;
        Some(Difference {
            within: DifferenceScope::Step,
            step: None,
            name: kind.to_string(),
            before_ns: figure.a,
            said_ns: by_kind.get(kind).map(|gain| figure.a * (1.0 - gain.mid)),
            after_ns: figure.b,
        })
    };
    largest_first(figures.iter().filter_map(one).collect())
}

/// Paths of which a replay says something, by a run of each side. A replay's share of a path's time is applied to what the run
/// before shows, and a path that the run after does not have is left out: nobody knows what became of it.
pub(crate) fn of_paths(said: &[SaidOfPaths], before: &RunFacts, after: &RunFacts) -> Vec<Difference> {
    let mut found = Vec::new();
    for SaidOfPaths { kind, side, times } in said {
        let share: BTreeMap<&str, f64> = times
            .iter()
            .filter(|time| time.before_ns > 0.0)
            .map(|time| (time.path.as_str(), time.after_ns / time.before_ns))
            .collect();
        let mut sums: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        for (path, rollup, ns) in own_times(before, kind, *side) {
            let Some(share) = share.get(path) else { continue };
            let sum = sums.entry(rollup).or_default();
            (sum.0, sum.1) = (sum.0 + ns, sum.1 + ns * share);
        }
        let mut took: BTreeMap<&str, f64> = BTreeMap::new();
        own_times(after, kind, *side).for_each(|(_, rollup, ns)| *took.entry(rollup).or_default() += ns);
        found.extend(sums.into_iter().filter_map(|(rollup, (before_ns, said_ns))| {
            Some(Difference {
                within: DifferenceScope::Path,
                step: Some(kind.clone()),
                name: rollup.to_string(),
                before_ns,
                said_ns: Some(said_ns),
                after_ns: *took.get(rollup)?,
            })
        }));
    }
    named(found)
}

/// Path, path without ordinals, and its own time on a side, in steps of a kind.
fn own_times<'a>(run: &'a RunFacts, kind: &'a str, side: Side) -> impl Iterator<Item = (&'a str, &'a str, f64)> {
    run.paths.iter().filter(move |path| path.kind == kind).filter_map(move |path| {
        let own: Option<&RunFigure> = if side == Side::Device { path.gpu_ns.as_ref() } else { Some(&path.host_ns) };
        Some((path.path.as_str(), path.rollup.as_str(), own?.value))
    })
}

/// Kernels by name; nothing unless both runs recorded some.
pub(crate) fn of_kernels(before: &[KernelTime], after: &[KernelTime]) -> Vec<Difference> {
    let of = |times: &[KernelTime]| -> BTreeMap<(String, String), f64> {
        times.iter().map(|time| ((time.kind.clone(), time.name.clone()), time.ns)).collect()
    };
    let (before, after) = (of(before), of(after));
    if before.is_empty() || after.is_empty() {
        return Vec::new();
    }
    // A kind of step of which one run recorded none says nothing of its kernels.
    let has = |side: &BTreeMap<(String, String), f64>, kind: &str| side.keys().any(|(own, _)| own == kind);
    let keys: std::collections::BTreeSet<&(String, String)> = before.keys().chain(after.keys()).collect();
    let one = |(kind, name): &(String, String)| {
        let ns =
            |side: &BTreeMap<(String, String), f64>| side.get(&(kind.clone(), name.clone())).copied().unwrap_or(0.0);
        (has(&before, kind) && has(&after, kind)).then(|| Difference {
            within: DifferenceScope::Kernel,
            step: Some(kind.clone()),
            name: name.clone(),
            before_ns: ns(&before),
            said_ns: None,
            after_ns: ns(&after),
        })
    };
    named(keys.into_iter().filter_map(one).collect())
}

/// Functions whose time changed by more than their samples may by chance; nothing unless both runs have stacks.
pub(crate) fn of_functions(before: &RunFacts, after: &RunFacts) -> Vec<Difference> {
    let Some((before, after)) = before.host.as_ref().zip(after.host.as_ref()) else { return Vec::new() };
    let mut sums: BTreeMap<&str, [(f64, u64); 2]> = BTreeMap::new();
    for (side, run) in [before, after].into_iter().enumerate() {
        for function in &run.functions {
            let sum = &mut sums.entry(&function.function).or_default()[side];
            *sum = (sum.0 + function.ns, sum.1.saturating_add(function.samples));
        }
    }
    // One more than was counted, so that nothing counted is no certainty.
    let error = |(_, samples): (f64, u64), each: f64| (samples + 1) as f64 * each.powi(2);
    let one = |(name, [a, b]): (&str, [(f64, u64); 2])| {
        let chance = (error(a, before.sample_ns) + error(b, after.sample_ns)).sqrt();
        ((b.0 - a.0).abs() >= ERRORS * chance).then(|| Difference {
            within: DifferenceScope::Function,
            step: None,
            name: name.to_string(),
            before_ns: a.0,
            said_ns: None,
            after_ns: b.0,
        })
    };
    named(sums.into_iter().filter_map(one).collect())
}

fn largest_first(mut found: Vec<Difference>) -> Vec<Difference> {
    found.sort_by(|a, b| b.longer_ns().abs().total_cmp(&a.longer_ns().abs()));
    found
}

/// Those that are named, without what is as it was said.
fn named(found: Vec<Difference>) -> Vec<Difference> {
    let mut found = largest_first(found);
    found.retain(|difference| difference.longer_ns() != 0.0);
    found.truncate(NAMED);
    found
}

/// A difference as a sentence.
pub(crate) fn words(difference: &Difference, per_sequence: bool) -> String {
    let Difference { within, step, name, before_ns, said_ns, after_ns } = difference;
    let of_step = step.as_ref().map_or_else(|| " of a step".to_string(), |step| format!(" of a step `{step}`"));
    let what = match within {
        DifferenceScope::Step if per_sequence => {
            format!("a sequence's share of a step `{name}` took {}", duration(*before_ns))
        }
        DifferenceScope::Step => format!("a step `{name}` took {}", duration(*before_ns)),
        DifferenceScope::Path => format!("`{name}` itself took {}{of_step}", duration(*before_ns)),
        DifferenceScope::Kernel => format!("kernel `{name}` took {}{of_step}", duration(*before_ns)),
        DifferenceScope::Function => format!("function `{name}` took {}{of_step}", duration(*before_ns)),
    };
    let said = said_ns.map_or_else(String::new, |ns| format!(", was said to take {}", duration(ns)));
    let longer = difference.longer_ns();
    let direction = if longer < 0.0 { "shorter" } else { "longer" };
    let than = if said_ns.is_some() { "said" } else { "before" };
    let after = duration(*after_ns);
    format!("{what}{said} and takes {after}, {} {direction} than {than}", duration(longer.abs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_compare::{FunctionFacts, HostFacts, PathFacts};
    use candlescope_work::estimate::Estimate;

    const MS: f64 = 1e6;

    /// A run whose paths take this on the host and on the device, and whose functions have these samples of 10 µs each.
    fn run(paths: &[(&str, f64, f64)], functions: &[(&str, u64)]) -> RunFacts {
        let path = |(path, host_ns, gpu_ns): &(&str, f64, f64)| PathFacts {
            kind: "decode".into(),
            path: (*path).into(),
            rollup: path.split('[').next().unwrap_or_default().to_string(),
            module: None,
            host_ns: RunFigure::whole(*host_ns),
            gpu_ns: (*gpu_ns > 0.0).then(|| RunFigure::whole(*gpu_ns)),
        };
        let function = |(name, samples): &(&str, u64)| FunctionFacts {
            path: "decode".into(),
            function: (*name).into(),
            ns: *samples as f64 * 1e4,
            samples: *samples,
            ..FunctionFacts::default()
        };
        let host = (!functions.is_empty())
            .then(|| HostFacts { sample_ns: 1e4, functions: functions.iter().map(function).collect() });
        RunFacts { paths: paths.iter().map(path).collect(), host, ..RunFacts::default() }
    }

    fn said(side: Side, times: &[(&str, f64, f64)]) -> SaidOfPaths {
        let time = |(path, before_ns, after_ns): &(&str, f64, f64)| PathTime {
            path: (*path).into(),
            before_ns: *before_ns,
            after_ns: *after_ns,
        };
        SaidOfPaths { kind: "decode".into(), side, times: times.iter().map(time).collect() }
    }

    #[test]
    fn paths_are_held_against_what_the_replay_said_of_them_the_largest_difference_first() {
        // Two layers of an MLP halve by the replay, and attention stays. On the device it is the other way round.
        let told = said(Side::Device, &[("mlp[0]", 2.0, 1.0), ("mlp[1]", 2.0, 1.0), ("attention", 8.0, 8.0)]);
        let before = run(&[("mlp[0]", 9e9, 2.2 * MS), ("mlp[1]", 9e9, 1.8 * MS), ("attention", 9e9, 8.0 * MS)], &[]);
        let after = run(&[("mlp[0]", 1.0, 2.0 * MS), ("mlp[1]", 1.0, 1.9 * MS), ("attention", 1.0, 5.0 * MS)], &[]);
        let found = of_paths(std::slice::from_ref(&told), &before, &after);
        let names: Vec<&str> = found.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["attention", "mlp"]);
        assert_eq!((found[1].before_ns, found[1].said_ns, found[1].after_ns), (4.0 * MS, Some(2.0 * MS), 3.9 * MS));
        assert_eq!(
            words(&found[0], false),
            "`attention` itself took 8.00 ms of a step `decode`, was said to take 8.00 ms and takes 5.00 ms, \
             3.00 ms shorter than said"
        );
        // A run without device times says nothing of them, and a path that is gone is not one that takes no time.
        assert!(of_paths(std::slice::from_ref(&told), &before, &run(&[("mlp[0]", 1.0, 0.0)], &[])).is_empty());
        let gone = of_paths(&[told], &before, &run(&[("attention", 1.0, 8.5 * MS)], &[]));
        assert_eq!(gone.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["attention"]);
    }

    #[test]
    fn on_a_host_alone_the_host_is_meant() {
        let told = said(Side::Host, &[("mlp", 2.0, 1.0)]);
        let found = of_paths(&[told], &run(&[("mlp", 2.0 * MS, 0.0)], &[]), &run(&[("mlp", 2.0 * MS, 0.0)], &[]));
        assert_eq!((found[0].said_ns, found[0].longer_ns()), (Some(MS), MS));
    }

    #[test]
    fn kernels_are_named_where_both_runs_recorded_some() {
        let kernel =
            |kind: &str, name: &str, ns: f64| KernelTime { kind: kind.into(), name: name.into(), count: 1.0, ns };
        let before = [kernel("decode", "gemv", 4.0 * MS), kernel("decode", "copy", MS), kernel("prefill", "gemm", MS)];
        let after = [kernel("decode", "gemv", 3.5 * MS), kernel("decode", "dequantize", 2.0 * MS)];
        let found = of_kernels(&before, &after);
        let told: Vec<(&str, f64)> = found.iter().map(|one| (one.name.as_str(), one.longer_ns())).collect();
        // Of prefill steps the second run recorded none.
        assert_eq!(told, [("dequantize", 2.0 * MS), ("copy", -MS), ("gemv", -0.5 * MS)]);
        assert_eq!(
            words(&found[0], false),
            "kernel `dequantize` took 0 ns of a step `decode` and takes 2.00 ms, 2.00 ms longer than before"
        );
        assert!(of_kernels(&before, &[]).is_empty() && of_kernels(&[], &after).is_empty());
    }

    #[test]
    fn functions_are_named_where_samples_cannot_be_chance() {
        let before = run(&[], &[("steady", 400), ("grew", 100)]);
        let after = run(&[], &[("steady", 410), ("grew", 300), ("new", 40)]);
        let found = of_functions(&before, &after);
        let names: Vec<&str> = found.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["grew", "new"]);
        assert!(of_functions(&before, &run(&[], &[])).is_empty(), "the other run has no stacks");
    }

    #[test]
    fn steps_of_which_nothing_was_promised_are_held_against_what_was_there() {
        let figure = |name: &str, a: f64, b: f64| {
            let values = |value: f64| vec![Some(RunFigure::whole(value)); 8];
            let options = candlescope_compare::CompareOptions::default();
            let design = candlescope_compare::Design::apart();
            candlescope_compare::figure_change(name, &design, &values(a), &values(b), &options).expect("both sides")
        };
        let figures = [
            figure("step_ns prefill", 20.0 * MS, 21.0 * MS),
            figure("step_ns decode", 10.0 * MS, 9.5 * MS),
            figure("e2e_ns", 100.0 * MS, 90.0 * MS),
        ];
        let by_kind = ByKind::from([("decode".to_string(), Estimate { low: 0.3, mid: 0.4, high: 0.5 })]);
        let found = of_steps(&figures, &by_kind);
        assert_eq!(
            words(&found[0], false),
            "a step `decode` took 10.0 ms, was said to take 6.00 ms and takes 9.50 ms, 3.50 ms longer than said"
        );
        assert_eq!((found[1].name.as_str(), found[1].said_ns), ("prefill", None));
        assert!(words(&found[0], true).starts_with("a sequence's share of a step `decode`"));
    }
}
