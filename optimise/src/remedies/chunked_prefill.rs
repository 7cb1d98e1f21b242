//! Prompts in smaller pieces between the steps of requests that generate.
//!
//! Nothing is promised of it. Those that generate wait less for a piece, and each prompt's first token comes later, so that a
//! request may keep one limit more and another one less: how many keep all of them depends on when each comes, and a run with one
//! length of pieces has no lower bound of it that is a gain.

use super::remedy::{Attempt, Remedy, State};
use crate::setting::Change;

/// Parts of the present piece.
const PARTS: [u64; 2] = [2, 4];
/// Fewest tokens of a piece: with fewer, a step takes as long as with these.
const LEAST: u64 = 16;

pub(super) const REMEDY: Remedy = Remedy {
    name: "chunked_prefill",
    title: "Prompts in smaller pieces (chunked prefill)",
    cost: "a prompt takes longer, and its first token comes later",
    attempts,
};

fn attempts(state: &State<'_>) -> Result<Vec<Attempt>, &'static str> {
    if !state.facts.is_continuous {
        return Err(
            "requests come one after the other, and none waits for another's prompt: `--concurrency` lets several be under way",
        );
    }
    if !state.goal.counts_requests() {
        return Err("a prompt in pieces is no less work: the goal `goodput` tries it");
    }
    let Some(longest) = state.facts.held_up_by else {
        return Err("requests that generate hardly wait for prompts of others");
    };
    let attempt = |piece: u64| {
        let change = Change::default().option("prompt-piece", piece);
        // Sums are in another order.
        Attempt::new(change).answers(state.of_another_order()).of_other_steps()
    };
    let pieces = PARTS.into_iter().map(|part| longest / part).filter(|piece| *piece >= LEAST);
    let all: Vec<Attempt> = pieces.map(attempt).collect();
    if all.is_empty() { Err("pieces of prompts are short already") } else { Ok(all) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;
    use crate::goal::{Aim, Goal};
    use candlescope_core::run::RunManifest;
    use candlescope_figures::advice::Diagnosis;

    #[test]
    fn pieces_get_shorter_where_requests_waited_and_are_counted() {
        let diagnosis = Diagnosis::default();
        let of = |is_continuous, held_up_by, aim| {
            let facts = Facts { is_continuous, held_up_by, ..Facts::of(&RunManifest::default()) };
            let goal = Goal { aim, ..Goal::default() };
            let attempts = attempts(&State { facts: &facts, goal: &goal, diagnosis: &diagnosis });
            attempts.map(|all| all.iter().map(|attempt| attempt.change.words()).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(of(true, Some(256), Aim::Goodput), Ok("--prompt-piece=128 --prompt-piece=64".into()));
        assert_eq!(of(true, Some(40), Aim::Goodput), Ok("--prompt-piece=20".into()));
        assert!(of(true, Some(24), Aim::Goodput).is_err_and(|why| why.contains("short already")));
        assert!(of(true, None, Aim::Goodput).is_err_and(|why| why.contains("hardly wait")));
        assert!(of(true, Some(256), Aim::Throughput).is_err_and(|why| why.contains("`goodput`")));
        assert!(of(false, Some(256), Aim::Goodput).is_err_and(|why| why.contains("--concurrency")));
    }
}
