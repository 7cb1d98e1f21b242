//! Keys and values of a fixed number of sequences, in memory that is allocated once.

use super::{Place, dtype_word, layer_span, record};
use candle_core::{DType, Device, Result, Tensor, bail};
use candlescope_core::Annotation;
use candlescope_work::input::Widths;
use candlescope_work::operation::Heads;
use tracing::Span;

/// Keys and values, (slots, kv heads, context, head) each, written in place.
///
/// A slot belongs to one sequence at a time. What a slot held before is overwritten, not erased: positions beyond a
/// sequence's end are never attended to.
#[derive(Debug)]
pub struct SlotCache {
    keys: Tensor,
    values: Tensor,
    span: Span,
}

impl SlotCache {
    /// Room for `slots` sequences of `context` tokens, named by `path`.
    ///
    /// # Errors
    /// If the device has not enough memory.
    pub fn new(
        path: &str,
        (slots, kv_heads, context, head_dim): (usize, usize, usize, usize),
        dtype: DType,
        device: &Device,
    ) -> Result<Self> {
        // Zeros: a slot that is idle attends to them, and what is not a number would spread from there.
        let room = || Tensor::zeros((slots, kv_heads, context, head_dim), dtype, device);
        Ok(Self { keys: room()?, values: room()?, span: layer_span!("kv_cache", path) })
    }

    /// Bytes of keys and values.
    pub fn allocated_bytes(&self) -> u64 {
        super::tensor_bytes(&self.keys) + super::tensor_bytes(&self.values)
    }

    /// Writes keys and values, (batch, kv heads, tokens, head) each, at their `place`, and returns what the tokens
    /// attend to: all positions up to the last of them, or the step's context.
    ///
    /// # Errors
    /// If the place is not one of slots, or lies beyond them.
    pub fn append(&self, k: &Tensor, v: &Tensor, place: Place<'_>) -> Result<(Tensor, Tensor)> {
        let _entered = self.span.enter();
        let (batch, kv_heads, tokens, head_dim) = k.dims4()?;
        let (slots, _, most, _) = self.keys.dims4()?;
        let (first, context) = match place {
            Place::At(_) => bail!("these keys are held in slots: name the slot"),
            Place::Slots { first, position } => (first, position + tokens),
            Place::Each(step) => (0, step.context),
        };
        if first + batch > slots || context > most {
            bail!("{batch} sequences of {context} tokens from slot {first} on do not fit {slots} slots of {most} tokens")
        }
        let (keys, values) = (self.keys.narrow(0, first, batch)?, self.values.narrow(0, first, batch)?);
        let (k, v) = (k.contiguous()?, v.contiguous()?);
        match place {
            Place::Each(step) => {
                keys.scatter_set(&step.write_at, &k, 2)?;
                values.scatter_set(&step.write_at, &v, 2)?;
            }
            _ => {
                keys.slice_set(&k, 2, context - tokens)?;
                values.slice_set(&v, 2, context - tokens)?;
            }
        }
        record(|| {
            let dims = Heads::new(kv_heads, kv_heads, head_dim);
            let cost = dims.kv_write(place.work(batch, tokens), Widths::of(k.dtype().size_in_bytes()));
            Annotation::from(cost).dtype(dtype_word(k.dtype())).shape(&[batch, kv_heads, context, head_dim])
        });
        Ok((keys.narrow(2, 0, context)?, values.narrow(2, 0, context)?))
    }
}
