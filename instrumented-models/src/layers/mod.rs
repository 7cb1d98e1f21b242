//! Instrumented candle layers: each enters its own span at every forward pass and annotates its cost.
//!
//! Spans are at level TRACE, target [`TARGET`]. A layer's span has its weight path in the field `weight`
//! (`model.layers.0.self_attn.q_proj`) and the path's last component in `otel.name` (`q_proj`), which is what
//! candlescope shows. A span is made once, when the layer is made: install the subscriber first.
//!
//! Only the innermost layers have FLOPs; bytes are on the layer that moves them itself, which for the sums on the
//! residual stream is the block. Both come from the crate `candlescope-work`.

mod attention;
mod causal_mask;
mod conv2d;
mod embedding;
mod instrumented;
mod kv_cache;
pub(crate) mod kv_store;
mod layer_norm;
mod linear;
mod lstm;
mod mlp;
mod place;
mod projection;
mod qmatmul;
mod rms_norm;
mod rotary;
mod slot_cache;

#[doc(hidden)]
pub use attention::{Attention, AttentionProjections};
pub use candlescope_work::operation::Cost;
pub(crate) use causal_mask::CausalMask;
pub use conv2d::Conv2d;
pub use embedding::Embedding;
pub use instrumented::Instrumented;
#[doc(hidden)]
pub use kv_cache::KvCache;
pub(crate) use kv_store::KvCacheDType;
pub use layer_norm::LayerNorm;
pub use linear::Linear;
pub use lstm::Lstm;
#[doc(hidden)]
pub use mlp::{Activation, Mlp};
#[doc(hidden)]
pub use place::{AttendedPositions, Place, SlotPlaces, SlotStep};
#[doc(hidden)]
pub use projection::Projection;
pub use qmatmul::QMatMul;
pub use rms_norm::RmsNorm;
#[cfg(feature = "onnx")]
pub(crate) use rotary::rotary_frequencies;
#[doc(hidden)]
pub use rotary::{Rotary, RotaryTables};
#[doc(hidden)]
pub use slot_cache::SlotCache;

use candle_core::quantized::GgmlDType;
use candle_core::{DType, Device, Tensor};
use candlescope_core::{Annotation, annotate, is_recording};

/// Target of the layers' spans.
#[doc(hidden)]
pub const TARGET: &str = "candlescope_models";

/// Makes a layer's span: `$kind` is its static name, `$path` its weight path. Without a parent, because what is open
/// while a model loads is not the parent of what runs later.
macro_rules! layer_span {
    ($kind:expr, $path:expr) => {{
        let path: &str = $path;
        tracing::trace_span!(
            target: "candlescope_models",
            parent: None,
            $kind,
            otel.name = $crate::layers::leaf_name(path),
            weight = path
        )
    }};
}
pub(crate) use layer_span;

/// Last component of a weight path: `q_proj` of `model.layers.0.self_attn.q_proj`.
pub(crate) fn leaf_name(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// `parent.child`, or `child` under an empty parent.
pub(crate) fn join(parent: &str, child: &str) -> String {
    if parent.is_empty() { child.to_string() } else { format!("{parent}.{child}") }
}

/// Annotates the open interval; the arithmetic is done only while something is recorded.
#[inline]
pub(crate) fn record(annotation: impl FnOnce() -> Annotation) {
    if is_recording() {
        annotate(annotation());
    }
}

/// Product of all dimensions but the last: how many vectors a layer is applied to.
pub(crate) fn rows(xs: &Tensor) -> usize {
    xs.dims().split_last().map_or(1, |(_, outer)| outer.iter().product())
}

/// Bytes a dense tensor takes.
pub(crate) fn tensor_bytes(tensor: &Tensor) -> u64 {
    (tensor.elem_count() * tensor.dtype().size_in_bytes()) as u64
}

/// The element type of attention's products on the device of `t`: see [`product_dtype_on`].
pub(crate) fn product_dtype(t: &Tensor) -> DType {
    product_dtype_on(t.dtype(), t.device())
}

/// The element type of attention's products: a CPU cannot multiply 16-bit floats fast, a GPU accumulates them in f32 by
/// itself.
pub(crate) fn product_dtype_on(dtype: DType, device: &Device) -> DType {
    match dtype {
        DType::F16 | DType::BF16 if device.is_cpu() => DType::F32,
        dtype => dtype,
    }
}

/// candle's element type as that of records.
pub(crate) fn dtype_word(dtype: DType) -> candlescope_core::DType {
    use candlescope_core::DType as Word;
    match dtype {
        DType::U8 => Word::U8,
        DType::U32 => Word::U32,
        DType::I16 => Word::I16,
        DType::I32 => Word::I32,
        DType::I64 => Word::I64,
        DType::BF16 => Word::BF16,
        DType::F16 => Word::F16,
        DType::F32 => Word::F32,
        DType::F64 => Word::F64,
        DType::F8E4M3 => Word::F8E4M3,
        _ => Word::Other,
    }
}

/// GGML's element type as that of records.
#[doc(hidden)]
pub fn ggml_dtype_word(dtype: GgmlDType) -> candlescope_core::DType {
    use candlescope_core::DType as Word;
    match dtype {
        GgmlDType::F32 => Word::F32,
        GgmlDType::F16 => Word::F16,
        GgmlDType::BF16 => Word::BF16,
        GgmlDType::Q4_0 => Word::Q4_0,
        GgmlDType::Q4_1 => Word::Q4_1,
        GgmlDType::Q5_0 => Word::Q5_0,
        GgmlDType::Q5_1 => Word::Q5_1,
        GgmlDType::Q8_0 => Word::Q8_0,
        GgmlDType::Q8_1 => Word::Q8_1,
        GgmlDType::Q2K => Word::Q2K,
        GgmlDType::Q3K => Word::Q3K,
        GgmlDType::Q4K => Word::Q4K,
        GgmlDType::Q5K => Word::Q5K,
        GgmlDType::Q6K => Word::Q6K,
        GgmlDType::Q8K => Word::Q8K,
    }
}
