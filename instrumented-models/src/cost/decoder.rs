//! Cost of a whole step of a decoder, from its dimensions alone.

use super::{Cost, Widths, Work, cast, linear, lookup, norm, pointwise, swiglu};
use crate::config::{FeedForward, ModelConfig};

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
    /// Projections of the feed-forward network.
    pub ffn: Cost,
    /// Projection to the vocabulary, for the last position of each sequence.
    pub lm_head: Cost,
    /// Weights outside the products, with the activations of these operations: rows of the embedding table that are
    /// read, norms, biases.
    pub small_weights: Cost,
    /// Operations without weights and without counted FLOPs: rotary embedding, softmax, activation function, residual
    /// sums, changes of type.
    pub pointwise: Cost,
}

impl DecoderCost {
    /// All terms.
    pub fn total(&self) -> Cost {
        self.linear() + self.attention() + self.small_weights + self.pointwise
    }

    /// Matrix products with weights: QKV, output, feed-forward and LM head.
    pub fn linear(&self) -> Cost {
        self.qkv + self.output + self.ffn + self.lm_head
    }

    /// QKᵀ, AV, and reading and writing keys and values: the part that grows with the context.
    pub fn attention(&self) -> Cost {
        self.scores + self.context + self.kv_write
    }
}

/// Cost of one forward step of a decoder of this `config` with elements of these `widths`, executed as
/// [`Llama`](crate::Llama) or [`Gpt2`](crate::Gpt2) does it. Logits are computed for the last position of each sequence only.
///
/// ```
/// use candlescope_models::config::ModelConfig;
/// use candlescope_models::cost::{Widths, Work, decoder_step};
/// let llama = ModelConfig::named("llama-3-8b").unwrap();
/// let step = decoder_step(&llama, Work::new(1, 1, 0), Widths::of(2));
/// assert_eq!(step.linear().flops / 1_000_000, 15_009); // 15.009 GFLOP a token
/// ```
pub fn decoder_step(config: &ModelConfig, work: Work, widths: Widths) -> DecoderCost {
    let (d, layers) = (config.hidden_size, config.num_layers);
    let dims = config.attention();
    let work = work.within(config.window);
    let (q_out, kv_out) = (dims.heads * dims.head_dim, dims.kv_heads * dims.head_dim);
    let rows = work.rows();
    let (w, a) = (widths.weights as u64, widths.activations);
    let times = |cost: Cost| (0..layers).map(|_| cost).sum::<Cost>();
    let dense = |rows: usize, k: usize, n: usize| linear(rows, k, n, (k * n) as u64 * w, a);

    let (ffn, activated) = match config.feed_forward {
        FeedForward::SwiGlu { intermediate: i } => {
            (dense(rows, d, i) + dense(rows, d, i) + dense(rows, i, d), swiglu(rows * i, a))
        }
        FeedForward::Gelu { intermediate: i } => (dense(rows, d, i) + dense(rows, i, d), pointwise(rows * i, 2, a)),
        FeedForward::MoeSwiGlu { intermediate: i, experts, active } => {
            let read = (rows * active).min(experts) as u64;
            let routed = rows * active;
            let products = dense(routed, d, i) + dense(routed, d, i) + dense(routed, i, d);
            (Cost { weight_bytes: 3 * (d * i) as u64 * read * w, ..products }, swiglu(routed * i, a))
        }
    };
    // Each bias is added by an operation of its own, after the product.
    let biased = match (config.is_gpt2(), config.qkv_bias) {
        (true, _) => q_out + 2 * kv_out + d + config.intermediate() + d,
        (false, true) => q_out + 2 * kv_out,
        (false, false) => 0,
    };
    let biases = Cost { weight_bytes: biased as u64 * w, ..pointwise(rows * biased, 2, a) };
    let table_row = d as u64 * w;
    // With several sequences, their last positions are copied.
    let last = if work.batch > 1 && work.tokens > 1 { pointwise(work.batch * d, 2, a) } else { Cost::ZERO };
    // GPT-2 has queries, keys and values from one product, and learned positions: looked up once for all sequences,
    // and added to the words of each.
    let (placed, qkv, positions, added) = if config.is_gpt2() {
        let added = pointwise((2 * rows + work.tokens) * d, 1, a);
        (dims.split(work, a), dense(rows, d, q_out + 2 * kv_out), lookup(work.tokens, d, table_row, a), added)
    } else {
        let apart = dense(rows, d, q_out) + dense(rows, d, kv_out) + dense(rows, d, kv_out);
        (dims.rotary(work, a), apart, Cost::ZERO, Cost::ZERO)
    };
    // Its norms have biases.
    let norm_row = if config.is_gpt2() { 2 * table_row } else { table_row };
    let block = placed + dims.softmax(work, widths) + activated + pointwise(rows * d, 2 * 3, a);
    DecoderCost {
        qkv: times(qkv),
        scores: times(dims.scores(work, widths)),
        context: times(dims.context(work, widths)),
        kv_write: times(dims.kv_write(work, a)),
        output: times(dense(rows, q_out, d)),
        ffn: times(ffn),
        lm_head: dense(work.batch, d, config.vocab_size),
        small_weights: times(norm(rows * d, norm_row, a) + norm(rows * d, norm_row, a) + biases)
            + norm(work.batch * d, norm_row, a)
            + lookup(rows, d, table_row, a)
            + positions,
        pointwise: times(block) + added + last + cast(work.batch * config.vocab_size, a, 4),
    }
}
