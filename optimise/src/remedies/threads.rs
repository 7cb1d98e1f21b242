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
    let preempted = state.findings(&[AdviceCode::Preempted]).map(|advice| advice.of_run().mid).fold(0.0, f64::max);
    let counts = thread_counts(processors as usize, processors as usize);
    let attempt = |threads: usize| {
        let attempt = Attempt::new(Change::default().option("threads", threads));
        match threads as u64 {
            more if more > now => attempt.obtains(&[AdviceCode::ThreadsWait]),
            // One fewer leaves room for what took the processors, and computes no longer what that thread did.
            fewer if fewer + 1 == now && outweighs_a_thread(preempted, now) => {
                attempt.obtains(&[AdviceCode::Preempted])
            }
            _ => attempt,
        }
    };
    Ok(counts.into_iter().filter(|count| *count as u64 != now).map(attempt).collect())
}

/// Whether the share of the time in which threads had to wait for a processor is more than what one of so many computes: a promise
/// of 2 % on two cores turned out to be a loss of 59 %.
fn outweighs_a_thread(preempted: f64, threads: u64) -> bool {
    preempted > 1.0 / threads as f64
}

#[cfg(test)]
mod tests {
    use super::outweighs_a_thread;

    #[test]
    fn one_thread_fewer_is_promised_anything_only_where_it_hardly_ran() {
        assert!(!outweighs_a_thread(0.02, 2) && outweighs_a_thread(0.55, 2));
        assert!(!outweighs_a_thread(0.02, 16) && outweighs_a_thread(0.1, 16));
    }
}
