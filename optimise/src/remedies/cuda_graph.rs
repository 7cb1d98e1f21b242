//! A decode step that is captured once as a CUDA graph, and replayed.

use super::remedy::{Attempt, Remedy, State};
use crate::setting::Change;
use candlescope_figures::advice::AdviceCode;
use candlescope_predict::simulation::Change as Simulated;

pub(super) const REMEDY: Remedy = Remedy {
    name: "cuda_graph",
    title: "Decode steps replayed as CUDA graphs",
    cost: "memory for the longest context of every sequence, and a second or two for captures",
    attempts,
};

fn attempts(state: &State<'_>) -> Result<Vec<Attempt>, &'static str> {
    let facts = state.facts;
    match () {
        () if !facts.on_gpu() => Err("there is no GPU in use"),
        () if facts.has_graph => Err("steps are replays already"),
        () if !facts.is_ours => Err("only our layers are captured"),
        () if facts.speculates => Err("tokens that are looked up are checked in a cache that grows"),
        () if facts.weights != facts.dtype => Err("candle's products of quantised weights cannot be captured"),
        () => {
            let change = Change::default().option("cuda-graph", true);
            let attempt = Attempt::new(change).obtains(&[AdviceCode::LaunchBound]).simulated(Simulated::Graph);
            // A replay attends to the whole context of its shape, padding included: even of one sequence it adds in
            // another order.
            Ok(vec![attempt.answers(state.of_another_order())])
        }
    }
}
