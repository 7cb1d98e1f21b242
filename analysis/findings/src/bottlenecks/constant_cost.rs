//! Operations of one kind that take the same time whatever their size: what they compute is not what they wait for.
//!
//! The time of a product over its FLOPs is a line. Where the line meets the axis far above zero, each product has a cost
//! of its own, which neither a faster kernel nor fewer FLOPs take away.

use super::counted_gain::CountedGain;
use super::draft::{Draft, RuleResults};
use super::host_causes::{CauseTime, HostOfStep, THREAD_COUNT};
use super::operations::{Operation, operations, query};
use super::product_line::{ConstantCost, Point, intercept};
use super::scene::{Scene, StepScene};
use super::two_lines::Relief;
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel, RATES, whole};
use candlescope_figures::cache_reads::reads_cache;
use candlescope_figures::{Analysis, PathTotals};
use candlescope_schema::run::{Code, RayonThreads, RunManifest, env_key, model_key};

/// A call that costs less by itself is none to look for, in nanoseconds.
const LEAST_NS: f64 = 10_000.0;
/// From this share of the products' own time on it is what they mostly do.
const OF_PRODUCTS: f64 = 0.5;
/// From this share of a step on.
const OF_STEP: f64 = 0.25;
/// The same where the cause is known, and the line need not show that there is one: beside other programs a step takes
/// several times as long, and the cost as much as ever.
const OF_STEP_KNOWN: f64 = 0.05;
/// Calls that a line rests on, at least.
const FEWEST_CALLS: u64 = 64;

/// Of the products of a step on a CPU; `None` if they have none that matters, or neither their sizes differ nor did the
/// program measure it.
pub(super) fn of(scene: &Scene<'_>, step: &StepScene<'_>) -> Option<ConstantCost> {
    if scene.on_gpu {
        return None;
    }
    let all = operations(scene, step);
    let products: Vec<&Operation<'_>> = all.iter().filter(|one| one.is_product()).collect();
    let steps = step.usual_steps().max(1) as f64;
    let points: Vec<Point> = products
        .iter()
        .filter(|one| one.n > 0)
        .map(|one| {
            let calls = one.n as f64 / steps;
            Point { calls, flops: one.flops.unwrap_or(0.0) / calls, ns: one.median_ns / calls }
        })
        .collect();
    let is_known = is_known(&scene.analysis.manifest);
    let shortest = points.iter().map(|point| point.ns).fold(f64::INFINITY, f64::min);
    // Where the program measured what each costs, that is it: the line has what others took from products.
    let measured = measured_ns(scene.analysis).filter(|_| is_known && !points.is_empty()).map(|ns| ns.min(shortest));
    let (each_ns, least_ns) = measured.map(|each| (each, each)).or_else(|| intercept(&points))?;
    let calls: f64 = points.iter().map(|point| point.calls).sum();
    let own: f64 = points.iter().map(|point| point.calls * point.ns).sum();
    // Those without a span of their own cost as much.
    let unseen = unseen_products(scene, step, each_ns).filter(|_| is_known);
    let all_calls = calls + unseen.map_or(0.0, |(calls, _)| calls);
    let enough = products.iter().map(|one| one.n).sum::<u64>() >= FEWEST_CALLS;
    let of_step = if is_known { OF_STEP_KNOWN } else { OF_STEP };
    let matters = each_ns >= LEAST_NS
        && each_ns * calls >= OF_PRODUCTS * own
        && each_ns * all_calls >= of_step * step.usual_median_ns()?;
    let paths = products.iter().map(|one| one.totals.rollup.clone()).collect();
    (enough && matters).then_some(ConstantCost { each_ns, least_ns, calls, unseen, paths })
}

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut RuleResults) {
    let code = AdviceCode::ConstantCost;
    let Some(cost) = &step.constant else { return };
    let Some((mean, usual)) = step.usual_mean_ns().zip(step.usual_median_ns()) else { return };
    let all = operations(scene, step);
    let products: Vec<&Operation<'_>> = all.iter().filter(|one| cost.explains(&one.totals.rollup)).collect();
    let (time, n): (f64, u64) = products.iter().fold((0.0, 0), |sum, one| (sum.0 + one.measured_ns, sum.1 + one.n));
    let manifest = &scene.analysis.manifest;
    let threads = RayonThreads::of(manifest);
    let is_known = is_known(manifest);
    let host = step.host.as_ref().filter(|_| is_known);
    let asking = host.and_then(asking);
    let of_host = |ns: f64| ns / host.map_or(f64::INFINITY, |host| host.elapsed_ns);
    let usual_time = products.iter().map(|one| one.median_ns).sum::<f64>() + cost.unseen_ns(cost.each_ns);
    let draft = Draft::new(code, step)
        .steps(step.usual_steps())
        .measured("calls", "count", cost.calls, n)
        .measured("time_ns", "ns", time, n)
        .measured("share", "ratio", time / mean, n)
        .derived("usual_share", "ratio", usual_time / usual, n)
        .derived("each_ns", "ns", cost.each_ns, n)
        .derived("of_step", "ratio", cost.each_ns * cost.calls / usual, n)
        .derived_if("unseen_calls", "count", cost.unseen.map(|(calls, _)| calls), 1)
        .derived_if(
            "sampled",
            "ratio",
            asking.map(|(time, _)| of_host(time.ns())),
            asking.map_or(1, |(time, _)| time.samples),
        )
        .derived_if("rayon_num_threads", "count", threads.told(), 1)
        .query(query(scene, step, &products));
    let draft = if is_known {
        draft.sure(
            ConfidenceLevel::High,
            "measured, and known: this version of candle reads /proc/cpuinfo at each product while the variable is not set; \
             it gains that at least, since reading slows down what is computed beside it",
        )
    } else {
        draft.sure(ConfidenceLevel::Medium, "measured; what the time is spent on is not")
    };
    let of_step = step.lines.t / usual;
    out.found.push(draft.reliefs(|at| {
        let each = if at <= RATES[0] { cost.least_ns } else { cost.each_ns };
        // What is known to be asked is not asked once the variable is set.
        let rate = if is_known { whole(at) } else { at };
        let one = |product: &&Operation<'_>| {
            let calls = product.n as f64 / step.usual_steps().max(1) as f64;
            (product.totals.rollup.clone(), each * calls * of_step * rate)
        };
        let hidden = cost.unseen.map(|_| (step.name.to_string(), cost.unseen_ns(each) * of_step * rate));
        let measured: Vec<(String, f64)> = products.iter().map(one).chain(hidden).collect();
        // In the step it takes longer than by itself, where the program measured it, and what has no span asks as well.
        let sampled: Option<Vec<_>> = asking
            .filter(|_| at > RATES[0])
            .map(|(time, gained)| time.spread(of_host(gained.at(at)) * step.lines.t).collect());
        let total = |places: &[(String, f64)]| places.iter().map(|(_, ns)| ns).sum::<f64>();
        let places = sampled.filter(|sampled| total(sampled) > total(&measured)).unwrap_or(measured);
        places.into_iter().map(|(place, ns)| Relief::Operation(place, ns)).collect()
    }));
}

/// The time in which a step asks for the number of cores, by samples, and what of it is gained without; `None` where it
/// was not sampled, or too seldom.
fn asking(host: &HostOfStep) -> Option<(&CauseTime, CountedGain)> {
    let time = host.causes.get(THREAD_COUNT)?;
    let gained = CountedGain::of(time, host.elapsed_ns);
    (!gained.rests_on_few()).then_some((time, gained))
}

/// Products that have no span: attention's with keys and with values, two a layer, where no path of attention states work.
/// Their number, and the time of a step in paths that state no work, in nanoseconds, which theirs is part of.
fn unseen_products(scene: &Scene<'_>, step: &StepScene<'_>, each_ns: f64) -> Option<(f64, f64)> {
    let own = |path: &PathTotals| path.work.is_stated();
    let paths = || scene.paths.values().filter(|path| step.has(&path.rollup) || path.rollup == step.name);
    if paths().any(|path| own(path) && reads_cache(&path.rollup)) {
        return None;
    }
    let calls = 2.0 * model_key::LAYERS.of(&scene.analysis.manifest.model)? as f64;
    let usual = step.usual?;
    let outside = paths().filter(|path| path.rollup == step.name || !own(path));
    let outside: f64 = outside.filter_map(|path| path.usual.own(usual)).map(|(share, _)| share).sum();
    let outside = outside * step.usual_median_ns()?;
    // Where there is no room for half of them, they are elsewhere.
    (outside >= 0.5 * calls * each_ns).then_some((calls, outside))
}

/// What the program measured that candle takes to find out on how many threads it computes, in nanoseconds.
fn measured_ns(analysis: &Analysis) -> Option<f64> {
    let told = analysis.verdict.findings.iter().find(|finding| finding.code == Code::RayonThreadsUnset)?;
    told.figure("each").filter(|ns| *ns > 0.0)
}

/// Whether the cause is known: the variable is not set, and this version of candle counts the cores then.
pub(super) fn is_known(manifest: &RunManifest) -> bool {
    RayonThreads::of(manifest) == RayonThreads::Unset && counts_cores(manifest)
}

/// Whether the program's candle asks for the number of physical cores at each product of dense matrices
/// (`candle_core::utils::get_num_threads`, 0.11).
fn counts_cores(manifest: &RunManifest) -> bool {
    let version = env_key::CANDLE.of(&manifest.environment);
    version.is_none_or(|version| version.starts_with("0.11"))
}
