//! Two-dimensional convolution.

use super::{dtype_word, layer_span, record, tensor_bytes};
use candle_core::{Result, Tensor};
use candle_nn::{Conv2dConfig, Module};
use candlescope_core::Annotation;
use candlescope_work::operation::{Cost, Count, bias as added, convolution};
use tracing::Span;

/// A convolution over (batch, channels, height, width) with a kernel of shape (out, in / groups, kh, kw).
#[derive(Debug, Clone)]
pub struct Conv2d {
    inner: candle_nn::Conv2d,
    span: Span,
}

impl Conv2d {
    /// A convolution with the kernel (out, in / groups, kh, kw) and, if any, the bias (out). `path` is the weight path
    /// without `.weight`.
    pub fn new(path: &str, weight: Tensor, bias: Option<Tensor>, config: Conv2dConfig) -> Self {
        Self { inner: candle_nn::Conv2d::new(weight, bias, config), span: layer_span!("conv2d", path) }
    }

    /// Cost of an output of `output` elements from an input of `input`: every one is a dot product over the kernel's
    /// (in / groups)·kh·kw values, and a bias is added to them afterwards.
    #[doc(hidden)]
    pub fn cost(&self, input: impl Count, output: impl Count) -> Cost {
        let (weight, bias) = (self.inner.weight(), self.inner.bias());
        let window: usize = weight.dims().iter().skip(1).product();
        let width = weight.dtype().size_in_bytes();
        let sum = if bias.is_some() { added(output, width) } else { Cost::ZERO };
        let weight_bytes = tensor_bytes(weight) + bias.map_or(0, tensor_bytes);
        convolution(input, output, window, weight_bytes, width) + sum
    }
}

impl Module for Conv2d {
    /// From (batch, in, h, w) to (batch, out, h', w').
    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        let _entered = self.span.enter();
        let ys = self.inner.forward(xs)?;
        record(|| {
            let cost = self.cost(xs.elem_count(), ys.elem_count());
            Annotation::from(cost).dtype(dtype_word(xs.dtype())).shape(ys.dims())
        });
        Ok(ys)
    }
}
