//! A projection with quantised weights.

use super::{dtype_word, ggml_dtype_word, layer_span, record, rows, tensor_bytes};
use candle_core::quantized::{QMatMul as Inner, QTensor};
use candle_core::{DType, Result, Tensor};
use candle_nn::Module;
use candlescope_core::Annotation;
use candlescope_work::operation::{Cost, Count, bias, linear};
use std::sync::Arc;
use tracing::Span;

/// `y = x·Wᵀ + b` with a quantised weight of shape (out, in). Input and output are f32.
#[derive(Debug, Clone)]
pub struct QMatMul {
    inner: Inner,
    bias: Option<Tensor>,
    in_features: usize,
    out_features: usize,
    weight_bytes: u64,
    dtype: candlescope_core::DType,
    span: Span,
}

impl QMatMul {
    /// A projection with the quantised weight (out, in) and, if any, a bias (out). `path` is the weight path without
    /// `.weight`. candle widens weights stored as f16 or bf16 to f32, and the bytes counted are then those of f32.
    pub fn new(path: &str, weight: Arc<QTensor>, bias: Option<Tensor>) -> Result<Self> {
        let (out_features, in_features) = weight.shape().dims2()?;
        let inner = Inner::from_arc(weight)?;
        let (bytes, dtype) = match &inner {
            Inner::QTensor(q) => (q.storage_size_in_bytes() as u64, ggml_dtype_word(q.dtype())),
            Inner::Tensor(t) | Inner::TensorF16(t) => (tensor_bytes(t), dtype_word(t.dtype())),
        };
        let weight_bytes = bytes + bias.as_ref().map_or(0, tensor_bytes);
        let span = layer_span!("qmatmul", path);
        Ok(Self { inner, bias, in_features, out_features, weight_bytes, dtype, span })
    }

    /// Features of the output.
    pub fn out_features(&self) -> usize {
        self.out_features
    }

    /// Cost for `rows` vectors; bytes of weights are the real storage, activations are f32. A bias is added by an
    /// operation of its own.
    #[doc(hidden)]
    pub fn cost(&self, rows: impl Count) -> Cost {
        let (k, n, width) = (self.in_features, self.out_features, DType::F32.size_in_bytes());
        let added = if self.bias.is_some() { bias(rows.count() * n as f64, width) } else { Cost::ZERO };
        linear(rows, k, n, self.weight_bytes, width) + added
    }
}

impl Module for QMatMul {
    /// From (…, in) to (…, out).
    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        let _entered = self.span.enter();
        let mut ys = self.inner.forward(xs)?;
        if let Some(bias) = &self.bias {
            ys = ys.broadcast_add(bias)?;
        }
        record(|| Annotation::from(self.cost(rows(xs))).dtype(self.dtype).shape(ys.dims()));
        Ok(ys)
    }
}
