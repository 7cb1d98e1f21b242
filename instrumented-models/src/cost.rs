//! Analytic FLOPs and bytes of the operations that models are made of.
//!
//! Formulas follow vLLM's `vllm/v1/metrics/perf.py`, with attention corrected to be causal-exact. FLOPs count matrix
//! products (2·M·N·K); norms, activation functions, softmax and rotary embeddings are left out, as in all published
//! figures.
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

mod attention;
mod decoder;

pub use decoder::{DecoderCost, decoder_step};

use candlescope_core::Annotation;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

/// Work of one operation or of a whole step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Floating-point operations that the model needs: a multiply and an add are two.
    pub flops: u64,
    /// Further floating-point operations that are executed, such as the masked part of a prompt's attention.
    pub surplus_flops: u64,
    /// Bytes of weights read.
    pub weight_bytes: u64,
    /// Bytes of cached keys and values read and written.
    pub kv_bytes: u64,
    /// Bytes of activations read and written; 0 if they were not counted.
    pub activation_bytes: u64,
}

impl Cost {
    /// No work.
    pub const ZERO: Self = Self { flops: 0, surplus_flops: 0, weight_bytes: 0, kv_bytes: 0, activation_bytes: 0 };

    /// Bytes of weights, keys and values: the numerator of MBU.
    pub const fn bytes(&self) -> u64 {
        self.weight_bytes + self.kv_bytes
    }

    /// All bytes, including activations in and out: the denominator of arithmetic intensity.
    pub const fn io_bytes(&self) -> u64 {
        self.bytes() + self.activation_bytes
    }

    /// All floating-point operations that are executed: the numerator of HFU.
    pub const fn flops_executed(&self) -> u64 {
        self.flops + self.surplus_flops
    }

    /// The cost as an annotation. Zeros are left out, so that "not counted" is never taken for "none". Without
    /// activations there are no I/O bytes: an intensity over a part of them would be too high.
    pub fn annotation(&self) -> Annotation {
        let mut annotation = Annotation::new();
        if self.flops_executed() > 0 {
            annotation = annotation.flops(self.flops).flops_executed(self.flops_executed());
        }
        if self.bytes() > 0 {
            annotation = annotation.bytes(self.bytes());
        }
        if self.activation_bytes > 0 {
            annotation = annotation.io_bytes(self.io_bytes());
        }
        annotation
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

impl Sum for Cost {
    fn sum<I: Iterator<Item = Cost>>(iter: I) -> Cost {
        iter.fold(Cost::default(), Add::add)
    }
}

/// A matrix product (M×K)·(K×N) that stands alone: 2·M·N·K FLOPs and (M·K + K·N + M·N)·`width` bytes, where `width`
/// is the size of an element in bytes. Returns (FLOPs, bytes).
pub const fn gemm(m: u64, n: u64, k: u64, width: u64) -> (u64, u64) {
    (2 * m * n * k, (m * k + k * n + m * n) * width)
}

/// A projection of `rows` vectors from `k` to `n` features whose stored weights (bias included) take `weight_bytes`,
/// with activations of `width` bytes each: 2·rows·k·n FLOPs, rows·(k + n)·`width` bytes of activations.
pub const fn linear(rows: usize, k: usize, n: usize, weight_bytes: u64, width: usize) -> Cost {
    let activation_bytes = (rows * (k + n) * width) as u64;
    Cost { flops: 2 * rows as u64 * k as u64 * n as u64, weight_bytes, activation_bytes, ..Cost::ZERO }
}

/// An operation on each of `elements` elements of `width` bytes that reads and writes `tensors` tensors of this size,
/// inputs and output together: 2 for a function, 3 for a sum of two.
pub const fn pointwise(elements: usize, tensors: usize, width: usize) -> Cost {
    Cost { activation_bytes: (elements * tensors * width) as u64, ..Cost::ZERO }
}

/// A change of the element type of `elements` elements, from `from` to `to` bytes each; zero if the type stays the
/// same.
pub const fn cast(elements: usize, from: usize, to: usize) -> Cost {
    let width = if from == to { 0 } else { from + to };
    Cost { activation_bytes: (elements * width) as u64, ..Cost::ZERO }
}

/// A normalisation of `elements` elements of `width` bytes by weights of `weight_bytes`: reads and writes them once.
pub const fn norm(elements: usize, weight_bytes: u64, width: usize) -> Cost {
    Cost { weight_bytes, ..pointwise(elements, 2, width) }
}

/// Looking up `rows` rows of `row_bytes` stored bytes and `features` features by 32-bit numbers, to activations of
/// `width` bytes each.
pub const fn lookup(rows: usize, features: usize, row_bytes: u64, width: usize) -> Cost {
    let activation_bytes = (rows * (4 + features * width)) as u64;
    Cost { weight_bytes: rows as u64 * row_bytes, activation_bytes, ..Cost::ZERO }
}

/// `silu(gate) · up` of `elements` elements each, as two operations: 2 + 3 tensors.
pub const fn swiglu(elements: usize, width: usize) -> Cost {
    pointwise(elements, 5, width)
}

/// Sizes of elements in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Widths {
    /// Width of a weight.
    pub weights: usize,
    /// Width of an activation, a cached key or a cached value.
    pub activations: usize,
    /// Width of the elements in attention's products: 4 for 16-bit floats on a CPU, which cannot multiply them fast,
    /// otherwise that of the activations.
    pub products: usize,
}

impl Widths {
    /// The same `width` for all.
    pub const fn of(width: usize) -> Self {
        Self { weights: width, activations: width, products: width }
    }

    /// Attention's products in elements of `width` bytes.
    #[must_use]
    pub const fn products(self, width: usize) -> Self {
        Self { products: width, ..self }
    }
}

/// The size of a step's input. Sequences of a batch have equal lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// Sequences.
    pub batch: usize,
    /// New tokens of each sequence: T of one sequence.
    pub tokens: usize,
    /// Tokens of each sequence after the step: C.
    pub context: usize,
    /// Positions that a token attends to at most, itself included: W. All by default.
    pub window: Option<usize>,
}

impl Work {
    /// `tokens` new tokens after `position` earlier ones, in each of `batch` sequences.
    pub const fn new(batch: usize, tokens: usize, position: usize) -> Self {
        Self { batch, tokens, context: position + tokens, window: None }
    }

    /// The same within a window of attention.
    #[must_use]
    pub const fn within(self, window: Option<usize>) -> Self {
        Self { window, ..self }
    }

    /// New tokens of all sequences.
    pub const fn rows(&self) -> usize {
        self.batch * self.tokens
    }

    /// Positions attended to, over all new tokens of all sequences: Σ(min(c, W)) for each, c from C − T + 1 to C, which
    /// is T·C − T(T−1)/2 without a window.
    pub const fn attended(&self) -> u64 {
        let (t, c, w) = (self.tokens as u64, self.context as u64, self.reach());
        // The last of them see no more than the window.
        let beyond = c.saturating_sub(w);
        let cut = if beyond < t { beyond } else { t };
        let (whole, last) = (t - cut, c - cut);
        self.batch as u64 * (whole * last - whole * whole.saturating_sub(1) / 2 + cut * w)
    }

    const fn reach(&self) -> u64 {
        match self.window {
            Some(window) if window < self.context => window as u64,
            _ => self.context as u64,
        }
    }

    /// Positions of each sequence that any of its new tokens attends to: min(C, W + T − 1).
    pub const fn seen(&self) -> usize {
        let seen = self.reach() as usize + self.tokens.saturating_sub(1);
        if seen < self.context { seen } else { self.context }
    }

    /// Σ of context lengths over the sequences.
    pub const fn total_context(&self) -> u64 {
        (self.batch * self.context) as u64
    }
}
