//! Causal self-attention, grouped-query where there are fewer key/value heads.

use super::kv_store::{KvCacheDType, adds_zeros};
use super::{KvCache, Place, Projection, Rotary, SlotCache, dtype_word, join, layer_span, product_dtype, record};
use crate::config::AttentionDims;
use candle_core::{DType, Result, Tensor, bail};
use candle_nn::Module;
use candlescope_core::Annotation;
use candlescope_work::input::{Input, Widths};
use candlescope_work::operation::{Cost, pointwise};
use tracing::Span;

/// Self-attention with grouped key/value heads and a cache.
///
/// Its intervals are the projections, `rotary` (or `split`, where one projection makes queries, keys and values),
/// `kv_cache`, `scores` (QKᵀ), `softmax` and `context` (AV and the return to the projections' layout). Query heads that
/// share a key/value head are stacked as rows of one product, so keys and values are never repeated in memory.
#[derive(Debug, Clone)]
pub struct Attention {
    inputs: Inputs,
    o_proj: Projection,
    cache: Option<KvCache>,
    /// Memory for several sequences, in place of `cache` for those that are in a slot.
    slots: OwnSlots,
    /// How both hold keys and values.
    kept_as: KvCacheDType,
    /// Whether that is on an NVIDIA GPU, where writing fewer bits may take less.
    on_cuda: bool,
    dims: AttentionDims,
    spans: Spans,
}

/// A clone has none: two models never write into the same memory.
#[derive(Debug)]
struct OwnSlots(Option<SlotCache>);

impl Clone for OwnSlots {
    fn clone(&self) -> Self {
        Self(None)
    }
}

/// How queries, keys and values are made.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "one for each layer, and a model has one kind only")]
enum Inputs {
    /// By a projection each; queries and keys are rotated.
    Apart { q: Projection, k: Projection, v: Projection, rotary: Rotary },
    /// By one projection, which has them side by side; positions were added to its input.
    Merged { qkv: Projection, split: Span },
}

#[derive(Debug, Clone)]
struct Spans {
    attention: Span,
    scores: Span,
    softmax: Span,
    context: Span,
}

impl Spans {
    fn new(path: &str) -> Self {
        Self {
            attention: layer_span!("attention", path),
            scores: layer_span!("scores", &join(path, "scores")),
            softmax: layer_span!("softmax", &join(path, "softmax")),
            context: layer_span!("context", &join(path, "context")),
        }
    }
}

/// The four projections of an attention.
#[derive(Debug, Clone)]
pub struct AttentionProjections {
    /// Queries: hidden to heads·head.
    pub q: Projection,
    /// Keys: hidden to kv heads·head.
    pub k: Projection,
    /// Values: hidden to kv heads·head.
    pub v: Projection,
    /// Output: heads·head to hidden.
    pub o: Projection,
}

impl Attention {
    /// An attention named by `path`. Without a cache every forward pass needs the whole sequence, from position 0.
    pub fn new(
        path: &str,
        dims: AttentionDims,
        projections: AttentionProjections,
        rotary: Rotary,
        cache: Option<KvCache>,
    ) -> Self {
        let AttentionProjections { q, k, v, o: o_proj } = projections;
        Self {
            inputs: Inputs::Apart { q, k, v, rotary },
            o_proj,
            cache,
            slots: OwnSlots(None),
            kept_as: KvCacheDType::Auto,
            on_cuda: false,
            dims,
            spans: Spans::new(path),
        }
    }

    /// An attention named by `path` whose projection `qkv`, hidden to (heads + 2·kv heads)·head, makes queries, keys and
    /// values at once, as in GPT-2: without rotary embeddings.
    pub fn merged(
        path: &str,
        dims: AttentionDims,
        qkv: Projection,
        output: Projection,
        cache: Option<KvCache>,
    ) -> Self {
        let inputs = Inputs::Merged { qkv, split: layer_span!("split", &join(path, "split")) };
        let (slots, kept_as) = (OwnSlots(None), KvCacheDType::Auto);
        Self { inputs, o_proj: output, cache, slots, kept_as, on_cuda: false, dims, spans: Spans::new(path) }
    }

    /// Holds keys and values in this way, on an NVIDIA GPU or not, and nothing of what was held before; without a cache it
    /// holds none.
    pub(crate) fn keep_as(&mut self, kept_as: KvCacheDType, on_cuda: bool) {
        let Some(cache) = &mut self.cache else { return };
        cache.keep_as(kept_as);
        (self.slots, self.kept_as, self.on_cuda) = (OwnSlots(None), kept_as, on_cuda);
    }

    /// How keys and values are held.
    pub(crate) fn kept_as(&self) -> KvCacheDType {
        self.kept_as
    }

    /// The cache, if there is one.
    pub fn cache_mut(&mut self) -> Option<&mut KvCache> {
        self.cache.as_mut()
    }

    /// The cache, if there is one.
    pub fn cache(&self) -> Option<&KvCache> {
        self.cache.as_ref()
    }

    /// Gives it memory for sequences in slots.
    pub fn hold(&mut self, slots: SlotCache) {
        self.slots = OwnSlots(Some(slots));
    }

    /// Whether any of its weights is quantised.
    pub(crate) fn is_quantized(&self) -> bool {
        let inputs: &[&Projection] = match &self.inputs {
            Inputs::Apart { q, k, v, .. } => &[q, k, v],
            Inputs::Merged { qkv, .. } => &[qkv],
        };
        inputs.iter().any(|projection| projection.is_quantized()) || self.o_proj.is_quantized()
    }

    /// The memory for sequences in slots, if there is any.
    pub fn slots(&self) -> Option<&SlotCache> {
        self.slots.0.as_ref()
    }

    /// Cost of a forward pass: projections, rotary embedding, attention, and the cache if there is one. The projections
    /// know the width of their weights themselves.
    #[doc(hidden)]
    pub fn cost(&self, work: Input, widths: Widths) -> Cost {
        let (rows, width) = (work.rows(), widths.activations);
        let heads = self.dims.counted();
        let keep = match (&self.cache, self.kept_as) {
            (None, _) => heads.turned_values(work, width),
            (Some(_), KvCacheDType::Auto) => heads.kv_write(work, widths),
            (Some(_), KvCacheDType::Q8) => {
                heads.kv_write_in_8_bits(work, width, adds_zeros(self.on_cuda, width))
                    + heads.kv_read_in_8_bits(work, width)
            }
        };
        let inputs = match &self.inputs {
            Inputs::Apart { q, k, v, .. } => q.cost(rows) + k.cost(rows) + v.cost(rows) + heads.rotary(work, width),
            Inputs::Merged { qkv, .. } => qkv.cost(rows) + heads.split(work, width),
        };
        inputs
            + self.o_proj.cost(rows)
            + keep
            + self.read(heads.scores(work, widths))
            + heads.softmax(work, widths)
            + self.read(heads.context(work, widths))
    }

    /// The cost of a product with keys or values: those that were widened from 8 bits are activations.
    fn read(&self, cost: Cost) -> Cost {
        match self.kept_as {
            KvCacheDType::Auto => cost,
            KvCacheDType::Q8 => cost.without_cache(),
        }
    }

    /// Input (batch, tokens, hidden) at `place`; output of the same shape. `mask`, (tokens, position + tokens) or a
    /// [step's](super::SlotStep) own, is added to the scores: 0 to attend, −∞ not to. A single token needs none.
    pub fn forward(&mut self, xs: &Tensor, place: Place<'_>, mask: Option<&Tensor>) -> Result<Tensor> {
        let _entered = self.spans.attention.enter();
        let (batch, tokens, _) = xs.dims3()?;
        let work = place.work(batch, tokens);
        let (q, k, v) = self.inputs(xs, place)?;
        let (k, v) = match (place, &mut self.cache) {
            (Place::Slots { .. } | Place::Each(_), _) => match self.slots() {
                Some(slots) => slots.append(&k, &v, place)?,
                None => bail!("there are no slots: make room for them first"),
            },
            (Place::At(position), Some(cache)) => cache.append(&k, &v, position)?,
            (Place::At(_), None) => {
                record(|| Annotation::from(self.dims.counted().turned_values(work, v.dtype().size_in_bytes())));
                (k, v.contiguous()?)
            }
        };
        let scores = self.scores(&q, &k, place)?;
        let weights = self.softmax(scores, mask, work, widths(&v))?;
        let context = self.context(&weights, &v, place, xs.dtype())?;
        self.o_proj.forward(&context)
    }

    /// Queries, keys and values, (batch, heads, tokens, head) each.
    fn inputs(&self, xs: &Tensor, place: Place<'_>) -> Result<(Tensor, Tensor, Tensor)> {
        let AttentionDims { heads, kv_heads, head_dim } = self.dims;
        let (batch, tokens, _) = xs.dims3()?;
        let work = place.work(batch, tokens);
        match &self.inputs {
            Inputs::Apart { q, k, v, rotary } => {
                let q = q.forward(xs)?.reshape((batch, tokens, heads, head_dim))?.transpose(1, 2)?;
                let k = k.forward(xs)?.reshape((batch, tokens, kv_heads, head_dim))?.transpose(1, 2)?;
                let v = v.forward(xs)?.reshape((batch, tokens, kv_heads, head_dim))?.transpose(1, 2)?;
                let (q, k) = rotary.forward(&q, &k, place)?;
                Ok((q, k, v))
            }
            Inputs::Merged { qkv, split } => {
                let all = qkv.forward(xs)?.reshape((batch, tokens, heads + 2 * kv_heads, head_dim))?;
                let _entered = split.enter();
                let part = |from: usize, count: usize| all.narrow(2, from, count)?.transpose(1, 2);
                let (q, k) = (part(0, heads)?.contiguous()?, part(heads, kv_heads)?.contiguous()?);
                // A copy that whoever keeps the values makes anyway is left to it.
                let v = part(heads + kv_heads, kv_heads)?;
                let v = if tokens > 1 && kv_heads > 1 { v } else { v.contiguous()? };
                record(|| {
                    let cost = self.dims.counted().split(work, q.dtype().size_in_bytes());
                    Annotation::from(cost).dtype(dtype_word(q.dtype())).shape(q.dims())
                });
                Ok((q, k, v))
            }
        }
    }

    /// QKᵀ/√d, (batch, heads, tokens, context).
    fn scores(&self, q: &Tensor, k: &Tensor, place: Place<'_>) -> Result<Tensor> {
        let _entered = self.spans.scores.enter();
        let AttentionDims { heads, kv_heads, head_dim } = self.dims;
        let dtype = product_dtype(k);
        let (q, keys) = (q.to_dtype(dtype)?, k.to_dtype(dtype)?);
        // Scaling the queries takes one operation per feature of a head; scaling the scores would take one per position
        // of the context.
        let q = (q * (1. / (head_dim as f64).sqrt()))?;
        let (batch, _, tokens, _) = q.dims4()?;
        let stacked = (batch, kv_heads, heads / kv_heads * tokens, head_dim);
        let scores = q.reshape(stacked)?.matmul(&keys.t()?)?;
        let scores = scores.reshape((batch, heads, tokens, k.dim(2)?))?;
        record(|| {
            let (dims, widths) = (self.dims.counted(), widths(k));
            let cost = place.attending(place.work(batch, tokens), |work| self.read(dims.scores(work, widths)));
            Annotation::from(cost).dtype(dtype_word(scores.dtype())).shape(scores.dims())
        });
        Ok(scores)
    }

    /// Attention weights, in f32 whatever the type of the scores.
    fn softmax(&self, scores: Tensor, mask: Option<&Tensor>, work: Input, widths: Widths) -> Result<Tensor> {
        let _entered = self.spans.softmax.enter();
        let scores = scores.to_dtype(DType::F32)?;
        let scores = match mask {
            Some(mask) => scores.broadcast_add(mask)?,
            None => scores,
        };
        let weights = candle_nn::ops::softmax_last_dim(&scores)?;
        record(|| {
            let cost = self.dims.counted().softmax(work, widths);
            // The mask of a step of slots; that of several tokens is in their cost.
            let masked = mask
                .filter(|_| work.tokens == 1)
                .map_or(Cost::ZERO, |mask| pointwise(weights.elem_count(), 2, 4) + pointwise(mask.elem_count(), 1, 4));
            Annotation::from(cost + masked).dtype(dtype_word(weights.dtype())).shape(weights.dims())
        });
        Ok(weights)
    }

    /// AV, (batch, tokens, heads·head) in `dtype`.
    fn context(&self, weights: &Tensor, v: &Tensor, place: Place<'_>, dtype: DType) -> Result<Tensor> {
        let _entered = self.spans.context.enter();
        let AttentionDims { heads, kv_heads, head_dim } = self.dims;
        let values = v.to_dtype(product_dtype(v))?;
        let weights = weights.to_dtype(values.dtype())?;
        let (batch, _, tokens, positions) = weights.dims4()?;
        let stacked = (batch, kv_heads, heads / kv_heads * tokens, positions);
        let context = weights.reshape(stacked)?.matmul(&values)?;
        let context = context.reshape((batch, heads, tokens, head_dim))?.transpose(1, 2)?;
        let context = context.reshape((batch, tokens, heads * head_dim))?.to_dtype(dtype)?;
        record(|| {
            let (dims, widths) = (self.dims.counted(), widths(v));
            let cost = place.attending(place.work(batch, tokens), |work| self.read(dims.context(work, widths)));
            Annotation::from(cost).dtype(dtype_word(values.dtype())).shape(context.dims())
        });
        Ok(context)
    }
}

/// Element widths for attention's products with these keys or values.
fn widths(keys: &Tensor) -> Widths {
    Widths::of(keys.dtype().size_in_bytes()).products(product_dtype(keys).size_in_bytes())
}
