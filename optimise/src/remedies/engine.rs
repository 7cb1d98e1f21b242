//! Our layers, or candle-transformers' own model.

use super::remedy::{Attempt, Remedy, State};
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
    if facts.caches_in_8_bits {
        return Err("only our layers hold keys and values in 8 bits");
    }
    let other = if facts.is_ours { "candle" } else { "instrumented" };
    // Their sums are in another order.
    Ok(vec![Attempt::new(Change::default().option("engine", other)).answers(state.of_another_order())])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;
    use crate::goal::Goal;
    use candlescope_core::run::RunManifest;
    use candlescope_figures::advice::Diagnosis;

    #[test]
    fn candles_own_model_is_not_tried_where_it_would_be_refused() {
        let of = |facts: &Facts| {
            let (goal, diagnosis) = (Goal::default(), Diagnosis::default());
            let all = attempts(&State { facts, goal: &goal, diagnosis: &diagnosis })?;
            Ok::<_, &'static str>(all.iter().map(|attempt| attempt.change.words()).collect::<Vec<_>>())
        };
        let ours = Facts { is_ours: true, ..Facts::of(&RunManifest::default()) };
        assert_eq!(of(&ours), Ok(vec!["--engine=candle".to_string()]));
        let in_8_bits = ours.with(&Change::default().option("kv-cache-dtype", "q8"));
        assert_eq!(of(&in_8_bits), Err("only our layers hold keys and values in 8 bits"));
    }
}
