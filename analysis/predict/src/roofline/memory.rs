//! Memory that a model needs: weights, cache, activations.

use candlescope_work::input::Widths;
use candlescope_work::operation::kv_bytes_of_a_token;
use candlescope_work::shape::{FeedForward, ModelShape};
use serde::Serialize;

/// Bytes on one device.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MemoryNeed {
    /// All weights in their format, scales included, divided by the devices that share them.
    pub weights: f64,
    /// Keys and values of one more token of one sequence, where no window ends the growth.
    pub kv_a_token: f64,
    /// Keys and values of one sequence at its longest.
    pub kv_a_sequence: f64,
    /// Intermediate tensors of one sequence while its prompt is processed, the largest sum of those alive at once.
    pub activations_a_sequence: f64,
}

impl MemoryNeed {
    /// For sequences of `prompt` tokens that grow to `longest`, on one of `devices` that share every matrix.
    pub fn of(shape: &ModelShape, widths: Widths, prompt: u64, longest: u64, devices: u64) -> Self {
        let n = devices.max(1) as f64;
        let kv_heads = (shape.kv_heads as f64 / n).max(1.0);
        let one = kv_bytes_of_a_token(1.0, kv_heads, shape.head_dim as f64, widths.cached);
        let (full, windowed) = shape.layers_by_reach();
        let kept = shape.window.filter(|layers| layers.window.kept);
        let kept = kept.map_or(longest, |layers| layers.window.positions.min(longest)) as f64;
        // Keys and values of an encoder's output are not kept: candle makes them anew for every token.
        Self {
            weights: widths.weights * shape.parameters() as f64 / n,
            kv_a_token: shape.layers as f64 * one,
            kv_a_sequence: (full as f64 * longest as f64 + windowed as f64 * kept) * one,
            activations_a_sequence: activations(shape, widths, prompt, n),
        }
    }

    /// Bytes of so many sequences.
    pub fn total(&self, batch: u64) -> f64 {
        self.weights + batch as f64 * (self.kv_a_sequence + self.activations_a_sequence)
    }

    /// The most sequences that `memory` bytes hold; 0 if not even one fits beside the weights.
    pub fn largest_batch(&self, memory: f64) -> u64 {
        let left = memory - self.weights;
        let each = self.kv_a_sequence + self.activations_a_sequence;
        if left <= 0.0 || each <= 0.0 { 0 } else { (left / each) as u64 }
    }
}

/// The residual stream and its norm, with whichever is larger of the attention (queries, keys, values, scores in the
/// products' type and twice in f32) and the feed-forward network (gate, up, their product), and the logits in f32.
fn activations(shape: &ModelShape, widths: Widths, prompt: u64, devices: f64) -> f64 {
    let (t, a) = (prompt as f64, widths.activations);
    let residual = 2.0 * t * shape.hidden as f64 * a;
    let pairs = shape.heads as f64 / devices * t * t;
    let attention = t * (shape.queries() + 2 * shape.keys()) as f64 / devices * a + pairs * (widths.products + 8.0);
    let width = match shape.feed_forward {
        FeedForward::Gated { intermediate } => 3 * intermediate,
        FeedForward::Plain { intermediate } => 2 * intermediate,
        FeedForward::Experts { intermediate, active, .. } => 3 * intermediate * active,
    };
    residual + attention.max(t * width as f64 / devices * a) + shape.vocab as f64 / devices * (a + 4.0)
}
