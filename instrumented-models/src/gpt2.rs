//! GPT-2 made of the wrapped layers.

use crate::causal_lm::CausalLm;
use crate::config::{ConfigError, GPT2, ModelConfig};
use crate::cost::{Cost, Widths, Work, cast, pointwise};
use crate::layers::{
    Activation, Attention, CausalMask, Embedding, KvCache, LayerNorm, Mlp, Projection, product_dtype_on, record,
};
use crate::weights::{WeightError, WeightSource, embedding, layer_norm, projection, transposed_projection};
use candle_core::{DType, Device, Result, Tensor, bail};
use candle_nn::Module;
use tracing::Span;

/// A GPT-2 with instrumented layers: layer norms before attention and feed-forward network, learned positions, the tanh
/// form of GELU, and a head that is the embedding table unless the configuration says otherwise.
///
/// Intervals under the step: `wte`, `wpe`, `block[i]` with `ln_1`, `attn`, `ln_2` and `mlp`, then `ln_f` and `lm_head`.
/// A clone shares the weights and has an empty cache of its own.
#[derive(Debug, Clone)]
pub struct Gpt2 {
    config: ModelConfig,
    wte: Embedding,
    wpe: Embedding,
    blocks: Vec<Block>,
    ln_f: LayerNorm,
    lm_head: Projection,
    mask: CausalMask,
    dtype: DType,
    device: Device,
}

#[derive(Debug, Clone)]
struct Block {
    ln_1: LayerNorm,
    attn: Attention,
    ln_2: LayerNorm,
    mlp: Mlp,
    span: Span,
}

impl Block {
    fn load(
        source: &mut dyn WeightSource,
        config: &ModelConfig,
        layer: usize,
    ) -> std::result::Result<Self, WeightError> {
        let path = format!("transformer.h.{layer}");
        let (attn, mlp) = (format!("{path}.attn"), format!("{path}.mlp"));
        let (d, i, eps) = (config.hidden_size, config.intermediate(), config.rms_norm_eps);
        let ln_1 = layer_norm(source, &format!("{path}.ln_1"), d, eps)?;
        let qkv = transposed_projection(source, &format!("{attn}.c_attn"), (3 * d, d))?;
        let output = transposed_projection(source, &format!("{attn}.c_proj"), (d, d))?;
        let cache = KvCache::new(&format!("{attn}.kv_cache"), config.max_context);
        let ln_2 = layer_norm(source, &format!("{path}.ln_2"), d, eps)?;
        let up = transposed_projection(source, &format!("{mlp}.c_fc"), (i, d))?;
        let down = transposed_projection(source, &format!("{mlp}.c_proj"), (d, i))?;
        Ok(Self {
            ln_1,
            attn: Attention::merged(&attn, config.attention(), qkv, output, Some(cache)),
            ln_2,
            mlp: Mlp::new(&mlp, Activation::GeluTanh, up, down),
            // Always named `block`: its number is the interval's ordinal.
            span: tracing::trace_span!(target: "candlescope_models", parent: None, "block", weight = path.as_str()),
        })
    }

    fn forward(&mut self, xs: &Tensor, position: usize, mask: Option<&Tensor>) -> Result<Tensor> {
        let _entered = self.span.enter();
        let attended = self.attn.forward(&self.ln_1.forward(xs)?, position, mask)?;
        let xs = (attended + xs)?;
        let fed = self.mlp.forward(&self.ln_2.forward(&xs)?)?;
        record(|| residual(xs.elem_count(), xs.dtype().size_in_bytes()).annotation());
        fed + xs
    }
}

/// Cost of a block's two sums on the residual stream, each of two tensors to a third.
const fn residual(elements: usize, width: usize) -> Cost {
    pointwise(elements, 2 * 3, width)
}

impl Gpt2 {
    /// Takes the weights of `config` from `source`, by the names that Hugging Face's `GPT2LMHeadModel` has
    /// (`transformer.h.0.attn.c_attn.weight`). `dtype` is the element type of weights and activations.
    pub fn load(
        config: &ModelConfig,
        source: &mut dyn WeightSource,
        dtype: DType,
        device: &Device,
    ) -> std::result::Result<Self, WeightError> {
        let here = |cause| WeightError::Config { path: config.name.clone().into(), cause };
        config.check().map_err(here)?;
        if !config.is_gpt2() {
            let found = config.architecture.clone();
            return Err(here(ConfigError::Architecture { found, supported: GPT2.into() }));
        }
        let table = (config.vocab_size, config.hidden_size);
        let tied = config.tie_embeddings.then_some("lm_head");
        let (wte, head) = embedding(source, "transformer.wte", table, tied)?;
        let (wpe, _) = embedding(source, "transformer.wpe", (config.max_context, config.hidden_size), None)?;
        let blocks: std::result::Result<Vec<_>, _> =
            (0..config.num_layers).map(|layer| Block::load(source, config, layer)).collect();
        let blocks = blocks?;
        let ln_f = layer_norm(source, "transformer.ln_f", config.hidden_size, config.rms_norm_eps)?;
        let lm_head = match head {
            Some(head) => head,
            None => projection(source, "lm_head", table, false)?,
        };
        let (config, device) = (config.clone(), device.clone());
        Ok(Self { config, wte, wpe, blocks, ln_f, lm_head, mask: CausalMask::default(), dtype, device })
    }

    /// Dimensions.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Analytic cost of one forward pass: the sum of what the layers annotate.
    pub fn cost(&self, work: Work) -> Cost {
        let rows = work.rows();
        let (width, features) = (self.dtype.size_in_bytes(), self.config.hidden_size);
        let widths = Widths::of(width).products(product_dtype_on(self.dtype, &self.device).size_in_bytes());
        let blocks = self.blocks.iter().map(|block| {
            block.ln_1.cost(rows * features)
                + block.attn.cost(work, widths)
                + block.ln_2.cost(rows * features)
                + block.mlp.cost(rows, width)
                + residual(rows * features, width)
        });
        self.wte.cost(rows)
            + self.wpe.cost(work.tokens)
            + blocks.sum()
            + self.ln_f.cost(work.batch * features)
            + self.lm_head.cost(work.batch)
            + self.ends(work)
    }

    /// Cost of the operations outside layers: positions are added to the words, of which each sequence has its own; the
    /// last positions of several sequences are copied; logits are converted to f32.
    fn ends(&self, work: Work) -> Cost {
        let (width, features) = (self.dtype.size_in_bytes(), self.config.hidden_size);
        let positions = pointwise((2 * work.rows() + work.tokens) * features, 1, width);
        let copied = if work.batch > 1 && work.tokens > 1 { work.batch * features } else { 0 };
        positions + pointwise(copied, 2, width) + cast(work.batch * self.config.vocab_size, width, 4)
    }

    /// Bytes allocated for keys and values.
    pub fn kv_bytes(&self) -> u64 {
        self.blocks.iter().filter_map(|block| block.attn.cache()).map(KvCache::allocated_bytes).sum()
    }
}

impl CausalLm for Gpt2 {
    fn forward(&mut self, tokens: &Tensor, position: usize) -> Result<Tensor> {
        let (batch, count) = tokens.dims2()?;
        let context = position.saturating_add(count);
        if count == 0 {
            bail!("there are no tokens to process; pass at least one")
        }
        if context > self.config.max_context {
            bail!("{context} tokens exceed the context of {} tokens", self.config.max_context)
        }
        let mask = self.mask.of(count, position, &self.device)?;
        let positions = Tensor::arange(position as u32, context as u32, &self.device)?;
        let mut xs = self.wte.forward(tokens)?.broadcast_add(&self.wpe.forward(&positions)?)?;
        for block in &mut self.blocks {
            xs = block.forward(&xs, position, mask.as_ref())?;
        }
        // Only the last position's logits are needed, so the norm too runs on that position only.
        let last = xs.narrow(1, count - 1, 1)?.squeeze(1)?.contiguous()?;
        record(|| self.ends(Work::new(batch, count, position)).annotation());
        let last = self.ln_f.forward(&last)?;
        self.lm_head.forward(&last)?.to_dtype(DType::F32)
    }

    fn reset(&mut self) {
        self.blocks.iter_mut().filter_map(|block| block.attn.cache_mut()).for_each(KvCache::reset);
    }

    fn reserve(&mut self, tokens: usize) {
        self.blocks.iter_mut().filter_map(|block| block.attn.cache_mut()).for_each(|cache| cache.reserve(tokens));
    }

    fn max_context(&self) -> usize {
        self.config.max_context
    }

    fn vocab_size(&self) -> usize {
        self.config.vocab_size
    }

    fn device(&self) -> &Device {
        &self.device
    }
}
