//! What a step passes through a model: how many tokens, and how wide their values are.

use crate::windows::{self, Window};

/// The size of a step's input. Sequences of a batch have equal lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Input {
    /// Sequences of the batch: 1 for one alone.
    pub batch: u64,
    /// New tokens of each sequence: T of one sequence.
    pub tokens: u64,
    /// Tokens of each sequence after the step: C.
    pub context: u64,
    /// Tokens of each sequence that an encoder has seen; 0 without an encoder.
    pub encoded: u64,
    /// Where a token's attention ends. Nowhere by default.
    pub window: Option<Window>,
}

impl Input {
    /// `tokens` new tokens after `position` earlier ones, in each of `batch` sequences: dimensions of tensors.
    pub const fn new(batch: usize, tokens: usize, position: usize) -> Self {
        let (batch, tokens, context) = (batch as u64, tokens as u64, (position + tokens) as u64);
        Self { batch, tokens, context, encoded: 0, window: None }
    }

    /// A prompt of so many tokens, from the beginning.
    pub const fn prompt(batch: u64, tokens: u64) -> Self {
        Self { batch, tokens, context: tokens, encoded: 0, window: None }
    }

    /// One new token of each sequence, after which it has `context` tokens.
    pub const fn token(batch: u64, context: u64) -> Self {
        Self { batch, tokens: 1, context, encoded: 0, window: None }
    }

    /// The same of a decoder whose encoder has seen so many tokens.
    #[must_use]
    pub const fn after_encoding(self, encoded: u64) -> Self {
        Self { encoded, ..self }
    }

    /// The same within a window of attention.
    #[must_use]
    pub const fn within(self, window: Option<Window>) -> Self {
        Self { window, ..self }
    }

    /// New tokens of all sequences.
    pub const fn rows(&self) -> f64 {
        self.batch as f64 * self.tokens as f64
    }

    /// Positions attended to, over all new tokens of all sequences.
    pub fn attended(&self) -> f64 {
        self.batch as f64 * windows::attended(self.tokens, self.context, self.window)
    }

    /// Positions of all sequences together that any new token attends to.
    pub fn needed(&self) -> f64 {
        self.batch as f64 * windows::needed(self.tokens, self.context, self.window) as f64
    }

    /// Positions that candle multiplies each new token with.
    pub fn multiplied(&self) -> f64 {
        windows::multiplied(self.tokens, self.context, self.window) as f64
    }
}

/// Sizes of elements in bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Widths {
    /// A weight, scales of its block included.
    pub weights: f64,
    /// An activation, between operations.
    pub activations: f64,
    /// A cached key or value, scales included.
    pub cached: f64,
    /// An element in attention's products: 4 for 16-bit floats on a CPU, which cannot multiply them fast, otherwise an
    /// activation's.
    pub products: f64,
    /// Whether weights are stored in blocks with scales, so that activations are quantised by a kernel of their own
    /// before a product.
    pub in_blocks: bool,
}

impl Widths {
    /// The same `width` for all, with weights as they are.
    pub const fn of(width: usize) -> Self {
        let width = width as f64;
        Self { weights: width, activations: width, cached: width, products: width, in_blocks: false }
    }

    /// Attention's products in elements of `width` bytes.
    #[must_use]
    pub const fn products(self, width: usize) -> Self {
        Self { products: width as f64, ..self }
    }
}
