//! How many threads compute on a CPU.

use super::remedy::{Attempt, Remedy, State};
use crate::setting::Change;
use candlescope_figures::advice::AdviceCode;
use candlescope_lab::tune::thread_counts;

pub(super) const REMEDY: Remedy = Remedy { name: "threads", title: "Threads that compute", cost: "nothing", attempts };

fn attempts(state: &State<'_>) -> Result<Vec<Attempt>, &'static str> {
    let facts = state.facts;
    if facts.on_gpu() {
        return Err("the model runs on a GPU");
    }
    let (Some(now), Some(processors)) = (facts.threads, facts.processors) else {
        return Err("the run does not say how many threads compute");
    };
    if processors < 2 {
        return Err("there is one processor");
    }
    let counts = thread_counts(processors as usize, processors as usize);
    let attempt = |threads: usize| {
        let attempt = Attempt::new(Change::default().option("threads", threads));
        match threads as u64 {
            more if more > now => attempt.obtains(&[AdviceCode::ThreadsWait]),
            // One fewer than there are processors leaves room for what took them.
            fewer if fewer + 1 == now => attempt.obtains(&[AdviceCode::Preempted]),
            _ => attempt,
        }
    };
    Ok(counts.into_iter().filter(|count| *count as u64 != now).map(attempt).collect())
}
