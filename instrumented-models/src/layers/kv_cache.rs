//! The cache of keys and values of one attention.

use super::{dtype_word, layer_span, record};
use candle_core::{Result, Tensor, bail};
use candlescope_core::Annotation;
use candlescope_work::input::{Input, Widths};
use candlescope_work::operation::Heads;
use tracing::Span;

/// Slots are allocated in multiples of this many tokens.
const GRANULE: usize = 256;

/// Keys and values of earlier tokens, (batch, kv heads, capacity, head) each, written in place.
///
/// Memory doubles when it runs out, so that appending is O(1) per token on average and a long context costs nothing
/// before it is used; [`KvCache::reserve`] avoids the growth. A clone is empty: two models never write into one cache.
#[derive(Debug)]
pub struct KvCache {
    keys: Option<Tensor>,
    values: Option<Tensor>,
    len: usize,
    reserved: usize,
    max_tokens: usize,
    span: Span,
}

impl Clone for KvCache {
    fn clone(&self) -> Self {
        Self {
            keys: None,
            values: None,
            len: 0,
            reserved: self.reserved,
            max_tokens: self.max_tokens,
            span: self.span.clone(),
        }
    }
}

impl KvCache {
    /// An empty cache of at most `max_tokens` tokens, named by `path`.
    pub fn new(path: &str, max_tokens: usize) -> Self {
        Self { keys: None, values: None, len: 0, reserved: 0, max_tokens, span: layer_span!("kv_cache", path) }
    }

    /// Tokens held per sequence.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Removes all tokens and keeps the memory.
    pub fn reset(&mut self) {
        self.len = 0;
    }

    /// Makes the next allocation hold at least `tokens` tokens.
    pub fn reserve(&mut self, tokens: usize) {
        self.reserved = tokens.min(self.max_tokens);
    }

    /// Bytes allocated for keys and values.
    pub fn allocated_bytes(&self) -> u64 {
        [&self.keys, &self.values].into_iter().flatten().map(super::tensor_bytes).sum()
    }

    /// Writes keys and values, (batch, kv heads, tokens, head) each, at `position` and returns all up to and
    /// including them.
    ///
    /// Tokens at `position` and later are replaced, so position 0 starts a new text, and a smaller position goes back.
    /// Fails if `position` is beyond the held tokens or the tokens do not fit.
    pub fn append(&mut self, k: &Tensor, v: &Tensor, position: usize) -> Result<(Tensor, Tensor)> {
        let _entered = self.span.enter();
        let (batch, kv_heads, tokens, head_dim) = k.dims4()?;
        if position > self.len {
            bail!(
                "the KV cache holds {} tokens, position {position} leaves a gap: pass the tokens in between",
                self.len
            )
        }
        let needed = position + tokens;
        if needed > self.max_tokens {
            bail!("{needed} tokens do not fit into a KV cache of at most {} tokens", self.max_tokens)
        }
        let room = Room { position, needed, reserved: self.reserved, max_tokens: self.max_tokens };
        let keys = room.within(&mut self.keys, k)?;
        let values = room.within(&mut self.values, v)?;
        keys.slice_set(&k.contiguous()?, 2, position)?;
        values.slice_set(&v.contiguous()?, 2, position)?;
        self.len = needed;
        record(|| {
            let dims = Heads::new(kv_heads, kv_heads, head_dim);
            let cost = dims.kv_write(Input::new(batch, tokens, position), Widths::of(k.dtype().size_in_bytes()));
            Annotation::from(cost).dtype(dtype_word(k.dtype())).shape(&[batch, kv_heads, needed, head_dim])
        });
        Ok((keys.narrow(2, 0, needed)?, values.narrow(2, 0, needed)?))
    }
}

/// The memory that an append needs.
struct Room {
    position: usize,
    needed: usize,
    reserved: usize,
    max_tokens: usize,
}

impl Room {
    /// The tensor that keys or values are written into, made or grown so that `needed` tokens like `new` fit.
    fn within(&self, held: &mut Option<Tensor>, new: &Tensor) -> Result<Tensor> {
        let (batch, heads, _, head_dim) = new.dims4()?;
        let same = |t: &Tensor| {
            let d = t.dims();
            d.len() == 4 && (d[0], d[1], d[3]) == (batch, heads, head_dim) && t.dtype() == new.dtype()
        };
        let old = held.take().filter(same);
        if old.is_none() && self.position > 0 {
            bail!("the KV cache holds tokens of another batch size or element type: begin at position 0")
        }
        let slots = match old {
            Some(t) if t.dims()[2] >= self.needed => t,
            old => {
                let doubled = old.as_ref().map_or(0, |t| 2 * t.dims()[2]);
                let wanted = self.needed.max(doubled).max(self.reserved);
                let capacity = wanted.next_multiple_of(GRANULE).min(self.max_tokens);
                let fresh = Tensor::zeros((batch, heads, capacity, head_dim), new.dtype(), new.device())?;
                if let Some(old) = old.filter(|_| self.position > 0) {
                    fresh.slice_set(&old.narrow(2, 0, self.position)?.contiguous()?, 2, 0)?;
                }
                fresh
            }
        };
        *held = Some(slots.clone());
        Ok(slots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device};

    fn tokens(batch: usize, from: usize, n: usize) -> Tensor {
        let values: Vec<f32> = (0..batch * 2 * n * 2).map(|i| (from * 1000 + i) as f32).collect();
        Tensor::from_vec(values, (batch, 2, n, 2), &Device::Cpu).unwrap()
    }

    #[test]
    fn equals_concatenation_through_growth() {
        let mut cache = KvCache::new("kv_cache", 2000);
        let mut all: Option<Tensor> = None;
        let mut position = 0;
        for n in [3, 1, 250, 1, 1, 600, 1] {
            let k = tokens(2, position, n);
            let (got_k, got_v) = cache.append(&k, &(&k * 2.).unwrap(), position).unwrap();
            all = Some(match all {
                None => k.clone(),
                Some(all) => Tensor::cat(&[&all, &k], 2).unwrap(),
            });
            let expected = all.as_ref().unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
            assert_eq!(got_k.flatten_all().unwrap().to_vec1::<f32>().unwrap(), expected);
            assert_eq!((got_v / 2.).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap(), expected);
            position += n;
        }
        assert_eq!(cache.len(), position);
    }

    #[test]
    fn steps_back_and_begins_anew() {
        let mut cache = KvCache::new("kv_cache", 100);
        let (a, b) = (tokens(1, 0, 4), tokens(1, 9, 1));
        cache.append(&a, &a, 0).unwrap();
        let (k, _) = cache.append(&b, &b, 2).unwrap();
        assert_eq!(k.dims(), &[1, 2, 3, 2]);
        assert_eq!(cache.len(), 3);
        // The batch size may change at position 0 only.
        let wide = tokens(3, 0, 2);
        assert!(cache.append(&wide, &wide, 2).unwrap_err().to_string().contains("begin at position 0"));
        cache.append(&wide, &wide, 0).unwrap();
        assert_eq!(cache.len(), 2);
    }

    #[test]
    fn gaps_and_overflow_are_errors() {
        let mut cache = KvCache::new("kv_cache", 4);
        let k = tokens(1, 0, 3);
        assert!(cache.append(&k, &k, 1).unwrap_err().to_string().contains("leaves a gap"));
        cache.append(&k, &k, 0).unwrap();
        assert!(cache.append(&k, &k, 3).unwrap_err().to_string().contains("6 tokens do not fit"));
    }

    #[test]
    fn reserve_allocates_once_and_clones_are_empty() {
        let mut cache = KvCache::new("kv_cache", 4096);
        cache.reserve(1000);
        let k = tokens(1, 0, 1).to_dtype(DType::F16).unwrap();
        cache.append(&k, &k, 0).unwrap();
        assert_eq!(cache.allocated_bytes(), 2 * (2 * 1024 * 2 * 2));
        let clone = cache.clone();
        assert!(clone.is_empty() && clone.allocated_bytes() == 0);
    }
}
