//! Reading the KV cache, far from the memory's rate.

use super::draft::{Draft, RuleResults};
use super::operations::{Operation, lacking, operations, query};
use super::scene::{Scene, StepScene};
use super::unfused::shortest;
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel, Missing};

/// Below this share of the bandwidth reading is slow.
const SLOW: f64 = 0.6;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut RuleResults) {
    let code = AdviceCode::KvBandwidth;
    if !step.decodes() {
        return;
    }
    let all = operations(scene, step);
    if let Some(missing) = lacking(scene, step, &all) {
        return out.abstain(code, step, missing);
    }
    let mut reading: Vec<&Operation<'_>> = all.iter().filter(|one| one.reads_cache()).collect();
    if reading.is_empty() {
        return out.abstain(code, step, Missing::Work);
    }
    // What waits for a constant cost has a finding of its own.
    reading.retain(|one| step.constant.as_ref().is_none_or(|cost| !cost.explains(&one.totals.rollup)));
    let Some(most) = reading.first() else { return };
    let Some(bandwidth) = scene.roof.bandwidth().map(|peak| peak.value) else { return };
    let sum = |value: fn(&Operation<'_>) -> f64| reading.iter().map(|one| value(one)).sum::<f64>();
    let measured = sum(|one| one.measured_ns);
    let ns = sum(|one| one.held_ns());
    let (bytes, kernels) = (sum(|one| one.bytes.unwrap_or(0.0)), sum(|one| one.kernels));
    let eff = bytes / ns * 1e9 / bandwidth;
    if eff >= SLOW {
        return;
    }
    let least = (step.work.map_or(0.0, shortest) * kernels / ns).min(1.0);
    let draft = Draft::new(code, step)
        .at(|place| place.path(&most.totals.rollup))
        .measured("time_ns", "ns", measured, most.n)
        .derived("kv_bytes", "bytes", bytes, most.n)
        .derived("of_bandwidth", "ratio", eff, most.n)
        .bandwidth(scene)
        .query(query(scene, step, &reading))
        .sure(
            ConfidenceLevel::Medium,
            "the bytes are what the model needs; a short context cannot fill the memory's rate",
        );
    let draft = if scene.on_gpu { draft } else { draft.steps(step.usual_steps()) };
    out.found.push(draft.reliefs(|rate| {
        let share = (eff / rate).max(least).min(1.0);
        reading.iter().map(|one| one.scaled(rate, share)).collect()
    }));
}
