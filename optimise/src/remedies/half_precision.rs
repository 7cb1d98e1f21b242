//! Weights and activations of 16 bits.

use super::remedy::{Answers, Attempt, Remedy, State};
use crate::setting::Change;
use candlescope_predict::simulation::Change as Simulated;

pub(super) const REMEDY: Remedy = Remedy {
    name: "half_precision",
    title: "Weights and activations of 16 bits",
    cost: "the quality of 16 bits",
    attempts,
};

fn attempts(state: &State<'_>) -> Result<Vec<Attempt>, &'static str> {
    let facts = state.facts;
    match facts.weights.as_deref() {
        Some("f32") if facts.on_gpu() => {
            let change = Change::default().option("dtype", "bf16");
            let attempt = Attempt::new(change).simulated(Simulated::Bits { bits: 16 });
            Ok(vec![attempt.answers(Answers::Variant("bf16".into()))])
        }
        // candle widens them for each product on a CPU.
        Some("f32") => {
            let change = Change::default().option("dtype", "f16");
            Ok(vec![Attempt::new(change).answers(Answers::Variant("f16".into()))])
        }
        Some(_) => Err("weights have no more bits now"),
        None => Err("the run does not say what weights are stored as"),
    }
}
