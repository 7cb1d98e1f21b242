//! More sequences at once.

use super::remedy::{Answers, Attempt, Remedy, State};
use crate::setting::Change;
use candlescope_predict::simulation::Change as Simulated;

/// Times the present batch.
const STEPS: [u64; 2] = [4, 2];
/// Most sequences that are tried.
const MOST: u64 = 512;

pub(super) const REMEDY: Remedy = Remedy {
    name: "batch",
    title: "Sequences at once",
    cost: "each sequence waits for the others, and has keys and values of its own",
    attempts,
};

fn attempts(state: &State<'_>) -> Result<Vec<Attempt>, &'static str> {
    if state.goal.is_latency() {
        return Err("a request alone gains nothing from others beside it: the goal `throughput` tries it");
    }
    if state.facts.is_continuous {
        return Err("each request is one sequence, and so many are under way as `--concurrency` says");
    }
    if state.facts.speculates {
        return Err("sequences of a batch would go on at different places");
    }
    let attempt = |times: u64| {
        let sequences = state.facts.batch * times;
        let mut change = Change::default().option("batch", sequences);
        if state.facts.has_slots {
            change = change.option("max-num-seqs", sequences);
        }
        // Tokens that are drawn are others in each sequence, and the most likely ones are the same in all.
        let answers = if state.facts.draws { Answers::Rounded } else { state.of_another_order() };
        let attempt = Attempt::new(change).answers(answers);
        match u32::try_from(sequences) {
            Ok(sequences) => attempt.simulated(Simulated::Batch { sequences }),
            Err(_) => attempt,
        }
    };
    Ok(STEPS.into_iter().filter(|times| state.facts.batch * times <= MOST).map(attempt).collect())
}
