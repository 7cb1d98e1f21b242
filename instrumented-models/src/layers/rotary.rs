//! Rotary position embeddings.

use super::{dtype_word, layer_span, record};
use crate::config::{Llama3Scaling, Rope};
use crate::cost::{AttentionDims, Work};
use candle_core::{DType, Device, Result, Tensor};
use candle_nn::rotary_emb::{rope, rope_i};
use std::f32::consts::PI;
use tracing::Span;

/// Cosines and sines of all positions, (context, head / 2) each. Layers share one.
#[derive(Debug, Clone)]
pub struct RotaryTables {
    cos: Tensor,
    sin: Tensor,
    interleaved: bool,
}

impl RotaryTables {
    /// Tables for `max_context` positions of heads of `head_dim` features. `factors`, one for each pair of features, divide
    /// the frequencies (GGUF's `rope_freqs.weight`) and take the place of `rope.scaling`.
    pub fn new(
        rope: &Rope,
        head_dim: usize,
        max_context: usize,
        factors: Option<&[f32]>,
        dtype: DType,
        device: &Device,
    ) -> Result<Self> {
        let mut frequencies: Vec<f32> =
            (0..head_dim).step_by(2).map(|i| 1f32 / rope.theta.powf(i as f32 / head_dim as f32)).collect();
        match (factors, &rope.scaling) {
            (Some(factors), _) => frequencies.iter_mut().zip(factors).for_each(|(f, factor)| *f /= factor),
            (None, Some(scaling)) => frequencies.iter_mut().for_each(|f| *f = stretch(*f, scaling)),
            (None, None) => {}
        }
        let half = frequencies.len();
        let frequencies = Tensor::from_vec(frequencies, (1, half), device)?;
        let positions =
            Tensor::arange(0, max_context as u32, device)?.to_dtype(DType::F32)?.reshape((max_context, 1))?;
        let angles = positions.matmul(&frequencies)?;
        Ok(Self {
            cos: angles.cos()?.to_dtype(dtype)?,
            sin: angles.sin()?.to_dtype(dtype)?,
            interleaved: rope.interleaved,
        })
    }
}

/// Llama 3.1's stretching of one frequency (transformers `_compute_llama3_parameters`).
fn stretch(frequency: f32, scaling: &Llama3Scaling) -> f32 {
    let original = scaling.original_max_position_embeddings as f32;
    let wavelength = 2. * PI / frequency;
    if wavelength < original / scaling.high_freq_factor {
        frequency
    } else if wavelength > original / scaling.low_freq_factor {
        frequency / scaling.factor
    } else {
        let smooth =
            (original / wavelength - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
        (1. - smooth) * frequency / scaling.factor + smooth * frequency
    }
}

/// Turns queries and keys by their positions; one interval for both, the change of layout included.
#[derive(Debug, Clone)]
pub struct Rotary {
    tables: RotaryTables,
    span: Span,
}

impl Rotary {
    /// An embedding named by `path` that uses `tables`.
    pub fn new(path: &str, tables: RotaryTables) -> Self {
        Self { tables, span: layer_span!("rotary", path) }
    }

    /// Queries (batch, heads, tokens, head) and keys (batch, kv heads, tokens, head) whose first token stands at `position`.
    /// Strided inputs are made contiguous.
    pub fn forward(&self, q: &Tensor, k: &Tensor, position: usize) -> Result<(Tensor, Tensor)> {
        let _entered = self.span.enter();
        let (batch, heads, tokens, head_dim) = q.dims4()?;
        let kv_heads = k.dim(1)?;
        let cos = self.tables.cos.narrow(0, position, tokens)?;
        let sin = self.tables.sin.narrow(0, position, tokens)?;
        let turn = if self.tables.interleaved { rope_i } else { rope };
        let q = turn(&q.contiguous()?, &cos, &sin)?;
        let k = turn(&k.contiguous()?, &cos, &sin)?;
        record(|| {
            let dims = AttentionDims { heads, kv_heads, head_dim };
            let cost = dims.rotary(Work::new(batch, tokens, position), q.dtype().size_in_bytes());
            cost.annotation().dtype(dtype_word(q.dtype())).shape(q.dims())
        });
        Ok((q, k))
    }
}
