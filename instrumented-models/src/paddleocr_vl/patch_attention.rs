//! Attention of the tower, in which every patch attends to every other, and of the decoder, which has a cache.

use crate::config::AttentionDims;
use crate::layers::{KvCache, Projection, dtype_word, join, layer_span, record};
use crate::weights::{WeightError, WeightSource, projection};
use candle_core::{DType, Result, Tensor};
use candle_nn::Module;
use candle_nn::rotary_emb::rope;
use candlescope_core::Annotation;
use candlescope_work::input::{Input, Widths};
use candlescope_work::operation::{Cost, Heads};
use tracing::Span;

/// Queries at once. All at once would take gigabytes of scores for a large image.
const TILE: usize = 1024;

#[derive(Debug)]
pub(super) struct Attention {
    q: Projection,
    k: Projection,
    v: Projection,
    o: Projection,
    dims: AttentionDims,
    /// Of the decoder.
    cache: Option<KvCache>,
    attention: Span,
    rotary: Span,
    scores: Span,
    softmax: Span,
    context: Span,
}

/// Cosines and sines of each position, (batch or none, tokens, half of a head).
pub(super) struct Angles {
    pub(super) cos: Tensor,
    pub(super) sin: Tensor,
}

impl Attention {
    /// The attention at `path`, whose last projection is called `output`.
    pub(super) fn load(
        source: &mut dyn WeightSource,
        path: &str,
        (hidden, dims, bias): (usize, AttentionDims, bool),
        output: &str,
        cache: Option<usize>,
    ) -> std::result::Result<Self, WeightError> {
        let AttentionDims { heads, kv_heads, head_dim } = dims;
        let mut made = |name: &str, out: usize, input: usize| projection(source, &join(path, name), (out, input), bias);
        Ok(Self {
            q: made("q_proj", heads * head_dim, hidden)?,
            k: made("k_proj", kv_heads * head_dim, hidden)?,
            v: made("v_proj", kv_heads * head_dim, hidden)?,
            o: made(output, hidden, heads * head_dim)?,
            dims,
            cache: cache.map(|most| KvCache::new(&join(path, "kv_cache"), most)),
            attention: layer_span!("attention", path),
            rotary: layer_span!("rotary", &join(path, "rotary")),
            scores: layer_span!("scores", &join(path, "scores")),
            softmax: layer_span!("softmax", &join(path, "softmax")),
            context: layer_span!("context", &join(path, "context")),
        })
    }

    pub(super) fn reset(&mut self) {
        self.cache.iter_mut().for_each(KvCache::reset);
    }

    /// From (batch, tokens, hidden) at `position` to the same shape. `mask` is (tokens, position + tokens).
    pub(super) fn forward(
        &mut self,
        xs: &Tensor,
        angles: &Angles,
        mask: Option<&Tensor>,
        position: usize,
    ) -> Result<Tensor> {
        let attention = self.attention.clone();
        let _entered = attention.enter();
        let (batch, tokens, _) = xs.dims3()?;
        let AttentionDims { heads, kv_heads, head_dim } = self.dims;
        let apart = |xs: Tensor, heads| xs.reshape((batch, tokens, heads, head_dim))?.transpose(1, 2)?.contiguous();
        let q = apart(self.q.forward(xs)?, heads)?;
        let k = apart(self.k.forward(xs)?, kv_heads)?;
        let v = apart(self.v.forward(xs)?, kv_heads)?;
        let work = Input::new(batch, tokens, position);
        let (q, k) = self.rotated(&q, &k, angles, work)?;
        let (k, v) = match &mut self.cache {
            Some(cache) => cache.append(&k, &v, position)?,
            None => (k, v),
        };
        let mut parts = Vec::new();
        for from in (0..tokens).step_by(TILE) {
            let many = TILE.min(tokens - from);
            let q = q.narrow(2, from, many)?.contiguous()?;
            let mask = mask.map(|mask| mask.narrow(0, from, many)).transpose()?;
            let part =
                if self.cache.is_some() { Input { tokens: many as u64, ..work } } else { Input::new(batch, many, 0) };
            parts.push(self.attend(&q, &k, &v, mask.as_ref(), part)?);
        }
        let context = if let [one] = &parts[..] { one.clone() } else { Tensor::cat(&parts, 1)? };
        self.o.forward(&context.to_dtype(xs.dtype())?)
    }

    /// As candle's models do, in f32 in the tower.
    fn rotated(&self, q: &Tensor, k: &Tensor, angles: &Angles, work: Input) -> Result<(Tensor, Tensor)> {
        let _entered = self.rotary.enter();
        let dtype = if self.cache.is_some() { q.dtype() } else { DType::F32 };
        let (cos, sin) = (angles.cos.to_dtype(dtype)?, angles.sin.to_dtype(dtype)?);
        let q = rope(&q.to_dtype(dtype)?, &cos, &sin)?;
        let k = rope(&k.to_dtype(dtype)?, &cos, &sin)?;
        record(|| Annotation::from(self.dims.counted().rotary(work, dtype.size_in_bytes())).dtype(dtype_word(dtype)));
        Ok((q, k))
    }

    /// Some queries, (batch, heads, tokens, head), on all keys and values: (batch, tokens, heads · head).
    fn attend(&self, q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>, work: Input) -> Result<Tensor> {
        let AttentionDims { heads, kv_heads, head_dim } = self.dims;
        let (batch, _, tokens, _) = q.dims4()?;
        let context = k.dim(2)?;
        let stacked = (batch, kv_heads, heads / kv_heads * tokens, head_dim);
        let width = q.dtype().size_in_bytes();
        let scores = {
            let _entered = self.scores.enter();
            let scores = (q.reshape(stacked)?.matmul(&k.t()?)? * (head_dim as f64).powf(-0.5))?;
            record(|| Annotation::from(self.product(Heads::scores, work, context, width)).dtype(dtype_word(q.dtype())));
            scores.reshape((batch, heads, tokens, context))?
        };
        let weights = {
            let _entered = self.softmax.enter();
            let scores = scores.to_dtype(DType::F32)?;
            let scores = mask.map_or_else(|| Ok(scores.clone()), |mask| scores.broadcast_add(mask))?;
            let weights = candle_nn::ops::softmax_last_dim(&scores)?;
            record(|| Annotation::from(self.product(Heads::softmax, work, context, width)));
            weights.to_dtype(v.dtype())?
        };
        let _entered = self.context.enter();
        let weights = weights.reshape((batch, kv_heads, heads / kv_heads * tokens, context))?;
        let out = weights.matmul(v)?.reshape((batch, heads, tokens, head_dim))?;
        let out = out.transpose(1, 2)?.reshape((batch, tokens, heads * head_dim))?;
        record(|| Annotation::from(self.product(Heads::context, work, context, width)).dtype(dtype_word(v.dtype())));
        Ok(out)
    }

    /// The cost of a part of attention. Where there is no cache every patch attends to all: nothing of it is for nothing.
    fn product(&self, of: fn(&Heads, Input, Widths) -> Cost, work: Input, context: usize, width: usize) -> Cost {
        let cost = of(&self.dims.counted(), Input { context: context as u64, ..work }, Widths::of(width));
        match &self.cache {
            Some(_) => cost,
            None => cost.unmasked().without_cache(),
        }
    }
}
