//! Layer normalisation.

use super::{dtype_word, layer_span, record, tensor_bytes};
use candle_core::{Result, Tensor};
use candle_nn::Module;
use candlescope_core::Annotation;
use candlescope_work::operation::{Cost, Count, norm};
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

    /// Cost of a forward pass over `elements` elements: the bytes of weight and bias, and the elements read and written
    /// once.
    #[doc(hidden)]
    pub fn cost(&self, elements: impl Count) -> Cost {
        let weight_bytes = tensor_bytes(self.inner.weight()) + self.inner.bias().map_or(0, tensor_bytes);
        norm(elements, weight_bytes, self.inner.weight().dtype().size_in_bytes())
    }
}

impl Module for LayerNorm {
    /// The shape (…, features) is kept.
    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        let _entered = self.span.enter();
        let ys = self.inner.forward(xs)?;
        record(|| Annotation::from(self.cost(xs.elem_count())).dtype(dtype_word(xs.dtype())).shape(ys.dims()));
        Ok(ys)
    }
}
