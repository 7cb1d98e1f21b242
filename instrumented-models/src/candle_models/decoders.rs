//! candle's `qwen2`, `qwen3` and `mistral`.

use super::{lacks, reading};
use crate::causal_lm::{CausalLm, context_after};
use crate::config::{ConfigError, FeedForward, ModelConfig};
use crate::weights::{WeightError, WeightSource};
use candle_core::{DType, Device, Result, Tensor};
use candle_nn::Activation;
use candle_transformers::models::{mistral, qwen2, qwen3};
use candlescope_core::modules;

/// Architectures of `config.json` that [`CandleDecoder`] runs.
pub const ARCHITECTURES: &[&str] = &["mistral", "qwen2", "qwen3"];

/// `candle_transformers::models::{qwen2, qwen3, mistral}`: decoders that keep keys and values themselves.
#[derive(Debug, Clone)]
pub struct CandleDecoder {
    model: Model,
    max_context: usize,
    vocab_size: usize,
    device: Device,
}

#[derive(Debug, Clone)]
enum Model {
    Qwen2(qwen2::ModelForCausalLM),
    Qwen3(qwen3::ModelForCausalLM),
    Mistral(mistral::Model),
}

/// Fails if candle's model lacks something that `config` says. Returns the width of the feed-forward network.
fn check(config: &ModelConfig) -> std::result::Result<usize, ConfigError> {
    if config.rope.scaling.is_some() {
        return Err(lacks(format!("rope scaling in candle's {}", config.architecture)));
    }
    if config.rope.interleaved {
        return Err(lacks(format!("interleaved rotary embeddings in candle's {}", config.architecture)));
    }
    if config.architecture == "qwen2" && config.head_dim * config.num_heads != config.hidden_size {
        return Err(lacks("a head size other than hidden size / heads in candle's qwen2".into()));
    }
    if config.architecture == "qwen2" && !config.qkv_bias {
        return Err(lacks("queries, keys and values without biases in candle's qwen2".into()));
    }
    if config.architecture == "mistral" && (config.qkv_bias || config.tie_embeddings) {
        return Err(lacks("biases or a tied head in candle's mistral".into()));
    }
    match config.feed_forward {
        FeedForward::SwiGlu { intermediate } => Ok(intermediate),
        other => Err(lacks(format!("feed-forward network {other:?} in candle's {}", config.architecture))),
    }
}

impl CandleDecoder {
    /// Takes the weights of `config`, one of [`ARCHITECTURES`], from `source`.
    pub fn load(
        config: &ModelConfig,
        source: &mut dyn WeightSource,
        dtype: DType,
        device: &Device,
    ) -> std::result::Result<Self, WeightError> {
        let here = |cause| WeightError::Config { path: config.name.clone().into(), cause };
        let intermediate = check(config).map_err(here)?;
        let heads = (config.num_heads as u64, config.num_kv_heads as u64);
        // Within the window, which limits the context, windowed and full attention are the same.
        modules::architecture(Some(&config.architecture), Some(heads), None);
        let (hidden_size, max_context) = (config.hidden_size, config.max_context);
        let (model, _) = match config.architecture.as_str() {
            "qwen2" => {
                let config = qwen2::Config {
                    vocab_size: config.vocab_size,
                    hidden_size,
                    intermediate_size: intermediate,
                    num_hidden_layers: config.num_layers,
                    num_attention_heads: config.num_heads,
                    num_key_value_heads: config.num_kv_heads,
                    max_position_embeddings: max_context,
                    sliding_window: max_context,
                    max_window_layers: config.num_layers,
                    tie_word_embeddings: config.tie_embeddings,
                    rope_theta: f64::from(config.rope.theta),
                    rms_norm_eps: config.rms_norm_eps,
                    use_sliding_window: false,
                    hidden_act: Activation::Silu,
                };
                reading::build("candle's qwen2", source, dtype, device, |vb| {
                    qwen2::ModelForCausalLM::new(&config, vb).map(Model::Qwen2)
                })?
            }
            "qwen3" => {
                let config = qwen3::Config {
                    vocab_size: config.vocab_size,
                    hidden_size,
                    intermediate_size: intermediate,
                    num_hidden_layers: config.num_layers,
                    num_attention_heads: config.num_heads,
                    head_dim: config.head_dim,
                    attention_bias: config.qkv_bias,
                    num_key_value_heads: config.num_kv_heads,
                    max_position_embeddings: max_context,
                    sliding_window: None,
                    max_window_layers: config.num_layers,
                    tie_word_embeddings: config.tie_embeddings,
                    rope_theta: f64::from(config.rope.theta),
                    rms_norm_eps: config.rms_norm_eps,
                    use_sliding_window: false,
                    hidden_act: Activation::Silu,
                };
                reading::build("candle's qwen3", source, dtype, device, |vb| {
                    qwen3::ModelForCausalLM::new(&config, vb).map(Model::Qwen3)
                })?
            }
            "mistral" => {
                let config = mistral::Config {
                    vocab_size: config.vocab_size,
                    hidden_size,
                    intermediate_size: intermediate,
                    num_hidden_layers: config.num_layers,
                    num_attention_heads: config.num_heads,
                    head_dim: Some(config.head_dim),
                    num_key_value_heads: config.num_kv_heads,
                    hidden_act: Activation::Silu,
                    max_position_embeddings: max_context,
                    rms_norm_eps: config.rms_norm_eps,
                    rope_theta: f64::from(config.rope.theta),
                    sliding_window: None,
                    use_flash_attn: false,
                };
                reading::build("candle's mistral", source, dtype, device, |vb| {
                    mistral::Model::new(&config, vb).map(Model::Mistral)
                })?
            }
            other => {
                let supported = ARCHITECTURES.join(", ");
                return Err(here(ConfigError::Architecture { found: other.into(), supported }));
            }
        };
        Ok(Self { model, max_context, vocab_size: config.vocab_size, device: device.clone() })
    }
}

impl CausalLm for CandleDecoder {
    fn forward(&mut self, tokens: &Tensor, position: usize) -> Result<Tensor> {
        context_after(tokens, position, self.max_context)?;
        if position == 0 {
            self.reset();
        }
        let logits = match &mut self.model {
            Model::Qwen2(model) => model.forward(tokens, position)?,
            Model::Qwen3(model) => model.forward(tokens, position)?,
            Model::Mistral(model) => model.forward(tokens, position)?,
        };
        logits.squeeze(1)?.to_dtype(DType::F32)
    }

    fn reset(&mut self) {
        match &mut self.model {
            Model::Qwen2(model) => model.clear_kv_cache(),
            Model::Qwen3(model) => model.clear_kv_cache(),
            Model::Mistral(model) => model.clear_kv_cache(),
        }
    }

    fn max_context(&self) -> usize {
        self.max_context
    }

    fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    fn device(&self) -> &Device {
        &self.device
    }
}
