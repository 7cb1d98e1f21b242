//! Cost of attention as [`Attention`](crate::layers::Attention) executes it: products over all positions, masked
//! afterwards, with every intermediate in memory.

use super::{Cost, Widths, Work, cast, pointwise};
use crate::config::AttentionDims;

impl AttentionDims {
    /// Elements of the queries: rows·q·d.
    const fn queries(&self, work: Work) -> usize {
        work.rows() * self.heads * self.head_dim
    }

    /// Elements of the new keys, or values: rows·kv·d.
    const fn new_keys(&self, work: Work) -> usize {
        work.rows() * self.kv_heads * self.head_dim
    }

    /// Elements of all keys, or values: ΣC·kv·d.
    const fn all_keys(&self, work: Work) -> usize {
        work.batch * work.context * self.kv_heads * self.head_dim
    }

    /// Elements of the scores: q·T·C for each sequence.
    const fn pairs(&self, work: Work) -> usize {
        work.rows() * self.heads * work.context
    }

    /// Elements copied by a change of layout between (tokens, heads) and (heads, tokens): all, unless one of the two
    /// is 1.
    const fn turned(work: Work, heads: usize, elements: usize) -> usize {
        if work.tokens > 1 && heads > 1 { elements } else { 0 }
    }

    /// FLOPs of either product, 2·q·d each for the positions attended to and for the masked ones, and the bytes of the
    /// keys or values it reads: those that the model needs, and beyond a window those that are read all the same.
    fn product(&self, work: Work, widths: Widths) -> Cost {
        let each = 2 * (self.heads * self.head_dim) as u64;
        let all = work.rows() as u64 * work.context as u64;
        let keys = self.all_keys(work);
        let needed = work.batch * work.seen() * self.kv_heads * self.head_dim;
        // Keys of another type are first converted for the product, which reads and writes them once.
        let widened = if widths.activations == widths.products { 0 } else { 2 * keys * widths.products };
        Cost {
            flops: each * work.attended(),
            surplus_flops: each * (all - work.attended()),
            kv_bytes: (needed * widths.activations) as u64,
            activation_bytes: (widened + (keys - needed) * widths.activations) as u64,
            ..Cost::ZERO
        }
    }

    /// QKᵀ/√d: 2·q·d·Σ(attended) FLOPs needed, 2·q·d·T·C executed. Reads the keys, ΣC·kv·d elements; the queries are
    /// scaled, which reads and writes them, and read; the scores, q·T·C, are written.
    pub fn scores(&self, work: Work, widths: Widths) -> Cost {
        let Widths { activations, products, .. } = widths;
        let queries = self.queries(work);
        self.product(work, widths)
            + cast(queries, activations, products)
            + pointwise(queries, 3, products)
            + pointwise(self.pairs(work), 1, products)
    }

    /// The softmax over the scores, in f32: converts them if they have another type, adds the mask (T·C of f32) if
    /// there is more than one token, reads and writes them once.
    pub fn softmax(&self, work: Work, widths: Widths) -> Cost {
        let pairs = self.pairs(work);
        let masked = match work.tokens {
            0 | 1 => Cost::ZERO,
            tokens => pointwise(pairs, 2, 4) + pointwise(tokens * work.context, 1, 4),
        };
        cast(pairs, widths.products, 4) + masked + pointwise(pairs, 2, 4)
    }

    /// AV: as many FLOPs as QKᵀ; reads the values, as many bytes as the keys, and the weights, q·T·C, in the products'
    /// type; writes q·d for each token, converted to the projections' layout and type.
    pub fn context(&self, work: Work, widths: Widths) -> Cost {
        let Widths { activations, products, .. } = widths;
        let (pairs, out) = (self.pairs(work), self.queries(work));
        self.product(work, widths)
            + cast(pairs, 4, products)
            + pointwise(pairs, 1, products)
            + pointwise(out, 1, products)
            + pointwise(Self::turned(work, self.heads, out), 2, products)
            + cast(out, products, activations)
    }

    /// Rotating queries and keys by their positions, including the change of layout; reads T·d/2 cosines and as many
    /// sines for each of the two.
    pub fn rotary(&self, work: Work, width: usize) -> Cost {
        let (q, k) = (self.queries(work), self.new_keys(work));
        let copied = Self::turned(work, self.heads, q) + Self::turned(work, self.kv_heads, k);
        let tables = 2 * work.tokens * self.head_dim;
        pointwise(q + k + copied, 2, width) + pointwise(tables, 1, width)
    }

    /// Taking queries, keys and values out of what one projection made, into the heads' layout. Values of several tokens
    /// and heads are copied by whoever keeps them ([`turned_values`](Self::turned_values)); of one token alone nothing
    /// is copied.
    pub fn split(&self, work: Work, width: usize) -> Cost {
        if work.rows() <= 1 {
            return Cost::ZERO;
        }
        let keys = self.new_keys(work);
        let values = if Self::turned(work, self.kv_heads, keys) == 0 { keys } else { 0 };
        pointwise(self.queries(work) + keys + values, 2, width)
    }

    /// Writing the new keys and values: 2·T·kv·d elements read and written, after the values were copied to the cache's
    /// layout.
    pub fn kv_write(&self, work: Work, width: usize) -> Cost {
        let keys = self.new_keys(work);
        let written = Cost { kv_bytes: (2 * keys * width) as u64, ..pointwise(2 * keys, 1, width) };
        written + self.turned_values(work, width)
    }

    /// Copying the values from the projection's layout to the heads'.
    pub fn turned_values(&self, work: Work, width: usize) -> Cost {
        pointwise(Self::turned(work, self.kv_heads, self.new_keys(work)), 2, width)
    }
}
