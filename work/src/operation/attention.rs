//! Cost of attention as candlescope's instrumented layers and candle's models without flash attention execute it:
//! products over all kept positions, masked afterwards, with every intermediate in memory.

use super::{Cost, Count, cast, pointwise, rotary};
use crate::input::{Input, Widths};

/// FLOPs of a product, QKᵀ or AV, for `pairs` of a token and a position, with queries of `queries` features, all heads
/// together: 2·q·d each.
pub fn product_flops(queries: impl Count, pairs: impl Count) -> f64 {
    2.0 * queries.count() * pairs.count()
}

/// Heads of an attention; of one device, where several share them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Heads {
    /// Query heads, on one device: q.
    pub queries: f64,
    /// Key and value heads: kv.
    pub keys: f64,
    /// Features of a head: d.
    pub features: f64,
}

impl Heads {
    /// So many query heads, key heads, and features of a head.
    pub fn new(queries: impl Count, keys: impl Count, features: impl Count) -> Self {
        Self { queries: queries.count(), keys: keys.count(), features: features.count() }
    }

    fn product_flops(&self, pairs: f64) -> f64 {
        product_flops(self.queries * self.features, pairs)
    }

    /// Elements of the queries: rows·q·d.
    pub fn query_elements(&self, input: Input) -> f64 {
        input.rows() * self.queries * self.features
    }

    /// Elements of the new keys, or values: rows·kv·d.
    pub fn key_elements(&self, input: Input) -> f64 {
        input.rows() * self.keys * self.features
    }

    /// Elements of the scores: q·T for each position that is multiplied.
    pub fn scores_elements(&self, input: Input) -> f64 {
        input.rows() * self.queries * input.multiplied()
    }

    /// Elements of the queries that a change of layout between (tokens, heads) and (heads, tokens) copies: all, unless
    /// one of the two is 1.
    pub fn turned_queries(&self, input: Input) -> f64 {
        if input.tokens > 1 && self.queries > 1.0 { self.query_elements(input) } else { 0.0 }
    }

    /// The same of the new keys, or values.
    pub fn turned_keys(&self, input: Input) -> f64 {
        if input.tokens > 1 && self.keys > 1.0 { self.key_elements(input) } else { 0.0 }
    }

    /// FLOPs of either product, for the positions attended to and for the masked ones, and the bytes of the keys or
    /// values it reads: those that the model needs, and beyond a window those that are read all the same.
    fn product(&self, input: Input, widths: Widths) -> Cost {
        let keys = input.batch as f64 * input.multiplied() * self.keys * self.features;
        let needed = input.needed() * self.keys * self.features;
        let flops = self.product_flops(input.attended());
        // Keys of another type are first converted for the product, which reads and writes them once.
        let widened = if widths.cached == widths.products { 0.0 } else { 2.0 * keys * widths.products };
        Cost {
            flops,
            surplus_flops: (self.product_flops(input.rows() * input.multiplied()) - flops).max(0.0),
            kv_bytes: needed * widths.cached,
            activation_bytes: widened + (keys - needed).max(0.0) * widths.cached,
            ..Cost::ZERO
        }
    }

    /// QKᵀ/√d: 2·q·d·Σ(attended) FLOPs needed, 2·q·d·T·C executed. Reads the keys, ΣC·kv·d elements; the queries are
    /// scaled, which reads and writes them, and read; the scores, q·T·C, are written.
    pub fn scores(&self, input: Input, widths: Widths) -> Cost {
        let Widths { activations, products, .. } = widths;
        let queries = self.query_elements(input);
        self.product(input, widths)
            + cast(queries, activations, products)
            + pointwise(queries, 3, products)
            + pointwise(self.scores_elements(input), 1, products)
    }

    /// The softmax over the scores, in f32: converts them if they have another type, adds the mask (T·C of f32) if
    /// there is more than one token, reads and writes them once.
    pub fn softmax(&self, input: Input, widths: Widths) -> Cost {
        let pairs = self.scores_elements(input);
        let masked = match input.tokens {
            0 | 1 => Cost::ZERO,
            tokens => pointwise(pairs, 2, 4) + pointwise(tokens as f64 * input.multiplied(), 1, 4),
        };
        cast(pairs, widths.products, 4) + masked + pointwise(pairs, 2, 4)
    }

    /// AV: as many FLOPs as QKᵀ; reads the values, as many bytes as the keys, and the weights, q·T·C, in the products'
    /// type; writes q·d for each token, converted to the projections' layout and type.
    pub fn context(&self, input: Input, widths: Widths) -> Cost {
        let Widths { activations, products, .. } = widths;
        let (pairs, out) = (self.scores_elements(input), self.query_elements(input));
        self.product(input, widths)
            + cast(pairs, 4, products)
            + pointwise(pairs, 1, products)
            + pointwise(out, 1, products)
            + pointwise(self.turned_queries(input), 2, products)
            + cast(out, products, activations)
    }

    /// Rotating queries and keys by their positions, including the change of layout.
    pub fn rotary(&self, input: Input, width: impl Count) -> Cost {
        let turned = |elements| rotary(elements, input.tokens, self.features, width);
        let copied = self.turned_queries(input) + self.turned_keys(input);
        turned(self.query_elements(input)) + turned(self.key_elements(input)) + pointwise(copied, 2, width)
    }

    /// Taking queries, keys and values out of what one projection made, into the heads' layout. Values of several tokens
    /// and heads are copied by whoever keeps them ([`turned_values`](Self::turned_values)); of one token alone nothing
    /// is copied.
    pub fn split(&self, input: Input, width: impl Count) -> Cost {
        pointwise(self.split_elements(input), 2, width)
    }

    /// Elements that [`split`](Self::split) copies.
    pub fn split_elements(&self, input: Input) -> f64 {
        if input.rows() <= 1.0 {
            return 0.0;
        }
        let keys = self.key_elements(input);
        let values = if self.turned_keys(input) == 0.0 { keys } else { 0.0 };
        self.query_elements(input) + keys + values
    }

    /// Writing the new keys and values: 2·T·kv·d elements read and written, after the values were copied to the cache's
    /// layout.
    pub fn kv_write(&self, input: Input, widths: Widths) -> Cost {
        let keys = 2.0 * self.key_elements(input);
        let written = Cost { kv_bytes: keys * widths.cached, ..pointwise(keys, 1, widths.activations) };
        written + self.turned_values(input, widths.activations)
    }

    /// Writing the new keys and values in 8 bits, of activations of `width` bytes: takes magnitudes and the largest of
    /// each head (the scale), widens to f32, divides, moves and casts to bytes, as an operation of candle each. Where
    /// it `adds_zeros`, it also adds zero times each element in f32 to the scale, so that what is no number stays none:
    /// always but for 16-bit floats on an NVIDIA GPU. Then the bytes and scales are written, after the values were
    /// copied to the heads' layout.
    pub fn kv_write_in_8_bits(&self, input: Input, width: impl Count, adds_zeros: bool) -> Cost {
        let elements = 2.0 * self.key_elements(input);
        let (width, scales) = (width.count(), elements / self.features);
        // |x| 2, its largest 1, which is widened; times zero 2, and the sum of that 1, which is added.
        let largest = pointwise(elements, 3, width) + pointwise(scales, 1, width) + cast(scales, width, 4);
        let added = if adds_zeros { pointwise(elements, 3, 4) + pointwise(scales, 4, 4) } else { Cost::ZERO };
        Cost { kv_bytes: self.bytes_in_8_bits(elements), ..cast(elements, width, 4) }
            + largest
            + added
            // x/s 2, moved 2; of scales: times 1/127, divided by, and stored.
            + pointwise(elements, 4, 4)
            + pointwise(scales, 4, 4)
            + cast(elements, 4, 1)
            + pointwise(elements, 1, 1)
            + self.turned_values(input, width)
    }

    /// Reading all keys and values in 8 bits and widening them to `width` bytes, in which attention then reads them: a
    /// cast, a difference, and a product with the scales, which are cast before unless they are as wide.
    pub fn kv_read_in_8_bits(&self, input: Input, width: impl Count) -> Cost {
        let of = |positions: f64| 2.0 * positions * self.keys * self.features;
        let (all, needed) = (of(input.batch as f64 * input.multiplied()), of(input.needed()));
        let (width, scales) = (width.count(), all / self.features);
        let beyond = self.bytes_in_8_bits((all - needed).max(0.0));
        Cost { kv_bytes: self.bytes_in_8_bits(needed), activation_bytes: beyond, ..Cost::ZERO }
            + pointwise(all, 5, width)
            + pointwise(scales, if width == 4.0 { 0 } else { 2 }, width)
    }

    /// Bytes of so many keys or values in 8 bits: a byte each, and a scale in f32 for each position and head.
    fn bytes_in_8_bits(&self, elements: f64) -> f64 {
        elements + 4.0 * elements / self.features
    }

    /// Copying the values from the projection's layout to the heads'.
    pub fn turned_values(&self, input: Input, width: impl Count) -> Cost {
        pointwise(self.turned_keys(input), 2, width)
    }

    /// Attention as one operation that reads queries, keys and values and writes its output once: 4·q·d FLOPs for each
    /// position attended to.
    pub fn whole(&self, input: Input, width: impl Count) -> Cost {
        let keys = 2.0 * input.needed() * self.keys * self.features * width.count();
        Cost {
            flops: 2.0 * self.product_flops(input.attended()),
            kv_bytes: keys,
            ..pointwise(self.query_elements(input), 2, width)
        }
    }
}
