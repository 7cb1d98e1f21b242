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
use candlescope_work::known_models::{KnownModel, known_models};
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

/// Dimensions of the embedded model. See `Tokenizer::Bytes`.
static EMBEDDED_MODEL: KnownModel = KnownModel {
    name: EMBEDDED,
    ids: &[],
    architecture: "llama",
    size: (BYTES_VOCAB as u64, 128, 4),
    heads: (4, 2, 32),
    intermediate: 384,
    experts: (0, 0),
    tied: false,
    window: (0, 0),
    context: 2048,
};

/// A decoder like Llama of these dimensions, with what the table of known models lacks. `None` of what [`NAMED`] does not
/// have.
fn decoder(model: &KnownModel) -> Option<ModelConfig> {
    let (theta, rms_norm_eps, bos, eos) = match model.name {
        EMBEDDED => (10_000., 1e-5, Some(BYTES_BOS), vec![BYTES_EOS]),
        "smollm2-135m" => (100_000., 1e-5, Some(1), vec![2]),
        "tinyllama-1.1b" => (10_000., 1e-5, Some(1), vec![2]),
        "llama-3-8b" => (500_000., 1e-5, Some(128_000), vec![128_001, 128_009]),
        "qwen2.5-0.5b" | "qwen2.5-7b" | "qwen3-0.6b" => (1_000_000., 1e-6, None, vec![151_645, 151_643]),
        _ => return None,
    };
    let ((vocab, hidden, layers), (heads, kv_heads, head_dim)) = (model.size, model.heads);
    Some(ModelConfig {
        name: model.name.to_string(),
        architecture: model.architecture.to_string(),
        vocab_size: vocab as usize,
        hidden_size: hidden as usize,
        feed_forward: FeedForward::SwiGlu { intermediate: model.intermediate as usize },
        num_layers: layers as usize,
        num_heads: heads as usize,
        num_kv_heads: kv_heads as usize,
        head_dim: head_dim as usize,
        max_context: model.context as usize,
        window: None,
        rms_norm_eps,
        rope: Rope { theta, interleaved: false, scaling: None },
        tie_embeddings: model.tied,
        qkv_bias: model.architecture == "qwen2",
        bos,
        eos,
    })
}

impl ModelConfig {
    /// A configuration of [`NAMED`], at its true size.
    pub fn named(name: &str) -> Result<Self, ConfigError> {
        let wanted = name.trim().to_ascii_lowercase();
        let config = |model: &KnownModel| match model.architecture {
            GPT2 => Some(gpt2_config::of_size(model)),
            _ => decoder(model),
        };
        let model = known_models().chain([&EMBEDDED_MODEL]).find(|model| model.name == wanted);
        if let Some(config) = model.and_then(config) {
            return Ok(config);
        }
        if NAMED_WITH_ENCODER.contains(&wanted.as_str()) {
            return Err(ConfigError::WithEncoder { name: wanted });
        }
        Err(ConfigError::UnknownName { suggestion: suggest(&wanted), name: name.to_string() })
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
