//! Dimensions of a decoder.

use super::GPT2;
use candlescope_work::operation::Heads;
use candlescope_work::shape::{ModelShape, WindowedLayers};
use candlescope_work::windows::Window;
use serde::{Deserialize, Serialize};

/// Feed-forward network of a decoder layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum FeedForward {
    /// `down(silu(gate(x)) · up(x))`, of every architecture but GPT-2.
    SwiGlu {
        /// Features between the two matrices.
        intermediate: usize,
    },
    /// `down(gelu(up(x)))`, in GPT-2 with the tanh form of GELU.
    Gelu {
        /// Features between the two matrices.
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

/// Rotary position embedding: pairs of features of each query and key turn with their position.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rope {
    /// Base of the frequencies.
    pub theta: f32,
    /// Pairs are (2i, 2i+1), the order of Llama weights in GGUF files, not (i, i + d/2), that of Hugging Face.
    pub interleaved: bool,
    /// Stretching by `rope_scaling` of `config.json`, if that has one; a GGUF file has factors in a tensor instead.
    pub scaling: Option<Llama3Scaling>,
}

/// Head counts of an attention and the width of what it caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionDims {
    /// Query heads of a layer, a multiple of `kv_heads`.
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
    /// Name for people: of the configuration or the directory, the hub's id, or `general.name` of a GGUF file.
    pub name: String,
    /// One of [`HF_ARCHITECTURES`](super::HF_ARCHITECTURES): `model_type` of `config.json`, `general.architecture` of a
    /// GGUF file.
    pub architecture: String,
    /// Entries of the vocabulary.
    pub vocab_size: usize,
    /// Features of the residual stream.
    pub hidden_size: usize,
    /// Kind and width of the feed-forward network, the same in every layer.
    #[doc(hidden)]
    pub feed_forward: FeedForward,
    /// Decoder layers: `num_hidden_layers` of `config.json`, `n_layer` in GPT-2, `block_count` of a GGUF file.
    pub num_layers: usize,
    /// Query heads of a layer, a multiple of `num_kv_heads`.
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
    #[doc(hidden)]
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

impl ModelConfig {
    /// Whether it is a GPT-2, whose layers are others than a Llama's.
    pub fn is_gpt2(&self) -> bool {
        self.architecture == GPT2
    }

    /// Whether queries and keys of each head are normalised.
    pub(crate) fn normalises_heads(&self) -> bool {
        self.architecture == "qwen3"
    }

    /// Head counts and features of a head, the same in every layer.
    #[doc(hidden)]
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
    #[doc(hidden)]
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
}
