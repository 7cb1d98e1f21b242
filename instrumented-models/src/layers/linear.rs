//! A dense projection.

use super::{dtype_word, layer_span, record, rows, tensor_bytes};
use candle_core::{Result, Tensor};
use candle_nn::Module;
use candlescope_core::Annotation;
use candlescope_work::operation::{Cost, Count, bias, linear};
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
    /// Fails if the weight is not a matrix.
    pub fn new(path: &str, weight: Tensor, bias: Option<Tensor>) -> Result<Self> {
        let (out_features, in_features) = weight.dims2()?;
        let weight_bytes = tensor_bytes(&weight) + bias.as_ref().map_or(0, tensor_bytes);
        let inner = candle_nn::Linear::new(weight, bias);
        Ok(Self { inner, in_features, out_features, weight_bytes, span: layer_span!("linear", path) })
    }

    /// Features of the output.
    pub fn out_features(&self) -> usize {
        self.out_features
    }

    /// Cost for `rows` vectors. A bias is added by an operation of its own.
    #[doc(hidden)]
    pub fn cost(&self, rows: impl Count) -> Cost {
        let (k, n, width) = (self.in_features, self.out_features, self.weight().dtype().size_in_bytes());
        let added = if self.inner.bias().is_some() { bias(rows.count() * n as f64, width) } else { Cost::ZERO };
        linear(rows, k, n, self.weight_bytes, width) + added
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
        record(|| Annotation::from(self.cost(rows(xs))).dtype(dtype_word(self.weight().dtype())).shape(ys.dims()));
        Ok(ys)
    }
}
