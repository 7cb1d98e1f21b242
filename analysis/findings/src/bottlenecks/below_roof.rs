//! Operations far below what the device allows them.

use super::draft::{Draft, RuleResults};
use super::operations::{Operation, lacking, operations, query};
use super::scene::{Scene, StepScene};
use super::unfused::shortest;
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel, Missing};
use candlescope_work::devices::Origin;

/// Below this share of the attainable rate an operation is far below its roof.
const FAR: f64 = 0.5;
/// Findings of one kind of step.
const MOST: usize = 8;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut RuleResults) {
    let code = AdviceCode::BelowRoof;
    let all = operations(scene, step);
    if let Some(missing) = lacking(scene, step, &all) {
        return out.abstain(code, step, missing);
    }
    let under: Vec<_> = all.iter().filter_map(|one| Some((one, one.under(scene, step)?))).collect();
    if under.is_empty() {
        return out.abstain(code, step, Missing::Peaks);
    }
    let floor = step.work.map_or(0.0, shortest);
    // Reading the KV cache has a finding of its own. Above the roof, the figures contradict each other.
    // Where a product waits for a constant cost, what it computes with is not what makes it slow.
    let waits = |one: &Operation<'_>| step.constant.as_ref().is_some_and(|cost| cost.explains(&one.totals.rollup));
    let far = under.into_iter().filter(|(one, (share, _))| !one.reads_cache() && !waits(one) && *share < FAR);
    let mean = step.usual_mean_ns().filter(|_| !scene.on_gpu);
    for (one, (share, limit)) in far.take(MOST) {
        let least = (floor * one.kernels / one.ns).min(1.0);
        let draft = Draft::new(code, step)
            .at(|place| match one.kernel(step) {
                Some(kernel) => place.path(&one.totals.rollup).kernel(&kernel),
                None => place.path(&one.totals.rollup),
            })
            .measured("time_ns", "ns", one.measured_ns, one.n)
            .measured_if("share", "ratio", mean.map(|mean| one.measured_ns / mean), one.n)
            .derived_if("usual_share", "ratio", one.recorded.map(|(_, share)| share), one.n)
            .derived("of_roof", "ratio", share, one.n)
            .derived("flops", "FLOP", one.flops.unwrap_or(0.0), one.n)
            .derived("bytes", "bytes", one.io_bytes.or(one.bytes).unwrap_or(0.0), one.n)
            .bandwidth(scene)
            .query(query(scene, step, &[one]));
        let draft = match limit.origin() {
            Origin::Measured => draft.sure(ConfidenceLevel::Medium, "held against a measured peak of this device"),
            Origin::Datasheet => {
                draft.sure(ConfidenceLevel::Low, "held against the datasheet, which no kernel reaches")
            }
        };
        let draft = if scene.on_gpu { draft } else { draft.steps(step.usual_steps()) };
        out.found.push(draft.relief(|rate| one.scaled(rate, (share / rate).max(least).min(1.0))));
    }
}
