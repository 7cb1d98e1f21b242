//! No KV cache: the whole text is processed again for each token.

use super::draft::{Draft, RuleResults};
use super::operations::{Operation, operations, query};
use super::scene::{Scene, StepScene};
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel, RATES};

/// From so many rows a sequence on, a decoding step computes more than its token: drafts that are checked together are
/// fewer.
const ROWS: f64 = 16.0;
/// And at least this share of the context.
const OF_CONTEXT: f64 = 0.5;
/// The share of the memory's rate at which one row's weights are read at worst: that of one thread of several
/// (`weight_streaming`).
const SLOWEST_READING: f64 = 0.25;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut RuleResults) {
    if !step.decodes() {
        return;
    }
    let Some(bits) = scene.weight_bits() else { return };
    let all = operations(scene, step);
    let products: Vec<&Operation<'_>> = all.iter().filter(|one| one.reads_weights()).collect();
    // A row of a product takes two FLOPs a weight.
    let rows_of = |one: &Operation<'_>| {
        let (flops, bytes) = one.flops.zip(one.bytes).filter(|(flops, bytes)| *flops > 0.0 && *bytes > 0.0)?;
        Some(flops / (2.0 * bytes * 8.0 / bits))
    };
    let mut rows: Vec<f64> = products.iter().filter_map(|one| rows_of(one)).collect();
    rows.sort_by(f64::total_cmp);
    let Some(rows) = rows.get(rows.len() / 2).copied() else { return };
    // A new token of each sequence, where steps say it, or a batch.
    let n = step.row.steps;
    let new = step.series.and_then(|series| series.new_tokens).map_or(0.0, |new| new as f64 / n.max(1) as f64);
    let batch = f64::from(step.series.map_or(1, |series| series.batch.max(1))).max(new);
    let Some(context) = step.mean_context() else { return };
    if rows < ROWS * batch || rows < OF_CONTEXT * context * batch {
        return;
    }
    let bandwidth = scene.roof.bandwidth().map(|peak| peak.value);
    let again: Vec<&Operation<'_>> = all.iter().collect();
    let draft = Draft::new(AdviceCode::Recomputed, step)
        .steps(if scene.on_gpu { n } else { step.usual_steps() })
        .derived("rows", "tokens", rows / batch, n)
        .derived("mean_context", "tokens", context, n)
        .bandwidth(scene)
        .query(query(scene, step, &again));
    let draft = match bandwidth {
        Some(_) => draft.sure(
            ConfidenceLevel::Medium,
            "what one row takes is reckoned from the bytes of the weights, not measured",
        ),
        None => draft.sure(ConfidenceLevel::Low, "without the memory's rate, reading the weights is not in it"),
    };
    out.found.push(draft.reliefs(|rate| {
        // At the lowest rate weights are read by a slow reader, at the highest with all of the memory's.
        let reading = 1.0 - (1.0 - rate) * (1.0 - SLOWEST_READING) / (1.0 - RATES[0]);
        let share = |one: &Operation<'_>| {
            let bytes = one.bytes.filter(|_| one.reads_weights()).unwrap_or(0.0);
            let read = bandwidth.map_or(0.0, |bandwidth| bytes / (bandwidth * reading) * 1e9);
            // The head of a prompt has the logits of its last token alone.
            let rows = rows_of(one).filter(|_| one.reads_weights()).unwrap_or(rows).max(batch);
            (batch / rows).max(read / one.held_ns()).min(1.0)
        };
        again.iter().map(|one| one.with_less_to_do(rate, share(one))).collect()
    }));
}
