//! Layer normalisation.

use super::{dtype_word, layer_span, record, tensor_bytes};
use crate::cost::Cost;
use candle_core::{Result, Tensor};
use candle_nn::Module;
use tracing::Span;

/// `y = (x − mean(x)) / std(x) · w + b` over the last dimension.
#[derive(Debug, Clone)]
pub struct LayerNorm {
    inner: candle_nn::LayerNorm,
    span: Span,
}

impl LayerNorm {
    /// A norm with the weight (features) and, if any, the bias (features). `path` is the weight path without `.weight`.
    pub fn new(path: &str, weight: Tensor, bias: Option<Tensor>, eps: f64) -> Self {
        let inner = match bias {
            Some(bias) => candle_nn::LayerNorm::new(weight, bias, eps),
            None => candle_nn::LayerNorm::new_no_bias(weight, eps),
        };
        Self { inner, span: layer_span!("layer_norm", path) }
    }

    /// Cost of a pass: the bytes of weight and bias.
    pub fn cost(&self) -> Cost {
        let weight_bytes = tensor_bytes(self.inner.weight()) + self.inner.bias().map_or(0, tensor_bytes);
        Cost { flops: 0, weight_bytes, kv_bytes: 0 }
    }
}

impl Module for LayerNorm {
    /// Shape (…, features), kept.
    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        let _entered = self.span.enter();
        let ys = self.inner.forward(xs)?;
        record(|| self.cost().annotation().dtype(dtype_word(xs.dtype())).shape(ys.dims()));
        Ok(ys)
    }
}
