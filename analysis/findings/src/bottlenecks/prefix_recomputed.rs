//! Prompts begin alike, and what they share is computed again for each.

use super::draft::{Draft, RuleResults};
use super::query::steps_of;
use super::scene::{Scene, StepScene};
use super::two_lines::Relief;
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel};
use candlescope_schema::Phase;
use candlescope_schema::run::result_key;
use serde_json::{Map, Value};

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut RuleResults) {
    if step.name != Phase::Prefill.as_str() {
        return;
    }
    let Some(shared) = result_key::PROMPT_SHARING.of(&scene.analysis.manifest.results).and_then(left) else { return };
    let Some(series) = step.series else { return };
    let Some(passed) = series.computed_tokens.filter(|tokens| *tokens > 0) else { return };
    let n = series.points.len() as u64;
    let draft = Draft::new(AdviceCode::PrefixRecomputed, step)
        .steps(n)
        .measured("passed_tokens", "tokens", passed as f64, n)
        .derived("shared", "ratio", shared, n)
        .query(format!(
            "SELECT run, count(*) AS steps, CAST(sum(tokens) AS BIGINT) AS passed_tokens FROM measured_steps WHERE (run, step) \
             IN {} GROUP BY run",
            steps_of(step)
        ))
        .sure(
            ConfidenceLevel::Medium,
            "time is taken to be in proportion to tokens, and requests to end in the order in which they came",
        );
    let device = step.lines.device_ns();
    out.found.push(draft.relief(|rate| {
        if scene.on_gpu && device > 0.0 {
            Relief::Device(device * shared * rate)
        } else {
            Relief::Undone(shared * rate)
        }
    }));
}

/// The share of the tokens that are passed now which a slot could hold; `None` if there are none.
fn left(sharing: &Map<String, Value>) -> Option<f64> {
    let of = |name: &str| sharing.get(name).and_then(Value::as_f64);
    let (tokens, shared, reused) = (of("tokens")?, of("shared")?, of("reused")?);
    let share = (shared - reused) / (tokens - reused);
    (share.is_finite() && share > 0.0).then_some(share.min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_reused_already_is_no_gain_any_more() {
        let of = |sharing: Value| left(sharing.as_object().unwrap());
        assert_eq!(of(json!({ "tokens": 400, "shared": 300, "reused": 0 })), Some(0.75));
        assert_eq!(of(json!({ "tokens": 400, "shared": 300, "reused": 200 })), Some(0.5));
        assert_eq!(of(json!({ "tokens": 400, "shared": 300, "reused": 300 })), None);
        assert_eq!(of(json!({ "tokens": 400, "shared": 0, "reused": 0 })), None);
        assert_eq!(of(json!({ "tokens": 400, "shared": 300, "reused": 400 })), None);
        assert_eq!(of(json!({ "shared": 300 })), None);
    }
}
