//! Reading the KV cache, far from the memory's rate.

use super::draft::{Draft, Out};
use super::operations::{Operation, lacking, operations};
use super::scene::{Scene, StepScene};
use super::unfused::shortest;
use crate::advice::{AdviceCode, ConfidenceLevel, Missing};

/// Below this share of the bandwidth reading is slow.
const SLOW: f64 = 0.6;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut Out) {
    let code = AdviceCode::KvBandwidth;
    if !step.decodes() {
        return;
    }
    let all = operations(scene, step);
    if let Some(missing) = lacking(scene, step, &all) {
        return out.abstain(code, step, missing);
    }
    let reading: Vec<&Operation<'_>> = all.iter().filter(|one| one.reads_cache()).collect();
    let Some(most) = reading.first() else { return out.abstain(code, step, Missing::Work) };
    let Some((bandwidth, _)) = scene.roof.bandwidth else { return };
    let sum = |value: fn(&Operation<'_>) -> f64| reading.iter().map(|one| value(one)).sum::<f64>();
    let (ns, bytes, kernels) = (sum(|one| one.ns), sum(|one| one.bytes.unwrap_or(0.0)), sum(|one| one.kernels));
    let eff = bytes / ns * 1e9 / bandwidth;
    if eff >= SLOW {
        return;
    }
    let least = (step.work.map_or(0.0, shortest) * kernels / ns).min(1.0);
    let rows: Vec<usize> = reading.iter().flat_map(|one| one.rows.iter().copied()).collect();
    let draft = Draft::new(code, step)
        .at(|place| place.path(&most.totals.rollup))
        .measured("time_ns", "ns", ns, most.n)
        .derived("kv_bytes", "bytes", bytes, most.n)
        .derived("of_bandwidth", "ratio", eff, most.n)
        .bandwidth(scene)
        .query(most.query(step))
        .sure(
            ConfidenceLevel::Medium,
            "the bytes are what the model needs; a short context cannot fill the memory's rate",
        );
    let draft = if scene.on_gpu { draft } else { draft.steps(step.row.steps) };
    out.found.push(draft.change(|rate| {
        let share = (eff / rate).max(least).min(1.0);
        if rows.is_empty() {
            super::gains::Change::Host(ns * (1.0 - share))
        } else {
            super::gains::Change::Scale(rows.clone(), share)
        }
    }));
}
