//! Root-mean-square normalisation.

use super::{dtype_word, layer_span, record, tensor_bytes};
use candle_core::{Result, Tensor};
use candle_nn::Module;
use candlescope_core::Annotation;
use candlescope_work::operation::{Cost, Count, norm};
use tracing::Span;

/// `y = x / rms(x) · w` over the last dimension.
#[derive(Debug, Clone)]
pub struct RmsNorm {
    inner: candle_nn::RmsNorm,
    span: Span,
}

impl RmsNorm {
    /// A norm with the weight (features). `path` is the weight path without `.weight`.
    pub fn new(path: &str, weight: Tensor, eps: f64) -> Self {
        Self { inner: candle_nn::RmsNorm::new(weight, eps), span: layer_span!("rms_norm", path) }
    }

    /// Cost of a forward pass over `elements` elements: the weight's bytes, and the elements read and written once.
    #[doc(hidden)]
    pub fn cost(&self, elements: impl Count) -> Cost {
        let weight = self.inner.weight();
        norm(elements, tensor_bytes(weight), weight.dtype().size_in_bytes())
    }
}

impl Module for RmsNorm {
    /// The shape (…, features) is kept.
    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        let _entered = self.span.enter();
        let ys = self.inner.forward(xs)?;
        record(|| Annotation::from(self.cost(xs.elem_count())).dtype(dtype_word(xs.dtype())).shape(ys.dims()));
        Ok(ys)
    }
}
