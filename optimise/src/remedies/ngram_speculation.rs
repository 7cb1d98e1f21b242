//! Tokens that are looked up in the text itself, several of them checked in one pass.

use super::remedy::{Answers, Attempt, Remedy, State};
use crate::setting::Change;

/// The share of decoding steps that has to be saved: a step that checks several tokens takes longer than one.
const LEAST: f64 = 0.15;

pub(super) const REMEDY: Remedy = Remedy {
    name: "ngram_speculation",
    title: "Tokens looked up in the text, several checked in a step (n-gram speculation)",
    cost: "a step whose guess is wrong takes longer for nothing",
    attempts,
};

fn attempts(state: &State<'_>) -> Result<Vec<Attempt>, &'static str> {
    let facts = state.facts;
    match facts.lookup {
        _ if facts.speculates => Err("tokens are looked up already"),
        _ if !facts.is_ours => Err("only our layers check several tokens at once"),
        _ if facts.has_slots => Err("a step of slots passes one token of each"),
        _ if facts.batch > 1 => Err("sequences of a batch would go on at different places"),
        None => Err("the run does not say how far texts repeat themselves, or tokens are drawn"),
        Some(lookup) if lookup.saved < LEAST => Err("texts hardly repeat themselves or their prompts"),
        Some(lookup) => {
            // In another order of sums, only rounding to fewer bits makes another token the most likely one.
            let answers = if facts.dtype.as_deref() == Some("f32") { Answers::Same } else { Answers::Rounded };
            let change = Change::default().option("speculate", lookup.ahead);
            Ok(vec![Attempt::new(change).answers(answers).looks_up().of_other_steps()])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;
    use crate::goal::Goal;
    use crate::lookup_facts::Lookup;
    use candlescope_core::run::RunManifest;
    use candlescope_figures::advice::Diagnosis;
    use serde_json::json;

    #[test]
    fn texts_that_repeat_themselves_lead_to_it() {
        let of = |facts: Facts| {
            let (goal, diagnosis) = (Goal::default(), Diagnosis::default());
            let attempts = attempts(&State { facts: &facts, goal: &goal, diagnosis: &diagnosis });
            let said = |attempt: &Attempt| (attempt.change.words(), attempt.other_steps && attempt.looks_up);
            attempts.map(|all| all.iter().map(said).collect::<Vec<_>>())
        };
        let mut manifest = RunManifest::default();
        manifest.results.insert("ngram_lookup".into(), json!({ "ahead": 4, "tokens": 100, "steps": 40 }));
        let facts = Facts { is_ours: true, ..Facts::of(&manifest) };
        let lookup = facts.lookup.expect("the run says it");
        assert_eq!(of(facts.clone()), Ok(vec![("--speculate=4".to_string(), true)]));
        let little = Some(Lookup { saved: 0.1, ..lookup });
        assert!(of(Facts { lookup: little, ..facts.clone() }).is_err_and(|why| why.contains("hardly repeat")));
        assert!(of(Facts { lookup: None, ..facts.clone() }).is_err_and(|why| why.contains("does not say")));
        for other in [
            Facts { has_slots: true, ..facts.clone() },
            Facts { batch: 4, ..facts.clone() },
            Facts { speculates: true, ..facts.clone() },
            Facts { is_ours: false, ..facts.clone() },
        ] {
            assert!(of(other.clone()).is_err(), "{other:?}");
        }
    }
}
