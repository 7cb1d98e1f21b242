//! What our decoders have in common: a stack of blocks, each a norm, attention, a norm and a feed-forward network on the
//! residual stream, and the way in and out of it.

use crate::causal_lm::{See, context_after};
use crate::config::ModelConfig;
use crate::layers::{Attention, CausalMask, KvCache, KvCacheDType, LayerNorm, Mlp, Place, RmsNorm, SlotCache, record};
use candle_core::{DType, Device, Result, Tensor, bail};
use candle_nn::Module;
use candlescope_core::Annotation;
use candlescope_work::input::{Input, Widths};
use candlescope_work::operation::{Cost, Count, cast, pointwise};
use std::ops::Range;
use tracing::Span;

/// A normalisation that says what it costs.
pub(crate) trait Norm: Module {
    /// Cost of a forward pass over `elements` elements.
    fn cost(&self, elements: impl Count) -> Cost;
}

impl Norm for RmsNorm {
    fn cost(&self, elements: impl Count) -> Cost {
        self.cost(elements)
    }
}

impl Norm for LayerNorm {
    fn cost(&self, elements: impl Count) -> Cost {
        self.cost(elements)
    }
}

/// One layer of a decoder, or of a tower with an attention of its own.
#[derive(Debug, Clone)]
pub(crate) struct Block<N, A = Attention> {
    norm: N,
    attention: A,
    mlp_norm: N,
    mlp: Mlp,
    span: Span,
}

impl<N: Norm, A> Block<N, A> {
    /// A block whose weights are at `path`; `norm` stands before the attention, `mlp_norm` before the network.
    pub(crate) fn new(path: &str, norm: N, attention: A, mlp_norm: N, mlp: Mlp) -> Self {
        // Always named `block`: its number is the interval's ordinal.
        let span = tracing::trace_span!(target: "candlescope_models", parent: None, "block", weight = path);
        Self { norm, attention, mlp_norm, mlp, span }
    }

    /// The attention, where there is something to forget.
    pub(crate) fn attention(&mut self) -> &mut A {
        &mut self.attention
    }

    /// The block on `xs`; `attend` is what its attention makes of them once they are normalised.
    pub(crate) fn around(
        &mut self,
        xs: &Tensor,
        attend: impl FnOnce(&mut A, &Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let _entered = self.span.enter();
        let attended = attend(&mut self.attention, &self.norm.forward(xs)?)?;
        let xs = (attended + xs)?;
        let fed = self.mlp.forward(&self.mlp_norm.forward(&xs)?)?;
        record(|| Annotation::from(residual(xs.elem_count(), xs.dtype().size_in_bytes())));
        fed + xs
    }
}

impl<N: Norm> Block<N> {
    fn forward(&mut self, xs: &Tensor, place: Place<'_>, mask: Option<&Tensor>) -> Result<Tensor> {
        self.around(xs, |attention, xs| attention.forward(xs, place, mask))
    }

    fn cost(&self, work: Input, features: usize, widths: Widths) -> Cost {
        let (elements, width) = (work.rows() * features as f64, widths.activations);
        self.norm.cost(elements)
            + self.attention.cost(work, widths)
            + self.mlp_norm.cost(elements)
            + self.mlp.cost(work.rows(), width)
            + residual(elements, width)
    }
}

/// Cost of a block's two sums on the residual stream, each of two tensors to a third.
fn residual(elements: impl Count, width: impl Count) -> Cost {
    pointwise(elements, 2 * 3, width)
}

/// The layers of a decoder. A clone shares the weights and has empty caches of its own.
#[derive(Debug, Clone)]
pub(crate) struct Blocks<N>(Vec<Block<N>>);

impl<N: Norm> Blocks<N> {
    /// `count` blocks, each made from its number.
    pub(crate) fn load<E>(
        count: usize,
        block: impl FnMut(usize) -> std::result::Result<Block<N>, E>,
    ) -> std::result::Result<Self, E> {
        (0..count).map(block).collect::<std::result::Result<_, E>>().map(Self)
    }

    pub(crate) fn forward(&mut self, mut xs: Tensor, place: Place<'_>, mask: Option<&Tensor>) -> Result<Tensor> {
        for block in &mut self.0 {
            xs = block.forward(&xs, place, mask)?;
        }
        Ok(xs)
    }

    /// The same for a new text, showing each block's output to `see`.
    pub(crate) fn inspect(&mut self, mut xs: Tensor, mask: Option<&Tensor>, see: &mut See<'_>) -> Result<Tensor> {
        for (number, block) in self.0.iter_mut().enumerate() {
            xs = block.forward(&xs, Place::At(0), mask)?;
            see(number, &xs)?;
        }
        Ok(xs)
    }

    pub(crate) fn cost(&self, work: Input, features: usize, widths: Widths) -> Cost {
        self.0.iter().map(|block| block.cost(work, features, widths)).sum()
    }

    /// Bytes allocated for keys and values.
    pub(crate) fn kv_bytes(&self) -> u64 {
        let held = |block: &Block<N>| {
            block.attention.cache().map_or(0, KvCache::allocated_bytes)
                + block.attention.slots().map_or(0, SlotCache::allocated_bytes)
        };
        self.0.iter().map(held).sum()
    }

    /// Holds keys and values in this way on this device from now on, and nothing of what was held before.
    pub(crate) fn keep_as(&mut self, kept_as: KvCacheDType, device: &Device) {
        self.0.iter_mut().for_each(|block| block.attention.keep_as(kept_as, device.is_cuda()));
    }

    /// How keys and values are held.
    pub(crate) fn kept_as(&self) -> KvCacheDType {
        self.0.first().map_or(KvCacheDType::Auto, |block| block.attention.kept_as())
    }

    /// Gives each layer memory for `slots` sequences of up to `context` tokens; all of them or none. `path` names that of
    /// a layer.
    pub(crate) fn hold(
        &mut self,
        (slots, context): (usize, usize),
        config: &ModelConfig,
        (dtype, device): (DType, &Device),
        path: impl Fn(usize) -> String,
    ) -> Result<()> {
        let ModelConfig { num_kv_heads, head_dim, max_context, .. } = *config;
        if context > max_context {
            bail!("{context} tokens exceed the context of {max_context} tokens")
        }
        let (shape, kept_as) = ((slots, num_kv_heads, context, head_dim), self.kept_as());
        let made = (0..self.0.len()).map(|layer| SlotCache::kept_as(kept_as, &path(layer), shape, dtype, device));
        let made = made.collect::<Result<Vec<_>>>()?;
        self.0.iter_mut().zip(made).for_each(|(block, slots)| block.attention.hold(slots));
        Ok(())
    }

    /// Makes zeros of what slots hold from position `from` up to `to`.
    pub(crate) fn erase(&self, slots: Range<usize>, from: usize, to: usize) -> Result<()> {
        self.0
            .iter()
            .filter_map(|block| block.attention.slots())
            .try_for_each(|held| held.erase(slots.clone(), from, to))
    }

    /// Exchanges what two slots hold, of each its first so many positions: (slot, positions).
    pub(crate) fn exchange(&self, a: (usize, usize), b: (usize, usize)) -> Result<()> {
        self.0.iter().filter_map(|block| block.attention.slots()).try_for_each(|held| held.exchange(a, b))
    }

    /// Whether any of its weights is quantised.
    pub(crate) fn is_quantized(&self) -> bool {
        self.0.iter().any(|block| block.attention.is_quantized() || block.mlp.is_quantized())
    }

    /// Forgets keys and values.
    pub(crate) fn reset(&mut self) {
        self.caches().for_each(KvCache::reset);
    }

    /// Announces up to `tokens` tokens.
    pub(crate) fn reserve(&mut self, tokens: usize) {
        self.caches().for_each(|cache| cache.reserve(tokens));
    }

    fn caches(&mut self) -> impl Iterator<Item = &mut KvCache> {
        self.0.iter_mut().filter_map(|block| block.attention.cache_mut())
    }
}

/// What is added to the scores of `tokens` at their place, if anything is. Fails if there are none, or if the model has no
/// room for them.
pub(crate) fn mask_at(
    masks: &mut CausalMask,
    tokens: &Tensor,
    place: Place<'_>,
    most: usize,
) -> Result<Option<Tensor>> {
    let count = tokens.dim(1)?;
    if count == 0 {
        bail!("there are no tokens to process; pass at least one")
    }
    match place {
        Place::At(position) | Place::Slots { position, .. } => {
            context_after(tokens, position, most)?;
            masks.of(count, position, tokens.device())
        }
        Place::Each(_) if count > 1 => bail!("a step takes one token of each slot, these are {count}"),
        Place::Each(step) => Ok(step.places.mask.clone()),
    }
}

/// Bytes of one token's keys and values in all layers, those of their scales included.
pub(crate) fn kv_bytes_per_token(config: &ModelConfig, kept_as: KvCacheDType, dtype: DType) -> u64 {
    let each = kept_as.bytes_of_a_position(config.num_kv_heads, config.head_dim, dtype.size_in_bytes());
    2 * config.num_layers as u64 * each as u64
}

/// What a token takes while a step reads it: its keys and values, and of those in 8 bits what they become in one layer, which
/// is there at most three times (keys that were widened, and values in the one operation and the next).
pub(crate) fn kv_bytes_in_a_step(config: &ModelConfig, kept_as: KvCacheDType, dtype: DType) -> u64 {
    let widened = match kept_as {
        KvCacheDType::Auto => 0,
        KvCacheDType::Q8 => 3 * config.num_kv_heads * config.head_dim * dtype.size_in_bytes(),
    };
    kv_bytes_per_token(config, kept_as, dtype) + widened as u64
}

/// The last of `count` positions, (batch, features): only its logits are needed, so the norm too runs on it alone.
pub(crate) fn last_position(xs: &Tensor, count: usize) -> Result<Tensor> {
    xs.narrow(1, count - 1, 1)?.squeeze(1)?.contiguous()
}

/// Cost of the operations outside layers at the end of a forward pass: the last positions of several sequences are
/// copied, logits are converted to f32.
pub(crate) fn ending(work: Input, features: usize, vocabulary: usize, width: usize) -> Cost {
    let batch = work.batch as f64;
    let copied = if work.batch > 1 && work.tokens > 1 { batch * features as f64 } else { 0.0 };
    pointwise(copied, 2, width) + cast(batch * vocabulary as f64, width, 4)
}
