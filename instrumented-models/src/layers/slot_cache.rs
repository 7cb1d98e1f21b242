//! Keys and values of a fixed number of sequences, in memory that is allocated once.

use super::{Place, dtype_word, layer_span, record};
use candle_core::{DType, Device, Result, Tensor, bail};
use candlescope_core::Annotation;
use candlescope_work::input::Widths;
use candlescope_work::operation::Heads;
use std::ops::Range;
use tracing::Span;

/// Keys and values, (slots, kv heads, context, head) each, written in place.
///
/// A slot belongs to one sequence at a time. Positions beyond a sequence's end are masked, which keeps what is a number
/// from being attended to; see [`erase`](Self::erase) for the rest.
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

    /// Makes zeros of what `slots` hold from position `from` up to `to`. What a sequence leaves may be no numbers, and
    /// masking does not keep these from whoever comes after it.
    ///
    /// # Errors
    /// If there is no such slot or position.
    pub fn erase(&self, slots: Range<usize>, from: usize, to: usize) -> Result<()> {
        let (_, kv_heads, _, head_dim) = self.keys.dims4()?;
        let (first, count) = (slots.start, slots.len());
        let zeros = Tensor::zeros((count, kv_heads, to - from, head_dim), self.keys.dtype(), self.keys.device())?;
        self.keys.narrow(0, first, count)?.slice_set(&zeros, 2, from)?;
        self.values.narrow(0, first, count)?.slice_set(&zeros, 2, from)
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
            Place::Each(step) => (0, step.attending().context),
        };
        if first + batch > slots || context > most {
            bail!(
                "{batch} sequences of {context} tokens from slot {first} on do not fit {slots} slots of {most} tokens"
            )
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
            let widths = Widths::of(k.dtype().size_in_bytes());
            let cost = place.keeping(place.work(batch, tokens), |work| dims.kv_write(work, widths));
            Annotation::from(cost).dtype(dtype_word(k.dtype())).shape(&[batch, kv_heads, context, head_dim])
        });
        Ok((keys.narrow(2, 0, context)?, values.narrow(2, 0, context)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(value: f32, tokens: usize) -> Tensor {
        Tensor::full(value, (1, 2, tokens, 4), &Device::Cpu).unwrap()
    }

    #[test]
    fn what_is_erased_is_zero_and_nothing_else() {
        let cache = SlotCache::new("kv_cache", (3, 2, 10, 4), DType::F32, &Device::Cpu).unwrap();
        let nan = full(f32::NAN, 9);
        for first in 0..3 {
            cache.append(&nan, &nan, Place::Slots { first, position: 0 }).unwrap();
        }
        cache.erase(1..2, 4, 9).unwrap();
        let kept = full(1.0, 4);
        cache.append(&kept, &kept, Place::Slots { first: 1, position: 0 }).unwrap();
        for tensor in [&cache.keys, &cache.values] {
            let sums = tensor.sum((1, 2, 3)).unwrap().to_vec1::<f32>().unwrap();
            assert!(sums[0].is_nan() && sums[2].is_nan() && sums[1] == 4.0 * 2.0 * 4.0, "{sums:?}");
        }
    }

    #[test]
    fn slots_that_are_not_there_are_refused() {
        let cache = SlotCache::new("kv_cache", (2, 2, 10, 4), DType::F32, &Device::Cpu).unwrap();
        let k = full(1.0, 3);
        let message = |place| cache.append(&k, &k, place).unwrap_err().to_string();
        assert!(message(Place::Slots { first: 2, position: 0 }).contains("do not fit 2 slots of 10 tokens"));
        assert!(message(Place::Slots { first: 0, position: 8 }).contains("11 tokens from slot 0"));
        assert!(message(Place::At(0)).contains("name the slot"));
    }
}
