//! Architectures that configurations may name.

use serde_json::Value;

/// Name of the architecture, `model_type` in `config.json`.
pub const GPT2: &str = "gpt2";

/// Architectures that `config.json` may name.
pub const HF_ARCHITECTURES: &[&str] = &["llama", "mistral", "qwen2", "qwen3", GPT2];

/// Those of them that our layers run. The others run as candle-transformers' own models only.
pub const INSTRUMENTED_ARCHITECTURES: &[&str] = &["llama", "mistral", "qwen2", GPT2];

/// The one with an encoder that the wrapped layers run, too.
pub(crate) const PADDLEOCR_VL: &str = "paddleocr_vl";

/// Architectures with an encoder, which candle runs.
pub const ENCODER_ARCHITECTURES: &[&str] = &["bert", "t5", "whisper", "paddleocr_vl"];

/// The architecture that a `config.json` tells, if it has an encoder.
pub(crate) fn with_encoder(json: &Value) -> Option<&str> {
    let architecture = json.get("model_type").and_then(Value::as_str)?;
    ENCODER_ARCHITECTURES.contains(&architecture).then_some(architecture)
}

/// Norms of queries and keys, each over a head.
pub(crate) const HEAD_NORMS: [&str; 2] = ["q_norm", "k_norm"];

/// Architectures that GGUF's `general.architecture` may name.
pub const GGUF_ARCHITECTURES: &[&str] = &["llama", "qwen2"];
