//! Weights whose names lack, or have, a prefix.

use super::{WeightError, WeightSource};
use candle_core::Tensor;
use candle_core::quantized::QTensor;
use std::sync::Arc;

/// A source whose names lack a prefix that a model asks for: GPT-2's files have `h.0.ln_1.weight` as well as
/// `transformer.h.0.ln_1.weight`, depending on who saved them.
pub struct WithoutPrefix<'a> {
    source: &'a mut dyn WeightSource,
    prefix: &'static str,
}

impl std::fmt::Debug for WithoutPrefix<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WithoutPrefix").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl<'a> WithoutPrefix<'a> {
    /// Takes `prefix` off every name that is asked for, and looks for the rest in `source`.
    pub fn new(source: &'a mut dyn WeightSource, prefix: &'static str) -> Self {
        Self { source, prefix }
    }

    fn rest<'n>(&self, name: &'n str) -> &'n str {
        name.strip_prefix(self.prefix).unwrap_or(name)
    }
}

impl WeightSource for WithoutPrefix<'_> {
    fn dense(&mut self, name: &str, shape: &[usize]) -> Result<Tensor, WeightError> {
        self.source.dense(self.rest(name), shape)
    }

    fn quantized(&mut self, name: &str, shape: &[usize]) -> Result<Option<Arc<QTensor>>, WeightError> {
        self.source.quantized(self.rest(name), shape)
    }

    fn transposed(&mut self, name: &str, shape: (usize, usize)) -> Result<Tensor, WeightError> {
        self.source.transposed(self.rest(name), shape)
    }

    fn quantized_transposed(&mut self, name: &str, shape: (usize, usize)) -> Result<Option<Arc<QTensor>>, WeightError> {
        self.source.quantized_transposed(self.rest(name), shape)
    }

    fn contains(&self, name: &str) -> bool {
        self.source.contains(self.rest(name))
    }
}
