//! What a run's output tokens cost.

use crate::Analysis;

/// US dollars for a million output tokens of the run: price per hour ÷ output throughput.
pub fn usd_per_million_output_tokens(analysis: &Analysis) -> Option<f64> {
    analysis.price?.per_million(analysis.latency.output_tokens_per_s?)
}
