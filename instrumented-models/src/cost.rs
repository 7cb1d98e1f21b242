//! Analytic FLOPs and bytes of decoder operations.
//!
//! Formulas follow vLLM's `vllm/v1/metrics/perf.py`, with attention corrected to be causal-exact. FLOPs count matrix products
//! (2·M·N·K); norms, activations, softmax and rotary embeddings are left out, as every published figure leaves them out.
//! Bytes count what a step cannot avoid moving: weights read, cached keys and values read and written. Activations are left
//! out, so bytes are a lower bound and a step's bytes over its time is its memory-bandwidth utilisation. [`gemm`] gives the
//! textbook figure with activations for a product that stands alone.

use crate::config::{FeedForward, ModelConfig};
use candlescope_core::Annotation;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

/// Work of one operation or of a whole step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Floating-point operations: a multiply and an add are two.
    pub flops: u64,
    /// Bytes of weights read.
    pub weight_bytes: u64,
    /// Bytes of cached keys and values read and written.
    pub kv_bytes: u64,
}

impl Cost {
    /// All bytes counted: weights, keys and values.
    pub const fn bytes(&self) -> u64 {
        self.weight_bytes + self.kv_bytes
    }

    /// The cost as an annotation; what is zero stays unsaid, so that "not counted" never reads as "none".
    pub fn annotation(&self) -> Annotation {
        let mut annotation = Annotation::new();
        if self.flops > 0 {
            annotation = annotation.flops(self.flops);
        }
        if self.bytes() > 0 {
            annotation = annotation.bytes(self.bytes());
        }
        annotation
    }
}

impl Add for Cost {
    type Output = Cost;
    fn add(self, other: Cost) -> Cost {
        Cost {
            flops: self.flops + other.flops,
            weight_bytes: self.weight_bytes + other.weight_bytes,
            kv_bytes: self.kv_bytes + other.kv_bytes,
        }
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Cost) {
        *self = *self + other;
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Cost>>(iter: I) -> Cost {
        iter.fold(Cost::default(), Add::add)
    }
}

/// A matrix product (M×K)·(K×N) that stands alone: 2·M·N·K FLOPs and (M·K + K·N + M·N)·`width` bytes, where `width` is the
/// size of an element in bytes. Returns (FLOPs, bytes).
pub const fn gemm(m: u64, n: u64, k: u64, width: u64) -> (u64, u64) {
    (2 * m * n * k, (m * k + k * n + m * n) * width)
}

/// A projection of `rows` vectors from `k` to `n` features whose stored weights (bias included) take `weight_bytes`.
pub const fn linear(rows: usize, k: usize, n: usize, weight_bytes: u64) -> Cost {
    Cost { flops: 2 * rows as u64 * k as u64 * n as u64, weight_bytes, kv_bytes: 0 }
}

/// What a step works on. Sequences of a batch have equal lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// Sequences.
    pub batch: usize,
    /// New tokens of each sequence: T of one sequence.
    pub tokens: usize,
    /// Tokens of each sequence after the step: C.
    pub context: usize,
}

impl Work {
    /// `tokens` new tokens after `position` earlier ones, in each of `batch` sequences.
    pub const fn new(batch: usize, tokens: usize, position: usize) -> Self {
        Self { batch, tokens, context: position + tokens }
    }

    /// New tokens of all sequences.
    pub const fn rows(&self) -> usize {
        self.batch * self.tokens
    }

    /// Positions attended to, over all new tokens of all sequences: T·C − T(T−1)/2 for each sequence.
    pub const fn attended(&self) -> u64 {
        let (t, c) = (self.tokens as u64, self.context as u64);
        self.batch as u64 * (t * c - t * t.saturating_sub(1) / 2)
    }

    /// Σ of context lengths over the sequences.
    pub const fn total_context(&self) -> u64 {
        (self.batch * self.context) as u64
    }
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
    /// QKᵀ: 2·q·d·Σ(attended) FLOPs; reads the keys, ΣC·kv·d·`kv_width` bytes.
    pub const fn scores(&self, work: Work, kv_width: usize) -> Cost {
        Cost {
            flops: 2 * (self.heads * self.head_dim) as u64 * work.attended(),
            weight_bytes: 0,
            kv_bytes: work.total_context() * (self.kv_heads * self.head_dim * kv_width) as u64,
        }
    }

    /// AV: as many FLOPs as QKᵀ; reads the values, as many bytes as the keys.
    pub const fn context(&self, work: Work, kv_width: usize) -> Cost {
        self.scores(work, kv_width)
    }

    /// Writing the new keys and values: 2·T·kv·d·`kv_width` bytes.
    pub const fn kv_write(&self, work: Work, kv_width: usize) -> Cost {
        let bytes = 2 * (work.rows() * self.kv_heads * self.head_dim * kv_width) as u64;
        Cost { flops: 0, weight_bytes: 0, kv_bytes: bytes }
    }
}

/// Cost of a step of a decoder, by term.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DecoderCost {
    /// Query, key and value projections.
    pub qkv: Cost,
    /// QKᵀ.
    pub scores: Cost,
    /// Attention-weighted sum of the values.
    pub context: Cost,
    /// Writing new keys and values.
    pub kv_write: Cost,
    /// Output projection of the attention.
    pub output: Cost,
    /// Feed-forward network.
    pub ffn: Cost,
    /// Projection to the vocabulary, for the last position of each sequence.
    pub lm_head: Cost,
    /// Weights outside the products: rows of the embedding table that are read, norms, biases.
    pub small_weights: Cost,
}

impl DecoderCost {
    /// All terms.
    pub fn total(&self) -> Cost {
        self.linear() + self.attention() + self.small_weights
    }

    /// Matrix products with weights: QKV, output, feed-forward and LM head.
    pub fn linear(&self) -> Cost {
        self.qkv + self.output + self.ffn + self.lm_head
    }

    /// QKᵀ, AV, and reading and writing keys and values: what grows with the context.
    pub fn attention(&self) -> Cost {
        self.scores + self.context + self.kv_write
    }
}

/// Cost of one forward step of a decoder of this `config` with weights of `weight_width` bytes and cached values of
/// `kv_width` bytes each. Logits are computed for the last position of each sequence only.
///
/// ```
/// use candlescope_models::config::ModelConfig;
/// use candlescope_models::cost::{Work, decoder_step};
/// let llama = ModelConfig::named("llama-3-8b").unwrap();
/// let step = decoder_step(&llama, Work::new(1, 1, 0), 2, 2);
/// assert_eq!(step.linear().flops / 1_000_000, 15_009); // 15.009 GFLOP a token
/// ```
pub fn decoder_step(config: &ModelConfig, work: Work, weight_width: usize, kv_width: usize) -> DecoderCost {
    let (d, layers) = (config.hidden_size, config.num_layers);
    let dims = config.attention();
    let (q_out, kv_out) = (dims.heads * dims.head_dim, dims.kv_heads * dims.head_dim);
    let rows = work.rows();
    let w = weight_width as u64;
    let times = |cost: Cost| (0..layers).map(|_| cost).sum::<Cost>();
    let dense = |rows: usize, k: usize, n: usize| linear(rows, k, n, (k * n) as u64 * w);

    let ffn = match config.feed_forward {
        FeedForward::SwiGlu { intermediate } => dense(rows, d, 3 * intermediate),
        FeedForward::Gelu { intermediate } => dense(rows, d, 2 * intermediate),
        FeedForward::MoeSwiGlu { intermediate, experts, active } => {
            let read = (rows * active).min(experts) as u64;
            let expert = 3 * (d * intermediate) as u64;
            Cost { flops: 2 * expert * (rows * active) as u64, weight_bytes: expert * read * w, kv_bytes: 0 }
        }
    };
    let norms = (2 * layers + 1) * d;
    let biases = if config.qkv_bias { layers * (q_out + 2 * kv_out) } else { 0 };
    let embedding_rows = rows * d;
    DecoderCost {
        qkv: times(dense(rows, d, q_out + 2 * kv_out)),
        scores: times(dims.scores(work, kv_width)),
        context: times(dims.context(work, kv_width)),
        kv_write: times(dims.kv_write(work, kv_width)),
        output: times(dense(rows, q_out, d)),
        ffn: times(ffn),
        lm_head: dense(work.batch, d, config.vocab_size),
        small_weights: Cost { flops: 0, weight_bytes: (norms + biases + embedding_rows) as u64 * w, kv_bytes: 0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn llama3() -> ModelConfig {
        ModelConfig::named("llama-3-8b").unwrap()
    }

    #[test]
    fn llama_3_8b_linear_flops_a_token() {
        let step = decoder_step(&llama3(), Work::new(1, 1, 0), 2, 2);
        assert_eq!(step.linear().flops, 15_009_316_864);
        let gflop = step.linear().flops as f64 / 1e9;
        assert!((gflop - 15.009).abs() < 5e-4, "{gflop}");
    }

    #[test]
    fn llama_3_8b_slope_per_context_token() {
        let at = |position| decoder_step(&llama3(), Work::new(1, 1, position), 2, 2).total();
        assert_eq!(at(1001).flops - at(1000).flops, 524_288);
        assert_eq!(at(1001).kv_bytes - at(1000).kv_bytes, 131_072);
    }

    #[test]
    fn prefill_attends_causally() {
        // 1 + 2 + 3 + 4 positions, then 5 + 6 with four cached.
        assert_eq!(Work::new(1, 4, 0).attended(), 10);
        assert_eq!(Work::new(1, 2, 4).attended(), 11);
        assert_eq!(Work::new(3, 2, 4).attended(), 33);
        assert_eq!(Work::new(1, 0, 4).attended(), 0);
    }

    #[test]
    fn prefill_equals_its_tokens_one_by_one() {
        let config = ModelConfig::named("smollm2-135m").unwrap();
        let whole = decoder_step(&config, Work::new(2, 7, 0), 4, 4);
        let single: Vec<_> = (0..7).map(|p| decoder_step(&config, Work::new(2, 1, p), 4, 4)).collect();
        assert_eq!(whole.qkv.flops, single.iter().map(|s| s.qkv.flops).sum::<u64>());
        assert_eq!(whole.ffn.flops, single.iter().map(|s| s.ffn.flops).sum::<u64>());
        assert_eq!(whole.scores.flops, single.iter().map(|s| s.scores.flops).sum::<u64>());
        assert_eq!(whole.kv_write.kv_bytes, single.iter().map(|s| s.kv_write.kv_bytes).sum::<u64>());
        // The head runs for the last position only, and weights are read once.
        assert_eq!(whole.lm_head, single[0].lm_head);
        assert_eq!(whole.qkv.weight_bytes, single[0].qkv.weight_bytes);
    }

    #[test]
    fn moe_reads_only_the_experts_in_use() {
        let mut config = llama3();
        config.feed_forward = FeedForward::MoeSwiGlu { intermediate: 14_336, experts: 8, active: 2 };
        let one = decoder_step(&config, Work::new(1, 1, 0), 2, 2).ffn;
        let many = decoder_step(&config, Work::new(1, 100, 0), 2, 2).ffn;
        let expert = 3 * 4096 * 14_336u64;
        assert_eq!(one.flops, 2 * expert * 2 * 32);
        assert_eq!(one.weight_bytes, expert * 2 * 2 * 32);
        assert_eq!(many.weight_bytes, expert * 8 * 2 * 32);
    }

    #[test]
    fn gelu_and_gemm() {
        let mut config = llama3();
        config.feed_forward = FeedForward::Gelu { intermediate: 16_384 };
        let ffn = decoder_step(&config, Work::new(1, 3, 0), 2, 2).ffn;
        assert_eq!(ffn.flops, 4 * 3 * 4096 * 16_384 * 32);
        assert_eq!(ffn.weight_bytes, 2 * 4096 * 16_384 * 2 * 32);
        assert_eq!(gemm(2, 3, 5, 4), (60, (10 + 15 + 6) * 4));
    }

    #[test]
    fn what_is_not_counted_stays_unsaid() {
        assert!(Cost::default().annotation().is_empty());
        let annotation = linear(1, 2, 3, 24).annotation();
        assert_eq!((annotation.get_flops(), annotation.get_bytes()), (Some(12), Some(24)));
    }
}
