//! FLOPs and bytes of the operations that models are made of: one formula each.
//!
//! Formulas follow vLLM's `vllm/v1/metrics/perf.py`, with attention corrected to be causal-exact. FLOPs count matrix
//! products (2·M·N·K); norms, activation functions, softmax and rotary embeddings are left out, as in all published
//! figures. [`flops_an_element`] has theirs, for kernels studied by themselves.
//!
//! FLOPs and bytes are each counted in two ways, for different questions:
//!
//! - *FLOPs needed* ([`Cost::flops`]) are the model's: a prompt's token attends to itself and those before it. They are
//!   the numerator of MFU. *FLOPs executed* ([`Cost::flops_executed`]) are candle's, which multiplies every token with
//!   every other and masks afterwards. They are the numerator of HFU (both as in PaLM, arXiv 2204.02311, appendix B).
//! - *Bytes* ([`Cost::bytes`]) are those that a step cannot avoid moving: weights read, cached keys and values read and
//!   written. They are the numerator of memory-bandwidth utilisation of a step (MBU). *I/O bytes* ([`Cost::io_bytes`])
//!   also include activations: every operation of candle in the interval reads its inputs and writes its output once,
//!   as candle executes it, including copies to another layout or element type. They are used for arithmetic intensity
//!   and GB/s of an operation. A product of M×K by K×N alone is (M·K + K·N + M·N) elements ([`gemm`]).
//!
//! Neither includes temporary memory inside an operation of candle (the unfolded image of a convolution, activations
//! quantised for a quantised product), the growth of a cache, or what the machine's caches save.
//!
//! Everything is `f64`: shares of a device are no whole numbers, nothing overflows, and whole numbers are exact up to
//! 2⁵³.

mod attention;

pub use attention::{Heads, product_flops};

use serde::Serialize;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul};

/// A number of something, in whichever type its owner has it.
pub trait Count: Copy {
    /// The number.
    fn count(self) -> f64;
}

macro_rules! counts {
    ($($kind:ty)*) => {$(
        impl Count for $kind {
            #[inline]
            fn count(self) -> f64 {
                self as f64
            }
        }
    )*};
}

// `i32` is the type of a bare literal.
counts!(f64 i32 u32 u64 usize);

/// Work of one operation or of a whole step.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Cost {
    /// Floating-point operations that the model needs: a multiply and an add are two.
    pub flops: f64,
    /// Further floating-point operations that are executed, such as the masked part of a prompt's attention.
    pub surplus_flops: f64,
    /// Bytes of weights read.
    pub weight_bytes: f64,
    /// Bytes of cached keys and values read and written.
    pub kv_bytes: f64,
    /// Bytes of activations read and written, and of weights, keys and values that need not be read; 0 if they were not
    /// counted.
    pub activation_bytes: f64,
}

/// Bytes of one token's keys and values in `layers` layers, of elements of `width` bytes: two rows, keys and values, of
/// each head.
pub fn kv_bytes_of_a_token(layers: f64, kv_heads: f64, head_dim: f64, width: f64) -> f64 {
    2.0 * layers * kv_heads * head_dim * width
}

/// Bytes of a cached key or value in 8 bits, with its share of a scale in f32 for each position and head of `features`:
/// 1 + 4/d.
pub fn kv_width_in_8_bits(features: f64) -> f64 {
    1.0 + 4.0 / features
}

impl Cost {
    /// No work: every figure is 0.
    pub const ZERO: Self =
        Self { flops: 0.0, surplus_flops: 0.0, weight_bytes: 0.0, kv_bytes: 0.0, activation_bytes: 0.0 };

    /// Bytes of weights, keys and values: the numerator of MBU.
    pub const fn bytes(&self) -> f64 {
        self.weight_bytes + self.kv_bytes
    }

    /// All bytes, including activations in and out: the denominator of arithmetic intensity.
    pub const fn io_bytes(&self) -> f64 {
        self.bytes() + self.activation_bytes
    }

    /// All floating-point operations that are executed: the numerator of HFU.
    pub const fn flops_executed(&self) -> f64 {
        self.flops + self.surplus_flops
    }

    /// This work, done where `needed` would have been enough: the rest of its FLOPs is surplus, the rest of its bytes
    /// counts among the activations'.
    #[must_use]
    pub fn needing(self, needed: Self) -> Self {
        Self {
            flops: needed.flops,
            surplus_flops: (self.flops_executed() - needed.flops).max(0.0),
            activation_bytes: (self.io_bytes() - needed.bytes()).max(0.0),
            ..needed
        }
    }

    /// The same where every token attends to all positions: nothing is masked.
    #[must_use]
    pub fn unmasked(self) -> Self {
        Self { flops: self.flops_executed(), surplus_flops: 0.0, ..self }
    }

    /// The same where keys and values live within the layer.
    #[must_use]
    pub fn without_cache(self) -> Self {
        Self { kv_bytes: 0.0, activation_bytes: self.activation_bytes + self.kv_bytes, ..self }
    }
}

impl Add for Cost {
    type Output = Cost;
    fn add(self, other: Cost) -> Cost {
        Cost {
            flops: self.flops + other.flops,
            surplus_flops: self.surplus_flops + other.surplus_flops,
            weight_bytes: self.weight_bytes + other.weight_bytes,
            kv_bytes: self.kv_bytes + other.kv_bytes,
            activation_bytes: self.activation_bytes + other.activation_bytes,
        }
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Cost) {
        *self = *self + other;
    }
}

impl Mul<f64> for Cost {
    type Output = Cost;
    fn mul(self, times: f64) -> Cost {
        Cost {
            flops: self.flops * times,
            surplus_flops: self.surplus_flops * times,
            weight_bytes: self.weight_bytes * times,
            kv_bytes: self.kv_bytes * times,
            activation_bytes: self.activation_bytes * times,
        }
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Cost>>(iter: I) -> Cost {
        iter.fold(Cost::ZERO, Add::add)
    }
}

/// A matrix product (M×K)·(K×N) that stands alone: 2·M·N·K FLOPs and (M·K + K·N + M·N)·`width` bytes, where `width`
/// is the size of an element in bytes. The second matrix counts as weights.
pub fn gemm(m: impl Count, n: impl Count, k: impl Count, width: impl Count) -> Cost {
    linear(m, k, n, k.count() * n.count() * width.count(), width)
}

/// A projection of `rows` vectors from `k` to `n` features whose stored weights (bias included) take `weight_bytes`,
/// with activations of `width` bytes each: 2·rows·k·n FLOPs, rows·(k + n)·`width` bytes of activations. The sum with a
/// bias is an operation of its own: [`bias`].
pub fn linear(rows: impl Count, k: impl Count, n: impl Count, weight_bytes: impl Count, width: impl Count) -> Cost {
    let (rows, k, n) = (rows.count(), k.count(), n.count());
    Cost {
        flops: 2.0 * rows * k * n,
        weight_bytes: weight_bytes.count(),
        activation_bytes: rows * (k + n) * width.count(),
        ..Cost::ZERO
    }
}

/// Adding a bias to the `elements` elements that a product made, of `width` bytes each: reads and writes them.
pub fn bias(elements: impl Count, width: impl Count) -> Cost {
    pointwise(elements, 2, width)
}

/// A convolution from an input of `input` elements to an output of `output`, each of them a dot product over `window`
/// elements: 2·output·window FLOPs; reads the input and the weights and writes the output.
pub fn convolution(
    input: impl Count,
    output: impl Count,
    window: impl Count,
    weight_bytes: impl Count,
    width: impl Count,
) -> Cost {
    let flops = 2.0 * output.count() * window.count();
    Cost { flops, weight_bytes: weight_bytes.count(), ..pointwise(input, 1, width) + pointwise(output, 1, width) }
}

/// One time step of a long short-term memory of `batch` sequences, with `biases` vectors of biases (0 to 2): four gates,
/// each a product with the input and one with the state, 2·B·4·H·(I + H) FLOPs. Reads the input and the weights; what
/// it moves of gates and states depends on how it is done.
pub fn lstm(
    batch: impl Count,
    features: impl Count,
    hidden: impl Count,
    biases: impl Count,
    width: impl Count,
) -> Cost {
    let (batch, features, hidden, width) = (batch.count(), features.count(), hidden.count(), width.count());
    let weights = 4.0 * hidden * (features + hidden);
    Cost {
        flops: 2.0 * batch * weights,
        weight_bytes: (weights + biases.count() * 4.0 * hidden) * width,
        activation_bytes: batch * features * width,
        ..Cost::ZERO
    }
}

/// An operation on each of `elements` elements of `width` bytes that reads and writes `tensors` tensors of this size,
/// inputs and output together: 2 for a function, 3 for a sum of two.
pub fn pointwise(elements: impl Count, tensors: impl Count, width: impl Count) -> Cost {
    Cost { activation_bytes: elements.count() * tensors.count() * width.count(), ..Cost::ZERO }
}

/// A change of the element type of `elements` elements, from `from` to `to` bytes each; zero if the type stays the
/// same.
pub fn cast(elements: impl Count, from: impl Count, to: impl Count) -> Cost {
    let (from, to) = (from.count(), to.count());
    pointwise(elements, 1, if from == to { 0.0 } else { from + to })
}

/// A normalisation of `elements` elements of `width` bytes by weights of `weight_bytes`: reads and writes them once.
pub fn norm(elements: impl Count, weight_bytes: impl Count, width: impl Count) -> Cost {
    Cost { weight_bytes: weight_bytes.count(), ..pointwise(elements, 2, width) }
}

/// Looking up `rows` rows of `row_bytes` stored bytes and `features` features by 32-bit numbers, to activations of
/// `width` bytes each.
pub fn lookup(rows: impl Count, features: impl Count, row_bytes: impl Count, width: impl Count) -> Cost {
    let rows = rows.count();
    let activation_bytes = rows * (4.0 + features.count() * width.count());
    Cost { weight_bytes: rows * row_bytes.count(), activation_bytes, ..Cost::ZERO }
}

/// `silu(gate) · up` of `elements` elements each, as two operations: 2 + 3 tensors.
pub fn swiglu(elements: impl Count, width: impl Count) -> Cost {
    pointwise(elements, 5, width)
}

/// A rotary embedding of `elements` elements of heads of `head_dim` features, at each of `tokens` positions: reads and
/// writes the elements, and reads d/2 cosines and as many sines for each position.
pub fn rotary(elements: impl Count, tokens: impl Count, head_dim: impl Count, width: impl Count) -> Cost {
    pointwise(elements, 2, width) + pointwise(tokens.count() * head_dim.count(), 1, width)
}

/// FLOPs of an element in operations that no published figure counts; an exponential, a tanh or the error function
/// counts as one.
pub mod flops_an_element {
    /// A sum of two.
    pub const SUM: u64 = 1;
    /// Six for a pair: four products, two sums.
    pub const ROTARY: u64 = 3;
    /// Square, its sum, scaling, weight.
    pub const RMS_NORM: u64 = 4;
    /// Largest, difference, exponential, sum, division.
    pub const SOFTMAX: u64 = 5;
    /// `silu(gate) · up`: negation, exponential, sum, division, product.
    pub const SWIGLU: u64 = 5;
    /// GELU in its exact form, x/2·(1 + erf(x/√2)), erf as one.
    pub const GELU_ERF: u64 = 5;
    /// Mean, difference, square, its sum, scaling, weight, bias.
    pub const LAYER_NORM: u64 = 7;
    /// GELU in its tanh form.
    pub const GELU_TANH: u64 = 8;
}
