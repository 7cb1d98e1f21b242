//! Our layers, or candle-transformers' own model.

use super::remedy::{Answers, Attempt, Remedy, State};
use crate::setting::Change;

pub(super) const REMEDY: Remedy = Remedy {
    name: "engine",
    title: "The implementation that runs the model",
    cost: "candle's own model states no FLOPs and bytes of its layers",
    attempts,
};

fn attempts(state: &State<'_>) -> Result<Vec<Attempt>, &'static str> {
    let facts = state.facts;
    if facts.has_slots {
        return Err("candle's own models have no slots");
    }
    if facts.speculates {
        return Err("only our layers check several tokens at once");
    }
    if facts.is_quantised_here {
        return Err("weights are quantised while a model loads by our layers only");
    }
    let other = if facts.is_ours { "candle" } else { "instrumented" };
    // Their sums are in another order.
    Ok(vec![Attempt::new(Change::default().option("engine", other)).answers(Answers::Rounded)])
}
