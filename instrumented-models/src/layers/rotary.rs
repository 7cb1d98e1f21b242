//! Rotary position embeddings.

use super::{Place, dtype_word, layer_span, record};
use crate::config::{Llama3Scaling, Rope};
use candle_core::{DType, Device, Result, Tensor, bail};
use candle_nn::rotary_emb::{rope, rope_i};
use candlescope_core::Annotation;
use candlescope_work::operation::Heads;
use std::f32::consts::PI;
use std::sync::{Arc, Mutex, PoisonError};
use tracing::Span;

/// Positions in the first tables, if the context is at least as long.
const FIRST: usize = 2048;

/// Cosines and sines of the positions in use, (positions, head / 2) each. Layers share one, and so do clones.
///
/// They grow on demand, by doubling, so that a model takes memory for the context it is run with and not for the one it
/// declares, which may be ten million tokens or wrong. [`RotaryTables::reserve`] makes them before a step needs them.
#[derive(Debug, Clone)]
pub struct RotaryTables {
    /// (1, head / 2), in f32.
    frequencies: Tensor,
    max_context: usize,
    dtype: DType,
    interleaved: bool,
    made: Arc<Mutex<Option<(Tensor, Tensor)>>>,
}

impl RotaryTables {
    /// Tables for up to `max_context` positions of heads of `head_dim` features, none made yet. `factors`, one for each
    /// pair of features, divide the frequencies (GGUF's `rope_freqs.weight`) and replace `rope.scaling`.
    pub fn new(
        rope: &Rope,
        head_dim: usize,
        max_context: usize,
        factors: Option<&[f32]>,
        dtype: DType,
        device: &Device,
    ) -> Result<Self> {
        let frequencies = rotary_frequencies(rope, head_dim, factors)?;
        let half = frequencies.len();
        let frequencies = Tensor::from_vec(frequencies, (1, half), device)?;
        let made = Arc::new(Mutex::new(None));
        Ok(Self { frequencies, max_context, dtype, interleaved: rope.interleaved, made })
    }

    /// Makes the tables of the first `positions` positions, or of the whole context if that is shorter.
    pub fn reserve(&self, positions: usize) -> Result<()> {
        self.holding(positions.min(self.max_context)).map(drop)
    }

    /// The same, none made yet, which no clone shares.
    pub(crate) fn apart(&self) -> Self {
        Self { made: Arc::default(), ..self.clone() }
    }

    /// Positions made so far.
    pub fn positions(&self) -> usize {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.as_ref().map_or(0, |(cos, _)| cos.dims()[0])
    }

    /// Cosines and sines of `count` positions from `first`.
    fn narrow(&self, first: usize, count: usize) -> Result<(Tensor, Tensor)> {
        let (cos, sin) = self.holding(first.saturating_add(count))?;
        Ok((cos.narrow(0, first, count)?, sin.narrow(0, first, count)?))
    }

    /// Cosines and sines of each of `positions` (n), (n, 1, head / 2), all of them below `context`.
    pub(crate) fn at(&self, positions: &Tensor, context: usize) -> Result<(Tensor, Tensor)> {
        let (cos, sin) = self.holding(context)?;
        let of = |table: Tensor| table.index_select(positions, 0)?.unsqueeze(1);
        Ok((of(cos)?, of(sin)?))
    }

    /// Tables of at least `positions` positions.
    fn holding(&self, positions: usize) -> Result<(Tensor, Tensor)> {
        if positions > self.max_context {
            bail!("{positions} tokens exceed the context of {} tokens", self.max_context)
        }
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        match &*made {
            Some(pair) if pair.0.dims()[0] >= positions => Ok(pair.clone()),
            old => {
                let doubled = old.as_ref().map_or(FIRST, |(cos, _)| 2 * cos.dims()[0]);
                let pair = self.make(positions.max(doubled).min(self.max_context))?;
                *made = Some(pair.clone());
                Ok(pair)
            }
        }
    }

    fn make(&self, positions: usize) -> Result<(Tensor, Tensor)> {
        let Ok(end) = u32::try_from(positions) else { bail!("{positions} positions cannot be counted in 32 bits") };
        let positions =
            Tensor::arange(0, end, self.frequencies.device())?.to_dtype(DType::F32)?.reshape((positions, 1))?;
        let angles = positions.matmul(&self.frequencies)?;
        Ok((angles.cos()?.to_dtype(self.dtype)?, angles.sin()?.to_dtype(self.dtype)?))
    }
}

/// The frequency of each pair of features of a head; `factors` as for [`RotaryTables::new`].
pub(crate) fn rotary_frequencies(rope: &Rope, head_dim: usize, factors: Option<&[f32]>) -> Result<Vec<f32>> {
    let mut frequencies: Vec<f32> =
        (0..head_dim).step_by(2).map(|i| 1f32 / rope.theta.powf(i as f32 / head_dim as f32)).collect();
    let half = frequencies.len();
    match (factors, &rope.scaling) {
        (Some(factors), _) if factors.len() != half => {
            bail!("there are {} rotary factors for {half} pairs of features", factors.len())
        }
        (Some(factors), _) => frequencies.iter_mut().zip(factors).for_each(|(f, factor)| *f /= factor),
        (None, Some(scaling)) => frequencies.iter_mut().for_each(|f| *f = stretch(*f, scaling)),
        (None, None) => {}
    }
    Ok(frequencies)
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

/// Rotates queries and keys by their positions; one interval for both, including the change of layout.
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

    /// Queries (batch, heads, tokens, head) and keys (batch, kv heads, tokens, head) of the tokens at `place`. Strided
    /// inputs are made contiguous.
    pub fn forward(&self, q: &Tensor, k: &Tensor, place: Place<'_>) -> Result<(Tensor, Tensor)> {
        let _entered = self.span.enter();
        let (batch, heads, tokens, head_dim) = q.dims4()?;
        let kv_heads = k.dim(1)?;
        let (cos, sin) = match place {
            Place::At(position) | Place::Slots { position, .. } => self.tables.narrow(position, tokens)?,
            Place::Each(step) => match &step.rotation {
                Some(rotation) => rotation.clone(),
                None => bail!("this step was made for a model without rotary embeddings"),
            },
        };
        let turn = if self.tables.interleaved { rope_i } else { rope };
        let q = turn(&q.contiguous()?, &cos, &sin)?;
        let k = turn(&k.contiguous()?, &cos, &sin)?;
        record(|| {
            let dims = Heads::new(heads, kv_heads, head_dim);
            let cost = dims.rotary(place.work(batch, tokens), q.dtype().size_in_bytes());
            Annotation::from(cost).dtype(dtype_word(q.dtype())).shape(q.dims())
        });
        Ok((q, k))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(max_context: usize) -> RotaryTables {
        let rope = Rope { theta: 10_000., interleaved: false, scaling: None };
        RotaryTables::new(&rope, 8, max_context, None, DType::F32, &Device::Cpu).unwrap()
    }

    fn values(pair: &(Tensor, Tensor)) -> Vec<f32> {
        [&pair.0, &pair.1].iter().flat_map(|t| t.flatten_all().unwrap().to_vec1::<f32>().unwrap()).collect()
    }

    #[test]
    fn grown_tables_hold_the_same_values() {
        let (grown, at_once) = (tables(10_000), tables(10_000));
        at_once.reserve(10_000).unwrap();
        assert_eq!(at_once.positions(), 10_000);
        for (first, count, held) in
            [(0, 5, 2048), (2047, 1, 2048), (2048, 1, 4096), (4000, 3000, 8192), (9999, 1, 10_000)]
        {
            let narrow = grown.narrow(first, count).unwrap();
            assert_eq!(values(&narrow), values(&at_once.narrow(first, count).unwrap()), "{first}");
            assert_eq!(grown.positions(), held);
        }
        let message = grown.narrow(10_000, 1).unwrap_err().to_string();
        assert!(message.contains("10001 tokens exceed the context of 10000"), "{message}");
    }

    #[test]
    fn a_long_context_costs_nothing_before_it_is_used() {
        let tables = tables(1 << 40);
        assert_eq!(tables.positions(), 0);
        tables.narrow(0, 10).unwrap();
        assert_eq!(tables.clone().positions(), FIRST, "clones share what was made");
        assert_eq!(super::tests::tables(100).narrow(0, 100).unwrap().0.dims(), [100, 4]);
    }

    #[test]
    fn factors_must_fit() {
        let rope = Rope { theta: 10_000., interleaved: false, scaling: None };
        let made = RotaryTables::new(&rope, 8, 10, Some(&[1.; 3]), DType::F32, &Device::Cpu);
        assert!(made.unwrap_err().to_string().contains("3 rotary factors for 4 pairs"));
    }
}
