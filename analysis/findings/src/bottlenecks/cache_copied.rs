//! A KV cache that is copied at every token: the step's time grows with the context, faster than reading explains.

use super::counted_gain::CountedGain;
use super::draft::{Draft, RuleResults};
use super::host_causes::{COPIES, CauseTime};
use super::kernel_groups::most_time;
use super::query::durations;
use super::scene::{Scene, StepScene};
use super::two_lines::Relief;
use candlescope_figures::account::{PhaseWork, PlacedKernel};
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel, Missing};
use candlescope_figures::kernel_family::KernelFamily;
use candlescope_figures::kv_bytes_of_a_token;
use candlescope_schema::metric;
use candlescope_schema::run::model_key;

/// The longest context over the shortest from which on a slope says something of the whole context: over 1,024 to 1,088
/// tokens, half a millisecond of a machine that gets slower becomes eight.
const RANGE: f64 = 1.5;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut RuleResults) {
    let code = AdviceCode::CacheCopied;
    // One in 8 bits is widened at each token, which takes longer the longer it is, and no other memory mends that.
    if !step.decodes() || model_key::KV_CACHE_DTYPE.of(&scene.analysis.manifest.model) == Some("q8") {
        return;
    }
    // It is allocated at the start already, and written in place.
    if scene.analysis.memory.host(metric::KV_ALLOCATED).is_some() {
        return;
    }
    let Some(trend) = scene.analysis.tokens.trend else { return out.abstain(code, step, Missing::Contexts) };
    let (shortest, longest) = trend.context;
    if f64::from(longest) < RANGE * f64::from(shortest) {
        return out.abstain(code, step, Missing::Contexts);
    }
    let Some(bytes) = kv_bytes_of_a_token(&scene.analysis.manifest.model) else {
        return out.abstain(code, step, Missing::Work);
    };
    // Without a peak, what the step itself reaches: at least that is possible.
    let own = step.row.gbytes.map(|giga| giga * 1e9).filter(|rate| *rate > 0.0);
    let peak = scene.roof.bandwidth().map(|peak| peak.value);
    let Some(bandwidth) = peak.or(own) else { return out.abstain(code, step, Missing::Peaks) };
    let batch = f64::from(step.series.map_or(1, |series| series.batch.max(1)));
    let reads = bytes * batch / bandwidth * 1e9;
    let excess = trend.slope_ns - trend.slope_ci95_ns - reads;
    let mean = step.mean_context().unwrap_or(0.0);
    // Attention that is slower than the memory grows, too: only a clear excess is one.
    if excess <= reads || trend.slope_ns <= 2.0 * trend.slope_ci95_ns || mean <= 0.0 {
        return;
    }
    let moved = step.work.and_then(|work| moved(step, work));
    // Wherever it is: kernels of programs without modules have no place.
    let all_moved = step.work.filter(|work| scene.on_gpu && work.steps > 0).map(|work| moving_ns(work, |_| true));
    // Its kernels were recorded, and none of them copies: attention grows by itself, as a CUDA graph for a longer
    // context does. Of SmolLM2 as graphs, which write their cache in place, 7 % were promised for writing it in place.
    if all_moved.is_some_and(|ns| ns == 0.0) {
        return;
    }
    let cache = scene.paths.keys().find(|path| step.has(path) && path.ends_with("kv_cache")).copied();
    let place = moved.and_then(|row| row.path.as_deref()).or(cache);
    let draft = Draft::new(code, step)
        .at(|at| {
            let at = place.map_or(at.clone(), |path| at.path(path));
            moved.map_or(at.clone(), |row| at.kernel(&row.name))
        })
        .steps(trend.n as u64)
        .measured("slope_ns", "ns/token", trend.slope_ns, trend.n as u64)
        .measured("slope_error_ns", "ns/token", trend.slope_ci95_ns, trend.n as u64)
        .derived("reads_ns", "ns/token", reads, 1)
        .measured("mean_context", "tokens", mean, trend.n as u64)
        .bandwidth(scene)
        .query(durations(step));
    let copied = copied(scene, step);
    let draft = match (moved, &copied) {
        (Some(_), _) => draft.sure(ConfidenceLevel::Medium, "kernels that move data were seen beside the growth"),
        (None, Some(copied)) => draft
            .derived("copied_ns", "ns", copied.ns, step.row.steps)
            .sure(ConfidenceLevel::Medium, "functions that copy were sampled beside the growth"),
        (None, None) => draft.sure(
            ConfidenceLevel::Low,
            "the growth is measured; attention that is slower than the memory grows as well",
        ),
    };
    // What moves data was seen to take so long: copying the cache takes no longer.
    let there = moved.zip(step.work).map(|(row, work)| moving_ns(work, |other| other.path == row.path));
    let most = there.or(all_moved);
    let grown = excess * mean;
    if let Some(copied) = copied.as_ref().filter(|copied| copied.is_seen() && copied.ns < grown)
        && copied.gain.rests_on_few()
    {
        return out.abstain(code, step, Missing::MoreStackSamples);
    }
    // Kernels are all recorded; of samples, the error of counting them is in the bounds.
    let gained = |rate: f64| {
        let seen = most.or(copied.as_ref().map(|copied| copied.at(rate)));
        rate * grown.min(seen.unwrap_or(f64::INFINITY))
    };
    let on_cpu = |ns: f64| -> Vec<Relief> {
        // Copying itself is another finding's (`hot_overhead`): what both say of a place counts once.
        match copied.as_ref().and_then(|copied| copied.time).filter(|time| time.ns() > 0.0) {
            Some(time) => time.spread(ns).map(|(place, ns)| Relief::Operation(place, ns)).collect(),
            None => vec![Relief::Host(ns)],
        }
    };
    out.found.push(draft.reliefs(|rate| if scene.on_gpu { shorter(step, gained(rate)) } else { on_cpu(gained(rate)) }));
}

/// What functions that copy tensors took of a step on a CPU, as its stacks were sampled, nanoseconds; `None` on a GPU
/// and without stacks. Attention that is slower than the memory makes a step grow as copying does, and no other memory
/// mends it: of SmolLM2 on two cores, whose copies took 19 % of a step, 33 % were promised by the growth alone.
fn copied<'a>(scene: &Scene<'_>, step: &'a StepScene<'_>) -> Option<CopyTime<'a>> {
    let host = step.host.as_ref().filter(|host| !scene.on_gpu && host.elapsed_ns > 0.0)?;
    let time = host.causes.get(COPIES);
    let gain = time.map(|time| CountedGain::of(time, host.elapsed_ns)).unwrap_or_default();
    let of_step = step.lines.t / host.elapsed_ns;
    Some(CopyTime { ns: gain.ns * of_step, gain, of_step, time })
}

/// Time in functions that copy tensors.
struct CopyTime<'a> {
    /// In a step, nanoseconds.
    ns: f64,
    /// In all steps that were sampled, with the error of counting it.
    gain: CountedGain,
    /// Nanoseconds of a step for each of all steps.
    of_step: f64,
    /// By path; `None` if no such function was seen.
    time: Option<&'a CauseTime>,
}

impl CopyTime<'_> {
    fn is_seen(&self) -> bool {
        self.ns > 0.0
    }

    /// In a step, nanoseconds, at a part of the attainable rate: between the ends of what was counted.
    fn at(&self, rate: f64) -> f64 {
        self.gain.at(rate) * self.of_step
    }
}

/// A step on a GPU that takes `ns` less, as it grew by that: the copies are on the device's line, and what the line
/// does not explain is in the time in which the device is idle.
fn shorter(step: &StepScene<'_>, ns: f64) -> Vec<Relief> {
    let (t, device) = (step.lines.t, step.lines.device_ns());
    let by_device = t - step.lines.after(&[Relief::Device(ns)]);
    let idle = (ns - by_device).clamp(0.0, (t - device).max(0.0));
    vec![Relief::Device(ns), Relief::Wait(step.name.to_string(), idle)]
}

/// Nanoseconds of a step in kernels that move data, of those that fit.
fn moving_ns(work: &PhaseWork, fits: impl Fn(&PlacedKernel) -> bool) -> f64 {
    let moves = work.rows.iter().filter(|row| KernelFamily::of(&row.name) == KernelFamily::Move && fits(row));
    moves.map(|row| row.ns).sum::<u64>() as f64 / work.steps.max(1) as f64
}

/// The kernels that move most at or in the cache; if none do, at or in attention. Others may move anything.
fn moved<'a>(step: &StepScene<'_>, work: &'a PhaseWork) -> Option<&'a PlacedKernel> {
    let within = |cache_only: bool| {
        let fits = move |row: &&PlacedKernel| {
            let inside =
                row.path.as_deref().filter(|path| step.has(path)).into_iter().flat_map(|path| path.split(['/', '.']));
            let mut inside = inside.skip(1);
            KernelFamily::of(&row.name) == KernelFamily::Move
                && inside.any(|name| name.contains("cache") || (!cache_only && name.contains("att")))
        };
        let place = most_time(work.rows.iter().filter(fits))?;
        // Rows are in order of their time.
        work.rows.iter().filter(fits).find(|row| row.path.as_deref() == Some(place))
    };
    within(true).or_else(|| within(false))
}
