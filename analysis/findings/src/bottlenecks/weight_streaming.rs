//! Weights are read at nearly the memory's rate: smaller weights are the only way to be faster.

use super::draft::{Draft, RuleResults};
use super::operations::{Operation, lacking, one_row_of_f32, operations, query};
use super::scene::{Scene, StepScene};
use super::unfused::shortest;
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel};
use candlescope_schema::run::env_key;

/// From this share of the bandwidth on, reading is near its roof.
const NEAR: f64 = 0.5;
/// The same where one thread of several computes, which cannot use all of the rate: in a run of SmolLM2 on two cores it
/// reached 38 to 57 %, and 8-bit weights took the step to 26 % either way.
const NEAR_OF_ONE_THREAD: f64 = 0.25;
/// Weights of fewer bytes stay in the caches of a processor, whose rate is not the memory's: the built-in model's 0.75
/// MiB were "read at 86 % of it", and 8 bits in place of 32 gained nothing (−4 % ± 28 %, 37 pairs).
pub const STREAMED_BYTES: u64 = 16 << 20;
/// Bits of a weight in GGML's 4-bit formats, their scales included.
const FOUR_BIT: f64 = 4.5;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut RuleResults) {
    let code = AdviceCode::WeightStreaming;
    if !step.decodes() {
        return;
    }
    let all = operations(scene, step);
    if let Some(missing) = lacking(scene, step, &all) {
        return out.abstain(code, step, missing);
    }
    let by_memory = |one: &&Operation<'_>| {
        one.reads_weights() && one.under(scene, step).is_some_and(|(share, limit)| limit.is_bandwidth() && share <= 1.0)
    };
    let reading: Vec<&Operation<'_>> = all.iter().filter(by_memory).collect();
    let Some(most) = reading.first() else { return };
    let Some(bandwidth) = scene.roof.bandwidth().map(|peak| peak.value) else { return };
    let sum = |value: fn(&Operation<'_>) -> f64| reading.iter().map(|one| value(one)).sum::<f64>();
    let measured = sum(|one| one.measured_ns);
    let ns = sum(|one| one.held_ns());
    let (bytes, kernels) = (sum(|one| one.bytes.unwrap_or(0.0)), sum(|one| one.kernels));
    let (eff, bits) = (bytes / ns * 1e9 / bandwidth, scene.weight_bits());
    if !scene.on_gpu && bytes < STREAMED_BYTES as f64 {
        return;
    }
    let near = if is_of_one_thread(scene, &reading) { NEAR_OF_ONE_THREAD } else { NEAR };
    let Some(bits) = bits.filter(|bits| eff >= near && *bits > FOUR_BIT + 1.0) else { return };
    let least = (step.work.map_or(0.0, shortest) * kernels / ns).min(1.0);
    // 8 bits a weight, but for the best case and for weights that have that already.
    let to_bits = |rate: f64| if rate < 1.0 && bits > 9.0 { 8.0 } else { FOUR_BIT };
    let draft = Draft::new(code, step)
        .at(|place| place.path(&most.totals.rollup))
        .measured("time_ns", "ns", measured, most.n)
        .derived("weight_bytes", "bytes", bytes, most.n)
        .derived("of_bandwidth", "ratio", eff, most.n)
        .derived("bits", "bits", bits, 1)
        .derived("to_bits", "bits", to_bits(0.875), 1)
        .bandwidth(scene)
        .query(query(scene, step, &reading))
        .sure(
            ConfidenceLevel::Medium,
            "time in proportion to bytes; products of quantised weights may compute for longer",
        );
    let draft = if scene.on_gpu { draft } else { draft.steps(step.usual_steps()) };
    out.found.push(draft.reliefs(|rate| {
        let share = (to_bits(rate) / bits / rate).max(least).min(1.0);
        reading.iter().map(|one| one.with_less_to_do(rate, share)).collect()
    }));
}

/// Whether most of the time is that of one thread while others could compute, too.
fn is_of_one_thread(scene: &Scene<'_>, reading: &[&Operation<'_>]) -> bool {
    let threads = env_key::COMPUTE_THREADS.of(&scene.analysis.manifest.environment);
    let ns = |of: &dyn Fn(&Operation<'_>) -> bool| reading.iter().filter(|one| of(one)).map(|one| one.ns).sum::<f64>();
    !scene.on_gpu && threads.is_some_and(|threads| threads > 1) && ns(&one_row_of_f32) > 0.5 * ns(&|_| true)
}
