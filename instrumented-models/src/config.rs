//! Dimensions of models, and named configurations.

mod gguf;
mod gpt2;
mod hf;
mod json;
mod limits;

use candlescope_core::nearest;
use candlescope_work::operation::Heads;
use candlescope_work::shape::{ModelShape, WindowedLayers};
use candlescope_work::windows::Window;
pub use gpt2::GPT2;
pub(crate) use json::token_ids;
use serde::{Deserialize, Serialize};

/// Name of the tiny model made in the process.
pub const EMBEDDED: &str = "embedded";

/// Token that begins a text of the embedded model.
pub const BYTES_BOS: u32 = 256;
/// Token that ends a text of the embedded model.
pub const BYTES_EOS: u32 = 257;
/// Vocabulary of the embedded model: 256 bytes, beginning, end and padding.
pub const BYTES_VOCAB: usize = 259;

/// Named configurations: `config:NAME`.
pub const NAMED: &[&str] = &[
    "smollm2-135m",
    "tinyllama-1.1b",
    "qwen2.5-0.5b",
    "qwen2.5-7b",
    "qwen3-0.6b",
    "llama-3-8b",
    "distilgpt2",
    "gpt2",
    "gpt2-medium",
    "gpt2-large",
    "gpt2-xl",
    EMBEDDED,
];

/// Named configurations of models with an encoder, which the engine `candle` runs: `config:NAME`.
pub const NAMED_WITH_ENCODER: &[&str] = &["t5-small", "t5-base", "bert-base", "minilm", "whisper-tiny", "paddleocr-vl"];

/// Feed-forward network of a decoder layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum FeedForward {
    /// `down(silu(gate(x)) · up(x))`.
    SwiGlu {
        /// Width.
        intermediate: usize,
    },
    /// `down(gelu(up(x)))`, in GPT-2 with the tanh form of GELU.
    Gelu {
        /// Width.
        intermediate: usize,
    },
}

/// Stretching of rotary embeddings as Llama 3.1 and later do it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Llama3Scaling {
    /// Factor by which low frequencies shrink.
    pub factor: f32,
    /// Wavelengths above `original_context / low_freq_factor` shrink in full.
    pub low_freq_factor: f32,
    /// Wavelengths below `original_context / high_freq_factor` stay.
    pub high_freq_factor: f32,
    /// Context length before stretching, in tokens.
    pub original_max_position_embeddings: usize,
}

/// Rotary position embedding.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rope {
    /// Base of the frequencies.
    pub theta: f32,
    /// Pairs are (2i, 2i+1), the order of Llama weights in GGUF files, not (i, i + d/2), that of Hugging Face.
    pub interleaved: bool,
    /// Stretching, if any.
    pub scaling: Option<Llama3Scaling>,
}

/// Head counts of an attention and the width of what it caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionDims {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Features of a head.
    pub head_dim: usize,
}

impl AttentionDims {
    /// The same, as costs are counted by.
    pub fn counted(&self) -> Heads {
        Heads::new(self.heads, self.kv_heads, self.head_dim)
    }
}

/// Dimensions of a decoder: a Llama, one of its relatives, or GPT-2.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelConfig {
    /// Name for people.
    pub name: String,
    /// One of [`HF_ARCHITECTURES`].
    pub architecture: String,
    /// Entries of the vocabulary.
    pub vocab_size: usize,
    /// Features of the residual stream.
    pub hidden_size: usize,
    /// Feed-forward network.
    pub feed_forward: FeedForward,
    /// Decoder layers.
    pub num_layers: usize,
    /// Query heads.
    pub num_heads: usize,
    /// Key and value heads.
    pub num_kv_heads: usize,
    /// Features of a head; not always `hidden_size / num_heads`.
    pub head_dim: usize,
    /// Longest context, in tokens.
    pub max_context: usize,
    /// Positions that a token attends to at most, itself included, in every layer. The wrapped models attend to all, and
    /// end the context where the window does; the costs of [`shape`](Self::shape) also say what lies beyond.
    #[serde(default)]
    pub window: Option<usize>,
    /// Epsilon of the norms.
    pub rms_norm_eps: f64,
    /// Rotary embedding; of no meaning for GPT-2, which learned its positions.
    pub rope: Rope,
    /// Whether the LM head is the embedding table.
    pub tie_embeddings: bool,
    /// Whether the query, key and value projections have biases. In GPT-2 all projections of a layer have.
    pub qkv_bias: bool,
    /// Token a text begins with, if the model wants one.
    pub bos: Option<u32>,
    /// Tokens that end a text.
    pub eos: Vec<u32>,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The name is not in [`NAMED`].
    #[error("no configuration is named `{name}`{suggestion}; known are {known}", known = all_names().join(", "))]
    UnknownName {
        /// The name that was given.
        name: String,
        /// ` (did you mean …?)` or nothing.
        suggestion: String,
    },
    /// The name is in [`NAMED_WITH_ENCODER`], and dimensions of a decoder are wanted.
    #[error(
        "`config:{name}` has an encoder, and this takes only decoders, models that continue a text; \
         `candlescope profile --model config:{name}` runs it"
    )]
    WithEncoder {
        /// The name that was given.
        name: String,
    },
    /// `config.json` lacks a field or has a wrong value in it.
    #[error(
        "`{field}` is missing from config.json or is not {expected}; take config.json from the model's own directory"
    )]
    Field {
        /// Name of the field.
        field: String,
        /// What it should be.
        expected: &'static str,
    },
    /// The metadata of a GGUF file lacks something.
    #[error("it lacks {what}; the file is incomplete: convert the model again, or take another one")]
    Lacks {
        /// What is missing.
        what: String,
    },
    /// The model's architecture is not one of ours.
    #[error("architecture `{found}` is not supported; supported are {supported}")]
    Architecture {
        /// The value in the file.
        found: String,
        /// The supported ones.
        supported: String,
    },
    /// The architecture is ours, but this variant of it is not.
    #[error("{what} is not supported; {remedy}")]
    Unsupported {
        /// The feature.
        what: String,
        /// What to do instead.
        remedy: &'static str,
    },
    /// A dimension is larger than in any real model.
    #[error("{name} is {value}, more than the limit of {limit}; the file is damaged or malicious")]
    TooLarge {
        /// The dimension.
        name: &'static str,
        /// The value in the file.
        value: usize,
        /// The limit.
        limit: usize,
    },
    /// candle's reader refuses `config.json`.
    #[error("config.json is not what candle reads: {0}; take it from the model's own directory")]
    Unreadable(String),
    /// Dimensions contradict each other.
    #[error("the dimensions do not fit together: {0}")]
    Inconsistent(String),
}

/// Architectures that `config.json` may name.
pub const HF_ARCHITECTURES: &[&str] = &["llama", "mistral", "qwen2", "qwen3", GPT2];

/// Those of them that our layers run. The others run as candle-transformers' own models only.
pub const INSTRUMENTED_ARCHITECTURES: &[&str] = &["llama", "mistral", "qwen2", GPT2];

/// Norms of queries and keys, each over a head.
pub(crate) const HEAD_NORMS: [&str; 2] = ["q_norm", "k_norm"];

/// Architectures that GGUF's `general.architecture` may name.
pub const GGUF_ARCHITECTURES: &[&str] = &["llama", "qwen2"];

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
                if let Some(config) = gpt2::named(other) {
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

    /// Whether it is a GPT-2, whose layers are others than a Llama's.
    pub fn is_gpt2(&self) -> bool {
        self.architecture == GPT2
    }

    /// Whether queries and keys of each head are normalised.
    pub(crate) fn normalises_heads(&self) -> bool {
        self.architecture == "qwen3"
    }

    /// Head counts.
    pub const fn attention(&self) -> AttentionDims {
        AttentionDims { heads: self.num_heads, kv_heads: self.num_kv_heads, head_dim: self.head_dim }
    }

    /// Width of the feed-forward network.
    pub const fn intermediate(&self) -> usize {
        match self.feed_forward {
            FeedForward::SwiGlu { intermediate } | FeedForward::Gelu { intermediate } => intermediate,
        }
    }

    /// The same dimensions, as costs and predictions take them.
    pub fn shape(&self) -> ModelShape {
        let [vocab, hidden, layers] = [self.vocab_size, self.hidden_size, self.num_layers].map(|n| n as u64);
        let [heads, kv_heads, head_dim] = [self.num_heads, self.num_kv_heads, self.head_dim].map(|n| n as u64);
        let (size, heads) = ((vocab, hidden, layers), (heads, kv_heads, head_dim));
        let mut shape = ModelShape::decoder(&self.name, size, heads, self.intermediate() as u64);
        shape.max_context = Some(self.max_context as u64);
        let mut shape = shape.built_as(&self.architecture);
        shape.tied = self.tie_embeddings;
        shape.biases.qkv |= self.qkv_bias;
        let window = self.window.map(|positions| Window::of(&self.architecture, positions as u64));
        shape.window = window.map(|window| WindowedLayers { window, layers });
        shape
    }

    /// Names (those of Hugging Face) and shapes of all weights as they are stored, in load order. Without
    /// `lm_head.weight` if the embedding table serves as the head.
    pub fn weights(&self) -> Vec<(String, Vec<usize>)> {
        if self.is_gpt2() {
            return gpt2::weights(self);
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

/// Names of all configurations, those of models with an encoder included.
fn all_names() -> Vec<&'static str> {
    [NAMED, NAMED_WITH_ENCODER].concat()
}

fn suggest(wanted: &str) -> String {
    nearest::suggest(wanted, all_names())
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
