//! The cache of keys and values of one attention.

use super::kv_store::{KvCacheDType, KvStore, adds_zeros};
use super::{dtype_word, layer_span, record};
use candle_core::{DType, Result, Tensor, bail};
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
    keys: Option<KvStore>,
    values: Option<KvStore>,
    kept_as: KvCacheDType,
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
            kept_as: self.kept_as,
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
        let (kept_as, span) = (KvCacheDType::Auto, layer_span!("kv_cache", path));
        Self { keys: None, values: None, kept_as, len: 0, reserved: 0, max_tokens, span }
    }

    /// Holds what comes from now on in this way, and nothing of what was held before.
    pub(crate) fn keep_as(&mut self, kept_as: KvCacheDType) {
        (self.kept_as, self.keys, self.values, self.len) = (kept_as, None, None, 0);
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
        [&self.keys, &self.values].into_iter().flatten().map(KvStore::bytes).sum()
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
        let Self { kept_as, reserved, max_tokens, .. } = *self;
        let room = Room { position, needed, reserved, max_tokens, kept_as };
        let keys = room.within(&mut self.keys, k)?;
        let values = room.within(&mut self.values, v)?;
        keys.write(k, position)?;
        values.write(v, position)?;
        self.len = needed;
        record(|| {
            let dims = Heads::new(kv_heads, kv_heads, head_dim);
            let (work, width) = (Input::new(batch, tokens, position), k.dtype().size_in_bytes());
            let (cost, held) = match kept_as {
                KvCacheDType::Auto => (dims.kv_write(work, Widths::of(width)), k.dtype()),
                KvCacheDType::Q8 => {
                    let written = dims.kv_write_in_8_bits(work, width, adds_zeros(k.device().is_cuda(), width));
                    (written + dims.kv_read_in_8_bits(work, width), DType::U8)
                }
            };
            Annotation::from(cost).dtype(dtype_word(held)).shape(&[batch, kv_heads, needed, head_dim])
        });
        Ok((keys.read(needed)?, values.read(needed)?))
    }
}

/// The memory that an append needs.
struct Room {
    position: usize,
    needed: usize,
    reserved: usize,
    max_tokens: usize,
    kept_as: KvCacheDType,
}

impl Room {
    /// The memory that keys or values are written into, made or grown so that `needed` tokens like `new` fit.
    fn within(&self, held: &mut Option<KvStore>, new: &Tensor) -> Result<KvStore> {
        let (batch, heads, _, head_dim) = new.dims4()?;
        let capacity = |store: &KvStore| store.dims().map_or(0, |(_, _, capacity, _)| capacity);
        let same = |store: &KvStore| {
            let of = store.dims().is_ok_and(|(b, h, _, d)| (b, h, d) == (batch, heads, head_dim));
            of && store.dtype() == new.dtype()
        };
        let old = held.take().filter(same);
        if old.is_none() && self.position > 0 {
            bail!("the KV cache holds tokens of another batch size or element type: begin at position 0")
        }
        let store = match old {
            Some(store) if capacity(&store) >= self.needed => store,
            old => {
                let doubled = old.as_ref().map_or(0, |store| 2 * capacity(store));
                let wanted = self.needed.max(doubled).max(self.reserved);
                let capacity = wanted.next_multiple_of(GRANULE).min(self.max_tokens);
                let shape = (batch, heads, capacity, head_dim);
                let fresh = KvStore::zeros(shape, self.kept_as, new.dtype(), new.device())?;
                if let Some(old) = old.filter(|_| self.position > 0) {
                    fresh.take_over(&old, self.position)?;
                }
                fresh
            }
        };
        *held = Some(store.clone());
        Ok(store)
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

    #[test]
    fn in_8_bits_it_grows_and_goes_back_as_it_does_in_full() {
        let (mut full, mut small) = (KvCache::new("kv_cache", 2000), KvCache::new("kv_cache", 2000));
        small.keep_as(KvCacheDType::Q8);
        // Grows twice, and is rolled back by several tokens, as guessed ones are that were wrong.
        for (n, position) in [(3, 0), (1, 3), (250, 4), (5, 254), (2, 255), (600, 257), (4, 300)] {
            let k = tokens(2, position, n);
            let v = (&k * -0.5).unwrap();
            let (of_full, of_small) = (full.append(&k, &v, position).unwrap(), small.append(&k, &v, position).unwrap());
            for (full, small) in [(of_full.0, of_small.0), (of_full.1, of_small.1)] {
                assert_eq!(full.dims(), small.dims());
                // Half a step of the largest of a position and head.
                let most = full.abs().unwrap().max_keepdim(3).unwrap().broadcast_as(full.shape()).unwrap();
                let apart = (&full - &small).unwrap().abs().unwrap();
                let beyond = (apart - (most * (0.501 / 127.0)).unwrap()).unwrap();
                let worst = beyond.flatten_all().unwrap().max(0).unwrap().to_scalar::<f32>().unwrap();
                assert!(worst <= 0.0, "{n} tokens at {position}: {worst} more than half a step");
            }
        }
        assert_eq!((small.len(), full.len()), (304, 304));
        // 1,024 positions of 2 sequences, 2 heads, 2 features: bytes and a scale, where f32 takes four bytes each.
        assert_eq!(full.allocated_bytes(), 2 * (2 * 2 * 1024 * 2 * 4));
        assert_eq!(small.allocated_bytes(), 2 * (2 * 2 * 1024 * (2 + 4)));
        let message = small.append(&tokens(2, 0, 1), &tokens(2, 0, 1), 400).unwrap_err().to_string();
        assert!(message.contains("holds 304 tokens, position 400 leaves a gap"), "{message}");
    }
}
