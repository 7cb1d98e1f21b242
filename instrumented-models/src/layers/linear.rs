//! A dense projection.

use super::{dtype_word, layer_span, record, rows, tensor_bytes};
use crate::cost::{Cost, linear};
use candle_core::{Result, Tensor};
use candle_nn::Module;
use tracing::Span;

/// `y = x·Wᵀ + b` with a weight of shape (out, in).
#[derive(Debug, Clone)]
pub struct Linear {
    inner: candle_nn::Linear,
    in_features: usize,
    out_features: usize,
    weight_bytes: u64,
    span: Span,
}

impl Linear {
    /// A projection with the weight (out, in) and, if any, the bias (out). `path` is the weight path without `.weight`.
    /// Fails where the weight is not a matrix.
    pub fn new(path: &str, weight: Tensor, bias: Option<Tensor>) -> Result<Self> {
        let (out_features, in_features) = weight.dims2()?;
        let weight_bytes = tensor_bytes(&weight) + bias.as_ref().map_or(0, tensor_bytes);
        let inner = candle_nn::Linear::new(weight, bias);
        Ok(Self { inner, in_features, out_features, weight_bytes, span: layer_span!("linear", path) })
    }

    /// Cost for `rows` vectors.
    pub fn cost(&self, rows: usize) -> Cost {
        linear(rows, self.in_features, self.out_features, self.weight_bytes)
    }

    /// The weight, (out, in).
    pub fn weight(&self) -> &Tensor {
        self.inner.weight()
    }
}

impl Module for Linear {
    /// From (…, in) to (…, out).
    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        let _entered = self.span.enter();
        let ys = self.inner.forward(xs)?;
        record(|| self.cost(rows(xs)).annotation().dtype(dtype_word(self.weight().dtype())).shape(ys.dims()));
        Ok(ys)
    }
}
