//! GPT-2 made of the wrapped layers.

use crate::blocks::{Block, Blocks, ending, kv_bytes_in_a_step, kv_bytes_per_token, last_position, mask_at};
use crate::causal_lm::{CausalLm, Inspect, See, context_after};
use crate::config::{ConfigError, GPT2, ModelConfig};
use crate::layers::{
    Activation, Attention, CausalMask, Embedding, KvCache, KvCacheDType, LayerNorm, Mlp, Place, Projection, SlotPlaces,
    SlotStep, product_dtype_on, record,
};
use crate::slot_model::{Capturable, SlotModel};
use crate::weights::{WeightError, WeightSource, embedding, layer_norm, projection, transposed_projection};
use candle_core::{DType, Device, Result, Tensor};
use candle_nn::Module;
use candlescope_core::Annotation;
use candlescope_work::input::{Input, Widths};
use candlescope_work::operation::{Cost, pointwise};
use std::ops::Range;

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
    blocks: Blocks<LayerNorm>,
    ln_f: LayerNorm,
    lm_head: Projection,
    mask: CausalMask,
    dtype: DType,
    device: Device,
}

fn block(
    source: &mut dyn WeightSource,
    config: &ModelConfig,
    layer: usize,
) -> std::result::Result<Block<LayerNorm>, WeightError> {
    let path = format!("transformer.h.{layer}");
    let (attn, mlp) = (format!("{path}.attn"), format!("{path}.mlp"));
    let (d, i, eps) = (config.hidden_size, config.intermediate(), config.rms_norm_eps);
    let ln_1 = layer_norm(source, &format!("{path}.ln_1"), d, eps)?;
    let qkv = transposed_projection(source, &format!("{attn}.c_attn"), (3 * d, d))?;
    let output = transposed_projection(source, &format!("{attn}.c_proj"), (d, d))?;
    let cache = KvCache::new(&format!("{attn}.kv_cache"), config.max_context);
    let attention = Attention::merged(&attn, config.attention(), qkv, output, Some(cache));
    let ln_2 = layer_norm(source, &format!("{path}.ln_2"), d, eps)?;
    let up = transposed_projection(source, &format!("{mlp}.c_fc"), (i, d))?;
    let down = transposed_projection(source, &format!("{mlp}.c_proj"), (d, i))?;
    let mlp = Mlp::new(&mlp, Activation::GeluTanh, up, down);
    Ok(Block::new(&path, ln_1, attention, ln_2, mlp))
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
        let blocks = Blocks::load(config.num_layers, |layer| block(source, config, layer))?;
        let ln_f = layer_norm(source, "transformer.ln_f", config.hidden_size, config.rms_norm_eps)?;
        let lm_head = head.map_or_else(|| projection(source, "lm_head", table, false), Ok)?;
        let (config, device) = (config.clone(), device.clone());
        Ok(Self { config, wte, wpe, blocks, ln_f, lm_head, mask: CausalMask::default(), dtype, device })
    }

    /// The dimensions that it was loaded with; slots may hold less context than they say.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The same, which holds keys and values in this way.
    #[doc(hidden)]
    #[must_use]
    pub fn kv_cache_dtype(mut self, dtype: KvCacheDType) -> Self {
        self.blocks.keep_as(dtype, &self.device);
        self
    }

    /// Analytic cost of one forward pass: the sum of what the layers annotate.
    #[doc(hidden)]
    pub fn cost(&self, work: Input) -> Cost {
        let (width, features) = (self.dtype.size_in_bytes(), self.config.hidden_size);
        let widths = Widths::of(width).products(product_dtype_on(self.dtype, &self.device).size_in_bytes());
        self.wte.cost(work.rows())
            + self.wpe.cost(work.tokens)
            + self.blocks.cost(work, features, widths)
            + self.ln_f.cost(work.batch as f64 * features as f64)
            + self.lm_head.cost(work.batch)
            + self.ends(work)
    }

    /// Cost of the operations outside layers: positions are added to the words, of which each sequence has its own, and
    /// the ending.
    fn ends(&self, work: Input) -> Cost {
        let (width, features) = (self.dtype.size_in_bytes(), self.config.hidden_size);
        let positions = pointwise((2.0 * work.rows() + work.tokens as f64) * features as f64, 1, width);
        positions + ending(work, features, self.config.vocab_size, width)
    }

    /// Bytes allocated for keys and values.
    pub fn kv_bytes(&self) -> u64 {
        self.blocks.kv_bytes()
    }

    /// Logits of all of `tokens`, (sequences · new tokens, vocabulary).
    fn each(&mut self, tokens: &Tensor, position: usize) -> Result<Tensor> {
        let (batch, count) = tokens.dims2()?;
        let place = Place::At(position);
        let mask = mask_at(&mut self.mask, tokens, place, self.config.max_context)?;
        let xs = self.embed(tokens, place)?;
        let xs = self.blocks.forward(xs, place, mask.as_ref())?.flatten_to(1)?;
        record(|| {
            let (features, vocabulary, width) =
                (self.config.hidden_size, self.config.vocab_size, self.dtype.size_in_bytes());
            // Rows of logits beyond those of the last positions.
            let more = Input::new(batch * count - batch, 1, position);
            Annotation::from(self.ends(place.work(batch, count)) + ending(more, features, vocabulary, width))
        });
        self.lm_head.forward(&self.ln_f.forward(&xs)?)?.to_dtype(DType::F32)
    }

    /// Words and their positions, (batch, tokens, features).
    fn embed(&self, tokens: &Tensor, place: Place<'_>) -> Result<Tensor> {
        let words = self.wte.forward(tokens)?;
        let positions = match place {
            Place::At(position) | Place::Slots { position, .. } => {
                let positions = Tensor::arange(position as u32, (position + tokens.dim(1)?) as u32, &self.device)?;
                self.wpe.forward(&positions)?
            }
            Place::Each(step) => self.wpe.forward(&step.places.positions)?.unsqueeze(1)?,
        };
        words.broadcast_add(&positions)
    }
}

impl Inspect for Gpt2 {
    fn inspect(&mut self, tokens: &Tensor, see: &mut See<'_>) -> Result<Tensor> {
        let count = context_after(tokens, 0, self.config.max_context)?;
        let mask = self.mask.of(count, 0, &self.device)?;
        let xs = self.blocks.inspect(self.embed(tokens, Place::At(0))?, mask.as_ref(), see)?;
        self.lm_head.forward(&self.ln_f.forward(&xs)?)?.to_dtype(DType::F32)
    }

    fn kv_bytes(&self) -> u64 {
        self.blocks.kv_bytes()
    }
}

impl CausalLm for Gpt2 {
    fn forward(&mut self, tokens: &Tensor, position: usize) -> Result<Tensor> {
        self.forward_at(tokens, Place::At(position))
    }

    fn forward_each(&mut self, tokens: &Tensor, position: usize) -> Option<Result<Tensor>> {
        Some(self.each(tokens, position))
    }

    fn checks_tokens(&self) -> bool {
        true
    }

    fn reset(&mut self) {
        self.blocks.reset();
    }

    fn reserve(&mut self, tokens: usize) {
        self.blocks.reserve(tokens);
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

impl SlotModel for Gpt2 {
    fn hold(&mut self, slots: usize, context: usize) -> Result<()> {
        let (config, at) = (self.config.clone(), (self.dtype, &self.device));
        let path = |layer| format!("transformer.h.{layer}.attn.kv_cache");
        self.blocks.hold((slots, context), &config, at, path)
    }

    fn forward_at(&mut self, tokens: &Tensor, place: Place<'_>) -> Result<Tensor> {
        let (batch, count) = tokens.dims2()?;
        let mask = mask_at(&mut self.mask, tokens, place, self.config.max_context)?;
        let xs = self.embed(tokens, place)?;
        let xs = self.blocks.forward(xs, place, mask.as_ref())?;
        let last = last_position(&xs, count)?;
        record(|| {
            let (work, width) = (place.work(batch, count), self.dtype.size_in_bytes());
            // Slots are at positions of their own.
            let more = if matches!(place, Place::Each(_)) { batch - 1 } else { 0 };
            Annotation::from(self.ends(work) + pointwise((more * self.config.hidden_size) as f64, 1, width))
        });
        let last = self.ln_f.forward(&last)?;
        self.lm_head.forward(&last)?.to_dtype(DType::F32)
    }

    fn slot_step(&self, places: SlotPlaces) -> Result<SlotStep> {
        let heads = (self.config.num_kv_heads, self.config.head_dim);
        SlotStep::new(places, None, heads, self.blocks.kept_as())
    }

    fn erase(&mut self, slots: Range<usize>, from: usize, to: usize) -> Result<()> {
        self.blocks.erase(slots, from, to)
    }

    fn exchange(&mut self, a: (usize, usize), b: (usize, usize)) -> Result<()> {
        self.blocks.exchange(a, b)
    }

    fn kv_bytes_per_token(&self) -> u64 {
        kv_bytes_per_token(&self.config, self.blocks.kept_as(), self.dtype)
    }

    fn kv_bytes_in_a_step(&self) -> u64 {
        kv_bytes_in_a_step(&self.config, self.blocks.kept_as(), self.dtype)
    }

    fn step_cost(&self, rows: u64, context: u64) -> Cost {
        self.cost(Input::token(rows, context))
    }

    fn capturable(&self) -> Capturable {
        Capturable::unless_quantized(self.blocks.is_quantized() || self.lm_head.is_quantized())
    }
}
