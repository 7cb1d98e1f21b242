//! Padding, and sequences that have ended, in a batch.

use super::draft::{Draft, RuleResults};
use super::query::steps_of;
use super::scene::{Scene, StepScene};
use super::two_lines::Relief;
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel, Missing};

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut RuleResults) {
    let code = AdviceCode::Padding;
    let Some(series) = step.series else { return };
    if series.batch <= 1 {
        return;
    }
    let Some((computed, new)) = series.computed_tokens.zip(series.new_tokens).filter(|(all, _)| *all > 0) else {
        return out.abstain(code, step, Missing::NewTokens);
    };
    let padded = 1.0 - new as f64 / computed as f64;
    if padded <= 0.0 {
        return;
    }
    let n = series.points.len() as u64;
    let draft = Draft::new(code, step)
        .steps(n)
        .measured("computed_tokens", "tokens", computed as f64, n)
        .measured("new_tokens", "tokens", new as f64, n)
        .derived("padded", "ratio", padded, n)
        .query(format!(
            "SELECT run, count(*) AS steps, CAST(sum(tokens) AS BIGINT) AS computed_tokens, \
             CAST(sum(new_tokens) AS BIGINT) AS new_tokens FROM measured_steps WHERE (run, step) IN {} GROUP BY run",
            steps_of(step)
        ));
    let draft = if step.decodes() {
        draft.sure(
            ConfidenceLevel::Low,
            "a decoding step reads the weights however few sequences it has: the gain is rather less",
        )
    } else {
        draft.sure(ConfidenceLevel::Medium, "time is taken to be in proportion to tokens")
    };
    let device = step.lines.device_ns();
    out.found.push(draft.relief(|rate| {
        if scene.on_gpu && device > 0.0 {
            Relief::Device(device * padded * rate)
        } else {
            Relief::Undone(padded * rate)
        }
    }));
}
