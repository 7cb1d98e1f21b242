//! Two sides compared: whether they may be, counts, times, paths.

use super::comparability::{BATCH, CompareError, Difference, alike, differences, sequences, stop};
use super::counts::{CountChange, NO_ALLOCATIONS, count_changes};
use super::disturbed::disturbances;
use super::estimate::{
    Basis, ChangeEstimate, Design, Floor, FloorSource, Scale, estimate, floor, floor_of_days, of_days,
};
use super::figure::{self, Better};
use super::function_changes::{FunctionChanges, function_changes};
use super::options::CompareOptions;
use super::outcome::{DecidedBy, Outcome, judge};
use super::path_changes::{Clock, PathChange, PathChanges, StepChange, path_changes, wants_more};
use super::run_facts::RunFacts;
use super::sampled::RunFigure;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// One side of a comparison.
#[derive(Debug, Clone, Default)]
pub struct Side {
    /// What people call it.
    pub name: String,
    /// Its runs; [`compare`] refuses a side without any, and one whose runs differ in model or machine.
    pub runs: Vec<RunFacts>,
}

/// A side in a comparison's result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SideInfo {
    /// What people call it.
    pub name: String,
    /// Directories of its runs.
    pub runs: Vec<String>,
    /// The machine in one line.
    pub machine: String,
}

/// A figure and how it changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FigureChange {
    /// Its name, from which its unit follows.
    pub name: String,
    /// Unit of `a` and `b`: `ns`, `bytes`, `J`, `mJ` or `tokens/s`; empty if the name does not tell it.
    pub unit: &'static str,
    /// Which direction is the better one.
    pub better: Better,
    /// Median over the runs of A. Where days are compared, `estimate` is the change from all of them instead.
    pub a: f64,
    /// Median over the runs of B.
    pub b: f64,
    /// The ratio less one, with its interval; absent where a value is not above 0.
    pub estimate: Option<ChangeEstimate>,
    /// What A alone shows between runs.
    pub floor: Floor,
    /// Its outcome by itself; absent if neither direction is better.
    pub outcome: Option<Outcome>,
}

/// Stacks of both sides, nanoseconds for each step.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Stacks {
    /// Side A: collapsed stack → nanoseconds.
    pub a: BTreeMap<String, f64>,
    /// Side B, in the same way.
    pub b: BTreeMap<String, f64>,
}

/// Two sides compared. Its JSON is stable: keys are added, and none changes its meaning within a schema.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Version of this object.
    pub schema: u32,
    /// What it comes to.
    pub outcome: Outcome,
    /// What decided; absent where nothing could.
    pub decided_by: Option<DecidedBy>,
    /// Share up to which changes are the same.
    pub margin: f64,
    /// Probability with which an interval may miss the truth.
    pub alpha: f64,
    /// The side that changes are from.
    pub a: SideInfo,
    /// The side that changes lead to.
    pub b: SideInfo,
    /// What disturbed the machine while runs were recorded, a sentence for each side and cause.
    pub disturbed: Vec<String>,
    /// What differs between the sides.
    pub differences: Vec<Difference>,
    /// Whether times and counts of steps are divided by their sequences, because the sides differ in them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub per_sequence: bool,
    /// Kernels, launches, FLOPs and other counts of a step, by kind of step; compared without statistics.
    pub counts: Vec<CountChange>,
    /// Why allocations are not among them.
    pub allocations: Option<&'static str>,
    /// The time of a step, which decides.
    pub step: Option<FigureChange>,
    /// Other times, memory, energy and quality.
    pub figures: Vec<FigureChange>,
    /// Paths with their ordinals whose self time changed, and how many were tested.
    pub paths: PathChanges,
    /// Modules, or paths without ordinals, that changed.
    pub modules: PathChanges,
    /// Functions that changed, if call stacks were sampled on both sides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub functions: Option<FunctionChanges>,
    /// Share of the named paths that may be wrong.
    pub false_discoveries: f64,
    /// Collapsed stacks of both sides for flame graphs, means over the runs; not in the JSON.
    #[serde(skip)]
    pub stacks: Stacks,
}

impl Comparison {
    /// Whether further pairs could still change what it comes to, or name the paths that made it worse or better.
    pub fn wants_more_pairs(&self) -> bool {
        let basis = self.step.as_ref().and_then(|step| step.estimate).map_or(Basis::Pairs, |estimate| estimate.basis);
        match self.outcome {
            Outcome::Undecided => true,
            Outcome::Equivalent => false,
            Outcome::Worse | Outcome::Better => match self.decided_by {
                Some(DecidedBy::Times) => wants_more(&self.paths, basis),
                Some(DecidedBy::Paths) => false,
                _ => true,
            },
        }
    }
}

/// Compares `b` with `a`.
///
/// # Errors
/// When the two must not be compared: [`CompareError`] says why, and what to do.
pub fn compare(a: &Side, b: &Side, options: &CompareOptions) -> Result<Comparison, CompareError> {
    for (side, letter) in [(a, "A"), (b, "B")] {
        if side.runs.is_empty() {
            return Err(CompareError::Nothing(side.name.clone()));
        }
        if let Some(run) = side.runs.iter().find(|run| run.step_ns.is_none()) {
            return Err(CompareError::NoSteps(run.dir.clone()));
        }
        alike(letter, &side.runs)?;
    }
    in_common(&a.runs, &b.runs)?;
    let found = differences(&a.runs, &b.runs, &options.allow);
    if let Some(error) = stop(&found) {
        return Err(error);
    }
    let starts = |side: &Side| side.runs.iter().map(|run| run.started_ns).collect::<Vec<_>>();
    let design = match &options.days {
        Some(days) => Design::of_days(days.spread("step_ns")),
        None => Design::of_starts(&starts(a), &starts(b)),
    };
    let per_sequence = found.iter().any(|difference| difference.what == BATCH);
    let of_one = |side: &Side| {
        let one = |run: &RunFacts| match sequences(&run.fingerprint.shapes) {
            Some(n) => run.clone().for_one_of(n),
            None => run.clone(),
        };
        Side { name: side.name.clone(), runs: side.runs.iter().map(one).collect() }
    };
    Ok(match per_sequence {
        true => Comparison { per_sequence, ..judged(&of_one(a), &of_one(b), &design, found, options) },
        false => judged(a, b, &design, found, options),
    })
}

/// Both sides have the same kinds of step, or at least one.
fn in_common(a: &[RunFacts], b: &[RunFacts]) -> Result<(), CompareError> {
    let kinds =
        |side: &[RunFacts]| -> BTreeSet<String> { side.iter().flat_map(|run| run.kinds.keys().cloned()).collect() };
    let (of_a, of_b) = (kinds(a), kinds(b));
    if of_a.is_disjoint(&of_b) {
        let list = |kinds: BTreeSet<String>| kinds.into_iter().take(5).collect::<Vec<_>>().join(", ");
        return Err(CompareError::NothingInCommon { a: list(of_a), b: list(of_b) });
    }
    Ok(())
}

fn judged(a: &Side, b: &Side, design: &Design, found: Vec<Difference>, options: &CompareOptions) -> Comparison {
    let counts = count_changes(&a.runs, &b.runs);
    let of = |runs: &[RunFacts], of: &dyn Fn(&RunFacts) -> Option<RunFigure>| runs.iter().map(of).collect::<Vec<_>>();
    let change = |name: &str, get: &dyn Fn(&RunFacts) -> Option<RunFigure>| {
        figure_change(name, design, &of(&a.runs, get), &of(&b.runs, get), options)
    };
    let step = change("step_ns", &|run| run.step_ns.clone());
    let mut figures = Vec::new();
    let kinds: BTreeSet<&String> = a.runs.iter().chain(&b.runs).flat_map(|run| run.kinds.keys()).collect();
    for kind in kinds {
        let host = change(&format!("step_ns {kind}"), &|run| Some(run.kinds.get(kind)?.host_ns.clone()));
        let device = change(&format!("gpu_ns {kind}"), &|run| run.kinds.get(kind)?.gpu_ns.clone());
        figures.extend(host.into_iter().chain(device));
    }
    let names: BTreeSet<&String> = a.runs.iter().chain(&b.runs).flat_map(|run| run.figures.keys()).collect();
    figures.extend(names.into_iter().filter_map(|name| change(name, &|run| run.figures.get(name).cloned())));
    let whole = step.as_ref().map_or(StepChange { a_ns: 1.0, change_ns: None }, whole);
    let changes = |name: fn(&super::path_times::PathFacts) -> &str| {
        path_changes(design, (&a.runs, &b.runs), whole, (options.alpha, options.false_discoveries), name)
    };
    let (mut paths, mut modules) = (changes(|path| &path.path), changes(|path| &path.rollup));
    let limits = (options.alpha, options.false_discoveries);
    let mut functions = function_changes((&a.runs, &b.runs), (whole.a_ns, whole.change_ns), limits);
    // How much a single path differs between days is not known: where the whole did not change, none is named.
    let clear = step.as_ref().and_then(|step| step.outcome);
    if options.days.is_some() && !matches!(clear, Some(Outcome::Worse | Outcome::Better)) {
        paths.name_none();
        modules.name_none();
        functions.iter_mut().for_each(FunctionChanges::name_none);
    }
    let (outcome, decided_by) = outcome(step.as_ref(), &paths, &counts, options);
    Comparison {
        schema: 1,
        outcome,
        decided_by,
        margin: options.margin,
        alpha: options.alpha,
        a: info(a),
        b: info(b),
        disturbed: disturbances(&disturbed(a), &disturbed(b)),
        differences: found,
        per_sequence: false,
        counts,
        allocations: Some(NO_ALLOCATIONS),
        step,
        figures,
        paths,
        modules,
        functions,
        false_discoveries: options.false_discoveries,
        stacks: Stacks { a: stacks(&a.runs), b: stacks(&b.runs) },
    }
}

/// The time of the step decides where it can. Where it cannot, because the whole machine was now faster and now slower,
/// paths may still be clear: each is small, and changes against the others. Where they are not, more work than the margin
/// is worse by itself: it is exact.
fn outcome(
    step: Option<&FigureChange>,
    paths: &PathChanges,
    counts: &[CountChange],
    options: &CompareOptions,
) -> (Outcome, Option<DecidedBy>) {
    let times = step.and_then(|step| step.outcome).unwrap_or(Outcome::Undecided);
    if times != Outcome::Undecided {
        return (times, Some(DecidedBy::Times));
    }
    // The step's own estimate has to agree: work that only moved from many paths to one makes nothing longer. And only
    // in turns do all paths see the same machine.
    let estimate = step.and_then(|step| step.estimate).filter(|estimate| estimate.basis == Basis::Pairs);
    let agreed = estimate.map_or(0.0, |estimate| estimate.change);
    let clear = clear_share(paths, options.alpha / 2.0);
    if clear.min(agreed) > options.margin {
        return (Outcome::Worse, Some(DecidedBy::Paths));
    }
    if clear.max(agreed) < -options.margin {
        return (Outcome::Better, Some(DecidedBy::Paths));
    }
    let more = counts.iter().filter_map(CountChange::more_work).fold(0.0, f64::max);
    if more > options.margin { (Outcome::Worse, Some(DecidedBy::Counts)) } else { (Outcome::Undecided, None) }
}

/// What the paths that are beyond doubt add to a step, as a share of it. Beyond doubt: with a probability of at most
/// `alpha` that any of all that were tested is wrong (Bonferroni), which is stricter than what it takes to be named.
fn clear_share(paths: &PathChanges, alpha: f64) -> f64 {
    let beyond_doubt =
        |change: &&PathChange| change.clock == Clock::Host && change.estimate.p * paths.tested as f64 <= alpha;
    paths.changed.iter().filter(beyond_doubt).map(|change| change.share_of_step).sum()
}

/// The change of one figure from the values of A's runs to those of B's; `None` if a side does not have it.
pub fn figure_change(
    name: &str,
    design: &Design,
    a: &[Option<RunFigure>],
    b: &[Option<RunFigure>],
    options: &CompareOptions,
) -> Option<FigureChange> {
    let middle = |side: &[Option<RunFigure>]| {
        let values: Vec<f64> = side.iter().flatten().map(|sampled| sampled.value).collect();
        (!values.is_empty()).then(|| super::change_points::median(&values))
    };
    let (of_a, of_b) = (middle(a)?, middle(b)?);
    let days = options.days.as_ref().map(|days| days.values(name));
    let found = match &days {
        Some(days) => of_days(days, a, b, options.alpha),
        None => estimate(design, a, b, Scale::Ratio, options.alpha),
    };
    let floor = match (options.floor, &days) {
        (Some(share), _) => Floor { share: Some(share), source: FloorSource::Given, n: 0 },
        (None, Some(days)) => floor_of_days(days),
        (None, None) => floor(design, a, b.iter().flatten().count()),
    };
    let better = figure::better(name);
    let outcome = found.as_ref().and_then(|estimate| match better {
        Better::Lower => Some(judge(estimate, &floor, options.margin)),
        Better::Higher => Some(match judge(estimate, &floor, options.margin) {
            Outcome::Worse => Outcome::Better,
            Outcome::Better => Outcome::Worse,
            other => other,
        }),
        Better::Unknown => None,
    });
    Some(FigureChange {
        name: name.to_string(),
        unit: figure::unit(name),
        better,
        a: of_a,
        b: of_b,
        estimate: found.map(|estimate| if floor.source == FloorSource::Given { estimate } else { estimate.withheld() }),
        floor,
        outcome,
    })
}

fn whole(step: &FigureChange) -> StepChange {
    let clear =
        |estimate: &ChangeEstimate| estimate.low.zip(estimate.high).is_some_and(|(low, high)| low > 0.0 || high < 0.0);
    let change_ns = step.estimate.filter(clear).map(|estimate| estimate.change * step.a);
    StepChange { a_ns: step.a, change_ns }
}

fn disturbed(side: &Side) -> Vec<&[String]> {
    side.runs.iter().map(|run| run.disturbed.as_slice()).collect()
}

fn info(side: &Side) -> SideInfo {
    SideInfo {
        name: side.name.clone(),
        runs: side.runs.iter().map(|run| run.dir.clone()).collect(),
        machine: side.runs.first().map(|run| run.fingerprint.machine_name()).unwrap_or_default(),
    }
}

/// Mean over the runs, each of which counts as much as any other.
fn stacks(runs: &[RunFacts]) -> BTreeMap<String, f64> {
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    for (stack, ns) in runs.iter().flat_map(|run| &run.stacks) {
        *sums.entry(stack.clone()).or_default() += ns / runs.len() as f64;
    }
    sums
}
