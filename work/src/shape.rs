//! Dimensions of a model, and how many parameters they make.

mod from_config;

pub use from_config::{ConfigError, LARGEST, MOST_PARAMETERS};

use crate::windows::Window;
use serde::Serialize;

/// Feed-forward network of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum FeedForward {
    /// `down(act(gate(x)) · up(x))`: three matrices.
    Gated {
        /// Features between the matrices.
        intermediate: u64,
    },
    /// `down(act(up(x)))`: two matrices, as in GPT-2, Phi and T5.
    Plain {
        /// Features between the two matrices.
        intermediate: u64,
    },
    /// A mixture of gated experts with a router.
    Experts {
        /// Width of one expert.
        intermediate: u64,
        /// Experts of a layer in all.
        experts: u64,
        /// Experts a token uses.
        active: u64,
    },
}

impl FeedForward {
    /// Width of the network; of one expert, for a mixture.
    pub fn intermediate(&self) -> u64 {
        match *self {
            Self::Gated { intermediate } | Self::Plain { intermediate } | Self::Experts { intermediate, .. } => {
                intermediate
            }
        }
    }
}

/// Which projections have biases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Biases {
    /// Queries, keys and values.
    pub qkv: bool,
    /// Output projection of the attention.
    pub output: bool,
    /// All projections of the feed-forward network.
    pub feed_forward: bool,
    /// Projection to the vocabulary.
    pub head: bool,
}

/// Attention that reaches back over a few positions only, in some layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct WindowedLayers {
    /// How far back these layers attend.
    #[serde(flatten)]
    pub window: Window,
    /// Layers that have it; the others attend to the whole context.
    pub layers: u64,
}

/// Dimensions of a decoder, or of an encoder with its decoder.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelShape {
    /// Name for people, such as `Llama 3.1 8B`.
    pub name: String,
    /// `model_type` of its `config.json`.
    pub architecture: String,
    /// Entries of the vocabulary: V.
    pub vocab: u64,
    /// Features of the residual stream: D.
    pub hidden: u64,
    /// Decoder layers, without those of an encoder: L.
    pub layers: u64,
    /// Query heads of a layer: q.
    pub heads: u64,
    /// Key and value heads: kv.
    pub kv_heads: u64,
    /// Features of a head: d; not always `hidden / heads`.
    pub head_dim: u64,
    /// Feed-forward network, the same in each layer.
    pub feed_forward: FeedForward,
    /// Longest context in tokens, if it is known.
    pub max_context: Option<u64>,
    /// Whether the head is the embedding table.
    pub tied: bool,
    /// Which projections have biases.
    pub biases: Biases,
    /// Whether one product makes queries, keys and values, which are then taken apart.
    pub merged_qkv: bool,
    /// Norms of a decoder layer, without those of queries and keys and of cross-attention.
    pub norms_a_layer: u64,
    /// Whether norms have biases (LayerNorm) or not (RMSNorm).
    pub norm_bias: bool,
    /// Whether queries and keys are normed, head by head.
    pub qk_norm: bool,
    /// Rows of a table of learned positions; 0 if positions are rotated in or added as biases.
    pub learned_positions: u64,
    /// Buckets of relative position biases, in one layer of the encoder and one of the decoder.
    pub position_buckets: u64,
    /// Attention over a window.
    pub window: Option<WindowedLayers>,
    /// Encoder layers, each as wide as the decoder's; 0 for a decoder alone.
    pub encoder_layers: u64,
}

/// Architectures whose layers are known.
pub const ARCHITECTURES: &[&str] = &[
    "llama",
    "mistral",
    "mixtral",
    "qwen2",
    "qwen3",
    "qwen3_moe",
    "phi",
    "phi3",
    "gemma",
    "gemma2",
    "gemma3",
    "gemma3_text",
    "gpt2",
    "t5",
];

impl ModelShape {
    /// A decoder like Llama's: gated feed-forward network, two RMSNorms a layer, rotary positions, no biases, a head of
    /// its own. `heads` are query heads, key and value heads, and features of a head.
    pub fn decoder(
        name: &str,
        (vocab, hidden, layers): (u64, u64, u64),
        (heads, kv_heads, head_dim): (u64, u64, u64),
        intermediate: u64,
    ) -> Self {
        Self {
            name: name.to_string(),
            architecture: "llama".to_string(),
            vocab,
            hidden,
            layers,
            heads,
            kv_heads,
            head_dim,
            feed_forward: FeedForward::Gated { intermediate },
            max_context: None,
            tied: false,
            biases: Biases::default(),
            merged_qkv: false,
            norms_a_layer: 2,
            norm_bias: false,
            qk_norm: false,
            learned_positions: 0,
            position_buckets: 0,
            window: None,
            encoder_layers: 0,
        }
    }

    /// The same dimensions with what is particular to an architecture (`model_type` of `config.json`): biases, kinds
    /// and numbers of norms, how positions come in. An unknown architecture is taken for Llama's; see
    /// [`ARCHITECTURES`].
    #[must_use]
    pub fn built_as(mut self, architecture: &str) -> Self {
        let i = self.feed_forward.intermediate();
        let all = Biases { qkv: true, output: true, feed_forward: true, head: false };
        match architecture {
            "qwen2" => self.biases.qkv = true,
            "qwen3" | "qwen3_moe" => self.qk_norm = true,
            "phi" => {
                self.feed_forward = FeedForward::Plain { intermediate: i };
                self.biases = Biases { head: true, ..all };
                (self.norms_a_layer, self.norm_bias) = (1, true);
            }
            "gemma2" => self.norms_a_layer = 4,
            "gemma3" | "gemma3_text" => (self.norms_a_layer, self.qk_norm) = (4, true),
            "gpt2" => {
                self.feed_forward = FeedForward::Plain { intermediate: i };
                (self.biases, self.norm_bias, self.merged_qkv) = (all, true, true);
                self.learned_positions = self.max_context.unwrap_or(0);
            }
            "t5" => {
                self.feed_forward = FeedForward::Plain { intermediate: i };
                (self.position_buckets, self.encoder_layers) = (32, self.layers);
            }
            _ => {}
        }
        self.architecture = architecture.to_string();
        self
    }

    /// Features of all query heads.
    pub fn queries(&self) -> u64 {
        self.heads * self.head_dim
    }

    /// Features of all key heads, or all value heads.
    pub fn keys(&self) -> u64 {
        self.kv_heads * self.head_dim
    }

    /// Layers that attend to the whole context, and those that attend to a window.
    pub fn layers_by_reach(&self) -> (u64, u64) {
        let windowed = self.window.map_or(0, |window| window.layers.min(self.layers));
        (self.layers - windowed, windowed)
    }

    /// Parameters of the four projections of an attention, biases included.
    fn attention_parameters(&self) -> u64 {
        let (q, kv) = (self.queries(), self.keys());
        let bias = if self.biases.qkv { q + 2 * kv } else { 0 } + if self.biases.output { self.hidden } else { 0 };
        self.hidden * (2 * q + 2 * kv) + bias
    }

    /// Parameters of a feed-forward network, router and biases included.
    fn feed_forward_parameters(&self) -> u64 {
        let d = self.hidden;
        let biased = |width: u64| if self.biases.feed_forward { width } else { 0 };
        match self.feed_forward {
            FeedForward::Gated { intermediate: i } => 3 * d * i + biased(2 * i + d),
            FeedForward::Plain { intermediate: i } => 2 * d * i + biased(i + d),
            FeedForward::Experts { intermediate: i, experts, .. } => experts * 3 * d * i + d * experts,
        }
    }

    /// Parameters of one norm over the residual stream.
    fn norm_parameters(&self) -> u64 {
        if self.norm_bias { 2 * self.hidden } else { self.hidden }
    }

    /// All parameters, a shared embedding table counted once.
    pub fn parameters(&self) -> u64 {
        let norm = self.norm_parameters();
        let qk_norm = if self.qk_norm { 2 * self.head_dim } else { 0 };
        let (attention, feed_forward) = (self.attention_parameters(), self.feed_forward_parameters());
        let layer = attention + feed_forward + self.norms_a_layer * norm + qk_norm;
        let head = if self.tied { 0 } else { self.vocab * self.hidden };
        let head_bias = if self.biases.head { self.vocab } else { 0 };
        let (encoder, crossed, stacks) = match self.encoder_layers {
            0 => (0, 0, 1),
            layers => (layers * layer, self.layers * (attention + norm), 2),
        };
        (self.vocab + self.learned_positions) * self.hidden
            + self.layers * layer
            + encoder
            + crossed
            + stacks * (norm + self.position_buckets * self.heads)
            + head
            + head_bias
    }

    /// Parameters that a token uses: those of a mixture's other experts are left out.
    pub fn active_parameters(&self) -> u64 {
        match self.feed_forward {
            FeedForward::Experts { intermediate, experts, active } => {
                self.parameters() - self.layers * 3 * self.hidden * intermediate * (experts - active.min(experts))
            }
            _ => self.parameters(),
        }
    }

    /// An upper bound of the parameters, in numbers that cannot overflow: every dimension is at most [`LARGEST`], below
    /// 2²⁷.
    pub fn parameters_at_most(&self) -> u128 {
        let wide = |value: u64| u128::from(value);
        let (d, heads, head_dim) = (wide(self.hidden), wide(self.heads) + wide(self.kv_heads), wide(self.head_dim));
        let attention = 2 * (d + 1) * heads * head_dim;
        let feed_forward = match self.feed_forward {
            FeedForward::Gated { intermediate } | FeedForward::Plain { intermediate } => {
                3 * (d + 1) * wide(intermediate)
            }
            FeedForward::Experts { intermediate, experts, .. } => (3 * d * wide(intermediate) + d) * wide(experts),
        };
        let norms = (wide(self.norms_a_layer) + 3) * 2 * d + 2 * head_dim;
        // With an encoder, its layers and the decoder's cross-attention.
        let layers = wide(self.layers) * 2 + wide(self.encoder_layers);
        let tables = 2 * wide(self.vocab) + wide(self.learned_positions);
        layers * (attention + feed_forward + norms) + tables * (d + 1) + 2 * wide(self.position_buckets) * heads
    }
}
