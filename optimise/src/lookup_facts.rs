//! What a run says of texts that repeat themselves, and of how much of its requests' time their decoding takes.

use candlescope_core::Phase;
use candlescope_core::run::{RunManifest, result_key};
use candlescope_figures::{Analysis, RequestFigures};
use candlescope_work::estimate::Estimate;
use serde_json::Value;

/// How many decoding steps the texts of a run would take if tokens were looked up in them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Lookup {
    /// Tokens that are looked up at once, at most.
    pub(crate) ahead: u32,
    /// The share of decoding steps that this saves all texts together.
    pub(crate) saved: f64,
    /// The steps that are left; `None` where the run does not say how many of them check tokens.
    pub(crate) left: Option<StepsLeft>,
}

/// Steps that are left of all texts, for each token that is decoded: 1 where none is looked up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct StepsLeft {
    /// All steps that are left, those that check tokens included.
    pub(crate) steps: f64,
    /// Those among them that check tokens, and take longer for it.
    pub(crate) checks: f64,
}

impl Lookup {
    /// What a run says; `None` where it does not, or tokens are drawn.
    pub(crate) fn of(manifest: &RunManifest) -> Option<Self> {
        let lookup = result_key::NGRAM_LOOKUP.of(&manifest.results)?;
        let of = |name: &str| lookup.get(name).and_then(Value::as_u64);
        let (ahead, tokens, steps) = (of("ahead")?, of("tokens").filter(|tokens| *tokens > 0)?, of("steps")?);
        let each = |steps: u64| steps as f64 / tokens as f64;
        let checks = of("checks").filter(|checks| *checks <= steps && 0 < steps);
        let left = checks.map(|checks| StepsLeft { steps: each(steps), checks: each(checks) });
        let ahead = u32::try_from(ahead).ok().filter(|ahead| *ahead > 0)?;
        Some(Self { ahead, saved: 1.0 - each(steps), left })
    }
}

/// The share of the requests' time that their decoding steps take, all requests together; at most that is what lies behind
/// their first tokens, between these steps, too. `None` where no request says when its tokens came.
pub(crate) fn decoding_share(analysis: &Analysis) -> Option<Estimate> {
    let row = analysis.phases.rows.iter().find(|row| row.is_phase && row.name == Phase::Decode.as_str())?;
    let step_ns = row.duration.as_ref()?.median;
    share(analysis.latency.requests.iter().filter(|request| !request.warmup), step_ns)
}

/// The same of these requests, of which a decoding step takes so many nanoseconds.
fn share<'a>(requests: impl Iterator<Item = &'a RequestFigures>, step_ns: f64) -> Option<Estimate> {
    let (mut all, mut steps, mut behind) = (0.0, 0.0, 0.0);
    for request in requests {
        let (Some(e2e), Some(ttft)) = (request.e2e_ns, request.ttft_ns) else { continue };
        let rest = e2e.saturating_sub(ttft) as f64;
        all += e2e as f64;
        behind += rest;
        // One token has no step behind the prompt's.
        let Some(tpot) = request.tpot_ns.filter(|ns| *ns > 0.0) else { continue };
        steps += match &request.parts {
            Some(parts) => (parts.decode_ns as f64).min(rest),
            // Some of its steps have no record.
            None => rest * (step_ns / tpot).min(1.0),
        };
    }
    (steps > 0.0).then(|| Estimate { low: steps / all, mid: steps / all, high: behind / all })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(lookup: Value) -> Option<Lookup> {
        let mut manifest = RunManifest::default();
        manifest.results.insert("ngram_lookup".into(), lookup);
        Lookup::of(&manifest)
    }

    #[test]
    fn steps_are_told_for_each_token() {
        let told = json!({ "ahead": 4, "tokens": 100, "steps": 40, "checks": 30 });
        let found = of(told.clone()).unwrap();
        assert_eq!((found.ahead, found.left), (4, Some(StepsLeft { steps: 0.4, checks: 0.3 })));
        assert!((found.saved - 0.6).abs() < 1e-12, "{found:?}");
        // A run of before says no more than how many steps are left, and more checks than steps tell nothing.
        let old = of(json!({ "ahead": 4, "tokens": 100, "steps": 40 })).unwrap();
        assert_eq!((old.left, old.saved), (None, found.saved));
        let mut wrong = told;
        wrong["checks"] = json!(41);
        assert_eq!(of(wrong).unwrap().left, None);
        for nothing in [json!({ "ahead": 4, "tokens": 0, "steps": 0 }), json!({ "ahead": 0, "tokens": 9, "steps": 9 })]
        {
            assert_eq!(of(nothing.clone()), None, "{nothing}");
        }
    }

    #[test]
    fn what_lies_between_steps_is_no_part_of_them() {
        let request = RequestFigures {
            e2e_ns: Some(1_000),
            ttft_ns: Some(200),
            tpot_ns: Some(100.0),
            ..RequestFigures::default()
        };
        let of = |requests: &[RequestFigures], step_ns: f64| share(requests.iter(), step_ns);
        // Of the eight tenths behind the first token nine tenths are steps.
        let found = of(std::slice::from_ref(&request), 90.0).unwrap();
        for (is, right) in [(found.low, 0.72), (found.mid, 0.72), (found.high, 0.8)] {
            assert!((is - right).abs() < 1e-12, "{found:?}");
        }
        // A step is no longer than what its token takes.
        assert_eq!(of(std::slice::from_ref(&request), 400.0).map(|found| found.mid), Some(0.8));
        // A long request with one token counts by its time, and alone there is nothing to save.
        let prompt = RequestFigures { e2e_ns: Some(7_000), ttft_ns: Some(7_000), ..RequestFigures::default() };
        let found = of(&[request, prompt.clone()], 90.0).unwrap();
        assert!((found.mid - 0.09).abs() < 1e-12 && (found.high - 0.1).abs() < 1e-12, "{found:?}");
        assert_eq!(of(&[prompt], 90.0), None);
    }
}
