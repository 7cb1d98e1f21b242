//! Dimensions of models, and named configurations.

mod architectures;
mod config_error;
mod gguf_metadata;
mod gpt2_config;
mod hf;
mod json;
mod largest;
mod model_config;

pub use architectures::{
    ENCODER_ARCHITECTURES, GGUF_ARCHITECTURES, GPT2, HF_ARCHITECTURES, INSTRUMENTED_ARCHITECTURES,
};
pub(crate) use architectures::{HEAD_NORMS, PADDLEOCR_VL, with_encoder};
use config_error::suggest;
pub use config_error::{ConfigError, EMBEDDED, NAMED, NAMED_WITH_ENCODER};
pub(crate) use json::token_ids;
pub use model_config::{AttentionDims, FeedForward, Llama3Scaling, ModelConfig, Rope};

/// Token that begins a text of the embedded model.
pub const BYTES_BOS: u32 = 256;
/// Token that ends a text of the embedded model.
pub const BYTES_EOS: u32 = 257;
/// Vocabulary of the embedded model: 256 bytes, beginning, end and padding.
pub const BYTES_VOCAB: usize = 259;

#[allow(clippy::too_many_arguments)]
fn decoder(
    name: &str,
    architecture: &str,
    vocab_size: usize,
    hidden_size: usize,
    intermediate: usize,
    num_layers: usize,
    (num_heads, num_kv_heads, head_dim): (usize, usize, usize),
    max_context: usize,
    theta: f32,
) -> ModelConfig {
    ModelConfig {
        name: name.to_string(),
        architecture: architecture.to_string(),
        vocab_size,
        hidden_size,
        feed_forward: FeedForward::SwiGlu { intermediate },
        num_layers,
        num_heads,
        num_kv_heads,
        head_dim,
        max_context,
        window: None,
        rms_norm_eps: 1e-5,
        rope: Rope { theta, interleaved: false, scaling: None },
        tie_embeddings: false,
        qkv_bias: architecture == "qwen2",
        bos: None,
        eos: Vec::new(),
    }
}

impl ModelConfig {
    /// A configuration of [`NAMED`], at its true size.
    pub fn named(name: &str) -> Result<Self, ConfigError> {
        let wanted = name.trim().to_ascii_lowercase();
        Ok(match wanted.as_str() {
            "smollm2-135m" => Self {
                tie_embeddings: true,
                bos: Some(1),
                eos: vec![2],
                ..decoder("smollm2-135m", "llama", 49_152, 576, 1536, 30, (9, 3, 64), 8192, 100_000.)
            },
            "tinyllama-1.1b" => Self {
                bos: Some(1),
                eos: vec![2],
                ..decoder("tinyllama-1.1b", "llama", 32_000, 2048, 5632, 22, (32, 4, 64), 2048, 10_000.)
            },
            "qwen2.5-0.5b" => Self {
                tie_embeddings: true,
                rms_norm_eps: 1e-6,
                eos: vec![151_645, 151_643],
                ..decoder("qwen2.5-0.5b", "qwen2", 151_936, 896, 4864, 24, (14, 2, 64), 32_768, 1_000_000.)
            },
            "qwen2.5-7b" => Self {
                rms_norm_eps: 1e-6,
                eos: vec![151_645, 151_643],
                ..decoder("qwen2.5-7b", "qwen2", 152_064, 3584, 18_944, 28, (28, 4, 128), 32_768, 1_000_000.)
            },
            "llama-3-8b" => Self {
                bos: Some(128_000),
                eos: vec![128_001, 128_009],
                ..decoder("llama-3-8b", "llama", 128_256, 4096, 14_336, 32, (32, 8, 128), 8192, 500_000.)
            },
            // See `Tokenizer::Bytes`.
            EMBEDDED => Self {
                bos: Some(BYTES_BOS),
                eos: vec![BYTES_EOS],
                ..decoder(EMBEDDED, "llama", BYTES_VOCAB, 128, 384, 4, (4, 2, 32), 2048, 10_000.)
            },
            "qwen3-0.6b" => Self {
                tie_embeddings: true,
                rms_norm_eps: 1e-6,
                eos: vec![151_645, 151_643],
                ..decoder("qwen3-0.6b", "qwen3", 151_936, 1024, 3072, 28, (16, 8, 128), 40_960, 1_000_000.)
            },
            other => {
                if let Some(config) = gpt2_config::named(other) {
                    return Ok(config);
                }
                if NAMED_WITH_ENCODER.contains(&wanted.as_str()) {
                    return Err(ConfigError::WithEncoder { name: wanted });
                }
                return Err(ConfigError::UnknownName { suggestion: suggest(&wanted), name: name.to_string() });
            }
        })
    }

    /// Checks that no dimension is 0 or larger than in any real model, and that they fit together.
    pub fn check(&self) -> Result<(), ConfigError> {
        let fail = |message: String| Err(ConfigError::Inconsistent(message));
        self.check_limits()?;
        if !self.num_heads.is_multiple_of(self.num_kv_heads) {
            return fail(format!(
                "{} heads are not a multiple of {} key/value heads",
                self.num_heads, self.num_kv_heads
            ));
        }
        if !self.is_gpt2() && !self.head_dim.is_multiple_of(2) {
            return fail(format!("head size {} is odd, rotary embeddings need an even one", self.head_dim));
        }
        Ok(())
    }

    /// Names (those of Hugging Face) and shapes of all weights as they are stored, in load order. Without
    /// `lm_head.weight` if the embedding table serves as the head.
    pub fn weights(&self) -> Vec<(String, Vec<usize>)> {
        if self.is_gpt2() {
            return gpt2_config::weights(self);
        }
        let (d, i) = (self.hidden_size, self.intermediate());
        let (q, kv) = (self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim);
        let mut all = vec![("model.embed_tokens.weight".to_string(), vec![self.vocab_size, d])];
        for layer in 0..self.num_layers {
            let mut add = |name: &str, shape: Vec<usize>| all.push((format!("model.layers.{layer}.{name}"), shape));
            add("input_layernorm.weight", vec![d]);
            for (name, out) in [("q_proj", q), ("k_proj", kv), ("v_proj", kv)] {
                add(&format!("self_attn.{name}.weight"), vec![out, d]);
                if self.qkv_bias {
                    add(&format!("self_attn.{name}.bias"), vec![out]);
                }
            }
            add("self_attn.o_proj.weight", vec![d, q]);
            for norm in HEAD_NORMS.into_iter().filter(|_| self.normalises_heads()) {
                add(&format!("self_attn.{norm}.weight"), vec![self.head_dim]);
            }
            add("post_attention_layernorm.weight", vec![d]);
            add("mlp.gate_proj.weight", vec![i, d]);
            add("mlp.up_proj.weight", vec![i, d]);
            add("mlp.down_proj.weight", vec![d, i]);
        }
        all.push(("model.norm.weight".to_string(), vec![d]));
        if !self.tie_embeddings {
            all.push(("lm_head.weight".to_string(), vec![self.vocab_size, d]));
        }
        all
    }

    /// Parameters, the shared embedding table counted once.
    pub fn parameters(&self) -> u64 {
        self.weights().iter().map(|(_, shape)| shape.iter().product::<usize>() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_at_true_size() {
        for (name, expected) in [
            ("smollm2-135m", 134_515_008),
            ("tinyllama-1.1b", 1_100_048_384),
            ("qwen2.5-0.5b", 494_032_768),
            ("qwen2.5-7b", 7_615_616_512),
            ("qwen3-0.6b", 596_049_920),
            ("llama-3-8b", 8_030_261_248),
            ("distilgpt2", 81_912_576),
            ("gpt2", 124_439_808),
            ("gpt2-medium", 354_823_168),
            ("gpt2-large", 774_030_080),
            ("gpt2-xl", 1_557_611_200),
        ] {
            assert_eq!(ModelConfig::named(name).unwrap().parameters(), expected, "{name}");
        }
        for name in NAMED {
            ModelConfig::named(name).unwrap().check().unwrap();
        }
    }

    #[test]
    fn unknown_name_lists_and_suggests() {
        let message = ModelConfig::named("llama3-8b").unwrap_err().to_string();
        assert!(message.contains("did you mean `llama-3-8b`?"), "{message}");
        assert!(message.contains("smollm2-135m"), "{message}");
        let message = ModelConfig::named("zzzzzzzzzzzzzzzzzzzzzzz").unwrap_err().to_string();
        assert!(!message.contains("did you mean"), "{message}");
    }
}
