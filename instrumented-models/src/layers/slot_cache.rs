//! Keys and values of a fixed number of sequences, in memory that is allocated once.

use super::kv_store::{KvCacheDType, KvStore, adds_zeros};
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
    keys: KvStore,
    values: KvStore,
    kept_as: KvCacheDType,
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
        Self::kept_as(KvCacheDType::Auto, path, (slots, kv_heads, context, head_dim), dtype, device)
    }

    /// The same, held in this way.
    pub(crate) fn kept_as(
        kept_as: KvCacheDType,
        path: &str,
        shape: (usize, usize, usize, usize),
        dtype: DType,
        device: &Device,
    ) -> Result<Self> {
        let room = || KvStore::zeros(shape, kept_as, dtype, device);
        Ok(Self { keys: room()?, values: room()?, kept_as, span: layer_span!("kv_cache", path) })
    }

    /// Bytes of keys and values.
    pub fn allocated_bytes(&self) -> u64 {
        self.keys.bytes() + self.values.bytes()
    }

    /// Makes zeros of what `slots` hold from position `from` up to `to`. What a sequence leaves may be no numbers, and
    /// masking does not keep these from whoever comes after it.
    ///
    /// # Errors
    /// If there is no such slot or position.
    pub fn erase(&self, slots: Range<usize>, from: usize, to: usize) -> Result<()> {
        let (first, count) = (slots.start, slots.len());
        self.keys.sequences(first, count)?.erase_both(&self.values.sequences(first, count)?, from, to)
    }

    /// Exchanges what two slots hold, of each its first so many positions: (slot, positions).
    pub(crate) fn exchange(&self, a: (usize, usize), b: (usize, usize)) -> Result<()> {
        self.keys.exchange(a, b)?;
        self.values.exchange(a, b)
    }

    /// Writes keys and values, (batch, kv heads, tokens, head) each, at their `place`, and returns what the tokens
    /// attend to: all positions up to the last of them, or the step's context.
    ///
    /// # Errors
    /// If the place is not one of slots, or lies beyond them.
    pub fn append(&self, k: &Tensor, v: &Tensor, place: Place<'_>) -> Result<(Tensor, Tensor)> {
        let _entered = self.span.enter();
        let (batch, kv_heads, tokens, head_dim) = k.dims4()?;
        let (slots, _, most, _) = self.keys.dims()?;
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
        let (keys, values) = (self.keys.sequences(first, batch)?, self.values.sequences(first, batch)?);
        match place {
            Place::Each(step) => {
                keys.scatter(k, &step.write_at)?;
                values.scatter(v, &step.write_at)?;
            }
            _ => {
                keys.write(k, context - tokens)?;
                values.write(v, context - tokens)?;
            }
        }
        record(|| {
            let dims = Heads::new(kv_heads, kv_heads, head_dim);
            let (work, width) = (place.work(batch, tokens), k.dtype().size_in_bytes());
            let (cost, held) = match self.kept_as {
                KvCacheDType::Auto => (place.keeping(work, |work| dims.kv_write(work, Widths::of(width))), k.dtype()),
                KvCacheDType::Q8 => {
                    let adds_zeros = adds_zeros(k.device().is_cuda(), width);
                    let written = place.keeping(work, |work| dims.kv_write_in_8_bits(work, width, adds_zeros));
                    (written + place.attending(work, |work| dims.kv_read_in_8_bits(work, width)), DType::U8)
                }
            };
            Annotation::from(cost).dtype(dtype_word(held)).shape(&[batch, kv_heads, context, head_dim])
        });
        Ok((keys.read(context)?, values.read(context)?))
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
        KvCacheDType::ALL.iter().copied().for_each(is_erased_alone);
    }

    fn is_erased_alone(kept_as: KvCacheDType) {
        let cache = SlotCache::kept_as(kept_as, "kv_cache", (3, 2, 10, 4), DType::F32, &Device::Cpu).unwrap();
        for (first, held) in [full(7.0, 9), full(f32::NAN, 9), full(7.0, 9)].iter().enumerate() {
            cache.append(held, held, Place::Slots { first, position: 0 }).unwrap();
        }
        cache.erase(1..2, 4, 9).unwrap();
        let kept = full(1.0, 4);
        cache.append(&kept, &kept, Place::Slots { first: 1, position: 0 }).unwrap();
        for held in [&cache.keys, &cache.values] {
            let sums = held.read(10).unwrap().sum((1, 2, 3)).unwrap().to_vec1::<f32>().unwrap();
            assert!((sums[1] - 4.0 * 2.0 * 4.0).abs() < 1e-3, "{kept_as:?}: {sums:?}");
            let is_left = |sum: f32| (sum - 7.0 * 9.0 * 2.0 * 4.0).abs() < 1e-2;
            assert!(is_left(sums[0]) && is_left(sums[2]), "{kept_as:?}: {sums:?}");
        }
    }

    #[test]
    fn what_two_slots_hold_is_exchanged_to_the_bit_and_no_other_slot_is_touched() {
        for kept_as in KvCacheDType::ALL {
            let cache = SlotCache::kept_as(*kept_as, "kv_cache", (3, 2, 10, 4), DType::F32, &Device::Cpu).unwrap();
            let tokens = [9, 10, 3];
            for (first, tokens) in tokens.into_iter().enumerate() {
                let k = Tensor::rand(-1f32, 1.0, (1, 2, tokens, 4), &Device::Cpu).unwrap();
                cache.append(&k, &(&k * 2.0).unwrap(), Place::Slots { first, position: 0 }).unwrap();
            }
            let read = |held: &KvStore, slot: usize, positions: usize| {
                let of_slot = held.read(10).unwrap().get(slot).unwrap().narrow(1, 0, positions).unwrap();
                of_slot.flatten_all().unwrap().to_vec1::<f32>().unwrap()
            };
            let all = || [&cache.keys, &cache.values].map(|held| [0, 1, 2].map(|slot| read(held, slot, tokens[slot])));
            let before = all();
            cache.exchange((0, 9), (2, 3)).unwrap();
            for (held, before) in [&cache.keys, &cache.values].into_iter().zip(&before) {
                assert_eq!(read(held, 2, 9), before[0], "{kept_as:?}");
                assert_eq!(read(held, 0, 3), before[2], "{kept_as:?}");
                assert_eq!(read(held, 1, 10), before[1], "{kept_as:?}");
            }
            // A whole slot, of which no copy is needed for its shape, and one that holds nothing.
            cache.exchange((1, 10), (0, 0)).unwrap();
            assert_eq!(read(&cache.keys, 0, 10), before[0][1], "{kept_as:?}");
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
