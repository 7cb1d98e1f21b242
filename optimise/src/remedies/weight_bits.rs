//! Weights of fewer bits.

use super::remedy::{Answers, Attempt, Remedy, State};
use crate::setting::Change;
use candlescope_figures::advice::AdviceCode;
use candlescope_predict::simulation::Change as Simulated;

pub(super) const REMEDY: Remedy =
    Remedy { name: "weight_bits", title: "Weights of 8 or 4 bits", cost: "the quality of fewer bits", attempts };

/// Types, the bits of a weight with its scales, and those of a simulation.
const TYPES: [(&str, f64, u32); 2] = [("q8_0", 8.5, 8), ("q4_0", 4.5, 4)];

fn attempts(state: &State<'_>) -> Result<Vec<Attempt>, &'static str> {
    let facts = state.facts;
    let Some(bits) = facts.weight_bits else { return Err("the run does not say how many bits weights have") };
    if !facts.is_ours {
        return Err("weights are quantised while a model loads by our layers only");
    }
    if facts.has_graph {
        return Err("candle's products of quantised weights cannot be captured, and steps are replayed as graphs");
    }
    let attempt = |(name, _, bits): &(&str, f64, u32)| {
        let change = Change::default().option("quantize", name).without("dtype");
        let attempt = Attempt::new(change).answers(Answers::Variant((*name).to_string()));
        let attempt = if facts.on_gpu() { attempt.simulated(Simulated::Bits { bits: *bits }) } else { attempt };
        // What the findings promise is 8 bits; on a CPU candle's products of one row use all threads then.
        match (*bits, facts.on_gpu()) {
            (8, true) => attempt.obtains(&[AdviceCode::WeightStreaming]),
            (8, false) => attempt.obtains(&[AdviceCode::WeightStreaming, AdviceCode::SerialPart]),
            _ => attempt,
        }
    };
    let fewer: Vec<Attempt> = TYPES.iter().filter(|(_, of, _)| *of + 0.5 < bits).map(attempt).collect();
    if fewer.is_empty() { Err("weights have no more bits now") } else { Ok(fewer) }
}
