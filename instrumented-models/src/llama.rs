//! A Llama-family decoder made of the wrapped layers.

use crate::blocks::{Block, Blocks, ending, kv_bytes_in_a_step, kv_bytes_per_token, last_position, mask_at};
use crate::causal_lm::{CausalLm, Inspect, See, context_after};
use crate::config::{ConfigError, FeedForward, ModelConfig};
use crate::layers::{
    Activation, Attention, AttentionProjections, CausalMask, Embedding, KvCache, KvCacheDType, Mlp, Place, Projection,
    RmsNorm, Rotary, RotaryTables, SlotPlaces, SlotStep, product_dtype_on, record,
};
use crate::slot_model::{Capturable, SlotModel};
use crate::weights::{WeightError, WeightSource, embedding, norm, projection};
use candle_core::{DType, Device, Result, Tensor};
use candle_nn::Module;
use candlescope_core::Annotation;
use candlescope_work::input::{Input, Widths};
use candlescope_work::operation::Cost;
use std::ops::Range;

/// A Llama or Qwen 2 decoder with instrumented layers.
///
/// Intervals under the step: `embed_tokens`, `block[i]` with `input_layernorm`, `self_attn`, `post_attention_layernorm`
/// and `mlp`, then `norm` and `lm_head`. A clone shares the weights and has an empty cache of its own.
#[derive(Debug, Clone)]
pub struct Llama {
    config: ModelConfig,
    tables: RotaryTables,
    embed_tokens: Embedding,
    blocks: Blocks<RmsNorm>,
    norm: RmsNorm,
    lm_head: Projection,
    mask: CausalMask,
    dtype: DType,
    device: Device,
}

fn block(
    source: &mut dyn WeightSource,
    config: &ModelConfig,
    layer: usize,
    tables: &RotaryTables,
) -> std::result::Result<Block<RmsNorm>, WeightError> {
    let path = format!("model.layers.{layer}");
    let (attn, mlp) = (format!("{path}.self_attn"), format!("{path}.mlp"));
    let (d, i, eps) = (config.hidden_size, config.intermediate(), config.rms_norm_eps);
    let (q, kv) = (config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim);
    let input_layernorm = norm(source, &format!("{path}.input_layernorm"), d, eps)?;
    let projections = AttentionProjections {
        q: projection(source, &format!("{attn}.q_proj"), (q, d), config.qkv_bias)?,
        k: projection(source, &format!("{attn}.k_proj"), (kv, d), config.qkv_bias)?,
        v: projection(source, &format!("{attn}.v_proj"), (kv, d), config.qkv_bias)?,
        o: projection(source, &format!("{attn}.o_proj"), (d, q), false)?,
    };
    let rotary = Rotary::new(&format!("{attn}.rotary"), tables.clone());
    let cache = KvCache::new(&format!("{attn}.kv_cache"), config.max_context);
    let attention = Attention::new(&attn, config.attention(), projections, rotary, Some(cache));
    let post_attention_layernorm = norm(source, &format!("{path}.post_attention_layernorm"), d, eps)?;
    let gate = projection(source, &format!("{mlp}.gate_proj"), (i, d), false)?;
    let up = projection(source, &format!("{mlp}.up_proj"), (i, d), false)?;
    let down = projection(source, &format!("{mlp}.down_proj"), (d, i), false)?;
    let mlp = Mlp::new(&mlp, Activation::SwiGlu { gate }, up, down);
    Ok(Block::new(&path, input_layernorm, attention, post_attention_layernorm, mlp))
}

impl Llama {
    /// Takes the weights of `config` from `source`. `dtype` is the element type of activations: that of dense
    /// weights, f32 for quantised ones.
    pub fn load(
        config: &ModelConfig,
        source: &mut dyn WeightSource,
        dtype: DType,
        device: &Device,
    ) -> std::result::Result<Self, WeightError> {
        let here = |cause| WeightError::Config { path: config.name.clone().into(), cause };
        config.check().map_err(here)?;
        if !matches!(config.feed_forward, FeedForward::SwiGlu { .. }) {
            let what = format!("feed-forward network {:?}", config.feed_forward);
            return Err(here(ConfigError::Unsupported { what, remedy: "pass a model with SwiGLU" }));
        }
        let factors = source.rope_factors()?;
        let no_tables = |cause| WeightError::Tensor { tensor: "rotary tables".into(), cause };
        let tables =
            RotaryTables::new(&config.rope, config.head_dim, config.max_context, factors.as_deref(), dtype, device)
                .map_err(&no_tables)?;
        let table = (config.vocab_size, config.hidden_size);
        let tied = config.tie_embeddings.then_some("lm_head");
        let (embed_tokens, head) = embedding(source, "model.embed_tokens", table, tied)?;
        let blocks = Blocks::load(config.num_layers, |layer| block(source, config, layer, &tables))?;
        let norm = norm(source, "model.norm", config.hidden_size, config.rms_norm_eps)?;
        let lm_head = head.map_or_else(|| projection(source, "lm_head", table, false), Ok)?;
        // Only now, when weights whose dimensions do not match the configuration have been refused.
        tables.reserve(1).map_err(no_tables)?;
        let (config, device) = (config.clone(), device.clone());
        Ok(Self { config, tables, embed_tokens, blocks, norm, lm_head, mask: CausalMask::default(), dtype, device })
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
        self.embed_tokens.cost(work.rows())
            + self.blocks.cost(work, features, widths)
            + self.norm.cost(work.batch as f64 * features as f64)
            + self.lm_head.cost(work.batch)
            + self.ends(work)
    }

    /// Cost of the operations outside layers.
    fn ends(&self, work: Input) -> Cost {
        ending(work, self.config.hidden_size, self.config.vocab_size, self.dtype.size_in_bytes())
    }

    /// Logits of all of `tokens`, (sequences · new tokens, vocabulary).
    fn each(&mut self, tokens: &Tensor, position: usize) -> Result<Tensor> {
        let (place, rows) = (Place::At(position), tokens.elem_count());
        let mask = mask_at(&mut self.mask, tokens, place, self.config.max_context)?;
        let xs = self.embed_tokens.forward(tokens)?;
        let xs = self.blocks.forward(xs, place, mask.as_ref())?.flatten_to(1)?;
        record(|| Annotation::from(self.ends(Input::new(rows, 1, position))));
        self.lm_head.forward(&self.norm.forward(&xs)?)?.to_dtype(DType::F32)
    }

    /// Bytes allocated for keys and values.
    pub fn kv_bytes(&self) -> u64 {
        self.blocks.kv_bytes()
    }
}

impl Inspect for Llama {
    fn inspect(&mut self, tokens: &Tensor, see: &mut See<'_>) -> Result<Tensor> {
        let count = context_after(tokens, 0, self.config.max_context)?;
        let mask = self.mask.of(count, 0, &self.device)?;
        let xs = self.blocks.inspect(self.embed_tokens.forward(tokens)?, mask.as_ref(), see)?;
        self.lm_head.forward(&self.norm.forward(&xs)?)?.to_dtype(DType::F32)
    }

    fn kv_bytes(&self) -> u64 {
        self.blocks.kv_bytes()
    }
}

impl CausalLm for Llama {
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
        // If this fails, it fails again in the step that needs it, and is reported there.
        let _ = self.tables.reserve(tokens);
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

impl SlotModel for Llama {
    fn hold(&mut self, slots: usize, context: usize) -> Result<()> {
        let (config, at) = (self.config.clone(), (self.dtype, &self.device));
        let path = |layer| format!("model.layers.{layer}.self_attn.kv_cache");
        self.blocks.hold((slots, context), &config, at, path)?;
        // Its own, whole: those that clones share are replaced where they grow, and a graph would still read the old ones.
        self.tables = self.tables.apart();
        self.tables.reserve(context)
    }

    fn forward_at(&mut self, tokens: &Tensor, place: Place<'_>) -> Result<Tensor> {
        let (batch, count) = tokens.dims2()?;
        let mask = mask_at(&mut self.mask, tokens, place, self.config.max_context)?;
        let xs = self.embed_tokens.forward(tokens)?;
        let xs = self.blocks.forward(xs, place, mask.as_ref())?;
        let last = last_position(&xs, count)?;
        record(|| Annotation::from(self.ends(place.work(batch, count))));
        let last = self.norm.forward(&last)?;
        self.lm_head.forward(&last)?.to_dtype(DType::F32)
    }

    fn slot_step(&self, places: SlotPlaces) -> Result<SlotStep> {
        let rotation = self.tables.at(&places.positions, places.attending.context)?;
        let heads = (self.config.num_kv_heads, self.config.head_dim);
        SlotStep::new(places, Some(rotation), heads, self.blocks.kept_as())
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
