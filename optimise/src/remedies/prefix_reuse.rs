//! The beginning that prompts share, computed once.

use super::remedy::{Attempt, Remedy, State};
use crate::setting::Change;
use candlescope_figures::advice::AdviceCode;

pub(super) const REMEDY: Remedy = Remedy {
    name: "prefix_reuse",
    title: "What prompts begin with is computed once (prompt-prefix reuse)",
    cost: "memory for the longest context of every slot, which keeps what its last request left",
    attempts,
};

fn attempts(state: &State<'_>) -> Result<Vec<Attempt>, &'static str> {
    let facts = state.facts;
    match () {
        () if facts.reuses_prefixes => Err("what slots hold is reused already"),
        () if !facts.is_ours => Err("only our layers hold requests in slots"),
        () if facts.speculates => Err("tokens that are looked up are checked in a cache that grows"),
        () if facts.batch > 1 => Err("requests of several sequences do not join and leave between steps"),
        () if state.findings(&[AdviceCode::PrefixRecomputed]).next().is_none() => {
            Err("prompts do not begin alike, or there is one for all requests")
        }
        () => {
            let change = Change::default().option("prefix-reuse", true);
            // A slot keeps from one request to the next what it holds.
            let change = if facts.is_continuous { change } else { change.option("concurrency", 1) };
            // A prompt that is passed in two parts is summed in another order; and its steps are shorter, or others: slots take
            // prompts in pieces.
            let attempt = Attempt::new(change).answers(state.of_another_order()).of_other_steps();
            Ok(vec![attempt.obtains(&[AdviceCode::PrefixRecomputed])])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;
    use crate::goal::Goal;
    use candlescope_core::run::RunManifest;
    use candlescope_figures::advice::{
        Advice, AdvicePlace, AdviceSeverity, Confidence, ConfidenceLevel, Coverage, Diagnosis,
    };
    use candlescope_work::estimate::Estimate;

    fn found() -> Diagnosis {
        let advice = Advice {
            code: AdviceCode::PrefixRecomputed,
            severity: AdviceSeverity::Low,
            place: AdvicePlace::of("prefill"),
            evidence: Vec::new(),
            query: String::new(),
            coverage: Coverage { steps: 20, share_of_time: 0.5 },
            gain: Estimate { low: 0.3, mid: 0.4, high: 0.5 },
            confidence: Confidence { level: ConfidenceLevel::High, reason: "made" },
            disturbed: false,
            record: None,
        };
        Diagnosis { findings: vec![advice], ..Diagnosis::default() }
    }

    #[test]
    fn a_finding_leads_to_slots_that_keep_what_they_hold() {
        let of = |facts: Facts, diagnosis: &Diagnosis| {
            let goal = Goal::default();
            let attempts = attempts(&State { facts: &facts, goal: &goal, diagnosis });
            let said = |all: Vec<Attempt>| {
                assert!(all.iter().all(|attempt| attempt.other_steps), "requests decide: {all:?}");
                all.iter().map(|attempt| attempt.change.words()).collect::<Vec<_>>()
            };
            attempts.map(said)
        };
        let facts = Facts { is_ours: true, ..Facts::of(&RunManifest::default()) };
        assert_eq!(of(facts.clone(), &found()), Ok(vec!["--concurrency=1 --prefix-reuse=true".to_string()]));
        let continuous = Facts { is_continuous: true, has_slots: true, ..facts.clone() };
        assert_eq!(of(continuous.clone(), &found()), Ok(vec!["--prefix-reuse=true".to_string()]));
        assert!(of(continuous.clone(), &Diagnosis::default()).is_err_and(|why| why.contains("do not begin alike")));
        assert!(of(Facts { reuses_prefixes: true, ..continuous }, &found()).is_err());
        assert!(of(Facts { batch: 2, ..facts }, &found()).is_err());
    }
}
