//! What a run says about its model.

use serde::Serialize;
use serde_json::{Map, Value};

/// What a run says about its model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelInfo {
    /// Name for people and for `gen_ai.request.model`.
    pub name: String,
    /// What it was loaded from.
    pub source: String,
    /// `llama` or `qwen2`.
    pub architecture: String,
    /// `instrumented` or `candle`.
    pub engine: &'static str,
    /// Parameters, a shared embedding table counted once.
    pub parameters: u64,
    /// Bytes of the weights in memory.
    pub weight_bytes: u64,
    /// Element type most weights are held in, such as `q4_1` or `f32`.
    pub quantization: String,
    /// Element type of the activations.
    pub dtype: String,
    /// Features of the residual stream.
    pub hidden_size: usize,
    /// Width of the feed-forward network.
    pub intermediate_size: usize,
    /// Decoder layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Features of a head.
    pub head_dim: usize,
    /// Entries of the vocabulary.
    pub vocab_size: usize,
    /// Longest context in tokens.
    pub context_length: usize,
    /// Seed of random weights.
    pub seed: Option<u64>,
    /// Tokens that end a text.
    pub eos_tokens: Vec<u32>,
}

impl ModelInfo {
    /// As the `model` object of `run.json`.
    pub fn to_map(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(map)) => map,
            _ => Map::new(),
        }
    }
}
