//! candle-transformers' own models, unmodified. Decoders are [`CausalLm`]: the same loop runs them and ours.

mod bert;
mod decoders;
mod hf_fields;
mod named;
mod paddleocr_vl;
mod reading;
mod t5;
mod whisper;

pub use bert::CandleBert;
pub use decoders::{ARCHITECTURES as DECODER_ARCHITECTURES, CandleDecoder};
pub use named::hf_config;
pub use paddleocr_vl::{CandlePaddleOcrVl, Special};
pub use reading::Size;
pub use t5::CandleT5;
pub use whisper::CandleWhisper;

use crate::causal_lm::{CausalLm, context_after};
use crate::config::{ConfigError, FeedForward, ModelConfig};
use crate::weights::gguf::GgufFile;
use crate::weights::{WeightError, WeightSource};
use candle_core::{DType, Device, Result, Tensor, bail};
use candle_nn::VarBuilder;
use candle_transformers::models::{llama, quantized_llama};
use candlescope_core::files::open_regular;
use candlescope_core::modules;
use std::collections::HashMap;

/// `candle_transformers::models::llama` with dense weights; configurations that it cannot compute are refused.
#[derive(Debug, Clone)]
pub struct CandleLlama {
    model: llama::Llama,
    /// Its `max_position_embeddings` is the length of the rotary tables, not the model's context.
    config: llama::Config,
    cache: llama::Cache,
    max_context: usize,
    reserved: usize,
    dtype: DType,
    device: Device,
}

/// Most positions of candle's rotary tables, unless more are reserved. candle makes tables for the whole context that
/// the configuration declares, and makes them again for each prompt.
const TABLE: usize = 32_768;

/// That candle's model lacks something which ours has.
fn lacks(what: String) -> ConfigError {
    ConfigError::Unsupported { what, remedy: "run the instrumented model instead, if it has that" }
}

/// The configuration in candle's form. Fails if candle's Llama lacks something the model needs.
fn candle_config(config: &ModelConfig) -> std::result::Result<llama::Config, ConfigError> {
    let lacks = |what: &str| lacks(what.into());
    if config.qkv_bias {
        return Err(lacks("a bias on queries, keys and values in candle's llama"));
    }
    if config.head_dim * config.num_heads != config.hidden_size {
        return Err(lacks("a head size other than hidden size / heads in candle's llama"));
    }
    if config.rope.interleaved {
        return Err(lacks("interleaved rotary embeddings in candle's llama"));
    }
    let FeedForward::SwiGlu { intermediate } = config.feed_forward else {
        return Err(lacks("a feed-forward network other than SwiGLU in candle's llama"));
    };
    Ok(llama::Config {
        hidden_size: config.hidden_size,
        intermediate_size: intermediate,
        vocab_size: config.vocab_size,
        num_hidden_layers: config.num_layers,
        num_attention_heads: config.num_heads,
        num_key_value_heads: config.num_kv_heads,
        use_flash_attn: false,
        rms_norm_eps: config.rms_norm_eps,
        rope_theta: config.rope.theta,
        bos_token_id: config.bos,
        eos_token_id: (!config.eos.is_empty()).then(|| llama::LlamaEosToks::Multiple(config.eos.clone())),
        rope_scaling: config.rope.scaling.map(|s| llama::Llama3RopeConfig {
            factor: s.factor,
            low_freq_factor: s.low_freq_factor,
            high_freq_factor: s.high_freq_factor,
            original_max_position_embeddings: s.original_max_position_embeddings,
            rope_type: llama::Llama3RopeType::Llama3,
        }),
        max_position_embeddings: config.max_context,
        tie_word_embeddings: config.tie_embeddings,
    })
}

impl CandleLlama {
    /// Takes the weights of `config` from `source`.
    pub fn load(
        config: &ModelConfig,
        source: &mut dyn WeightSource,
        dtype: DType,
        device: &Device,
    ) -> std::result::Result<Self, WeightError> {
        let mut candle =
            candle_config(config).map_err(|cause| WeightError::Config { path: config.name.clone().into(), cause })?;
        let mut tensors = HashMap::new();
        for (name, shape) in config.weights() {
            let tensor = source.dense(&name, &shape)?;
            tensors.insert(name, tensor);
        }
        let failed = |cause| WeightError::Tensor { tensor: "candle's llama".into(), cause };
        modules::architecture(Some("llama"), Some((config.num_heads as u64, config.num_kv_heads as u64)), None);
        let vb = candlescope::observe(VarBuilder::from_tensors(tensors, dtype, device));
        let model = llama::Llama::load(vb, &candle).map_err(failed)?;
        let max_context = config.max_context;
        candle.max_position_embeddings = max_context.min(TABLE);
        let cache = llama::Cache::new(true, dtype, &candle, device).map_err(failed)?;
        Ok(Self { model, config: candle, cache, max_context, reserved: 0, dtype, device: device.clone() })
    }
}

impl CausalLm for CandleLlama {
    fn forward(&mut self, tokens: &Tensor, position: usize) -> Result<Tensor> {
        let needed = context_after(tokens, position, self.max_context)?;
        if position == 0 {
            self.config.max_position_embeddings = TABLE.max(self.reserved).max(needed).min(self.max_context);
        }
        if needed > self.config.max_position_embeddings {
            bail!(
                "candle's llama has rotary tables for {} tokens only; reserve({needed}) before the prompt",
                self.config.max_position_embeddings
            )
        }
        if position == 0 {
            // candle's cache cannot be reset in any other way.
            self.cache = llama::Cache::new(true, self.dtype, &self.config, &self.device)?;
        }
        self.model.forward(tokens, position, &mut self.cache)
    }

    fn reset(&mut self) {}

    /// Takes effect with the next prompt.
    fn reserve(&mut self, tokens: usize) {
        self.reserved = tokens;
    }

    fn max_context(&self) -> usize {
        self.max_context
    }

    fn vocab_size(&self) -> usize {
        self.config.vocab_size
    }

    fn device(&self) -> &Device {
        &self.device
    }
}

/// `candle_transformers::models::quantized_llama` of a GGUF file, which takes one prompt at a time.
#[derive(Debug, Clone)]
pub struct CandleQuantizedLlama {
    model: quantized_llama::ModelWeights,
    max_context: usize,
    vocab_size: usize,
    device: Device,
}

impl CandleQuantizedLlama {
    /// Reads a GGUF file of architecture `llama`.
    pub fn load(file: &GgufFile, device: &Device) -> std::result::Result<Self, WeightError> {
        let config = file.config()?;
        if config.architecture != "llama" || config.qkv_bias {
            return Err(WeightError::Config {
                path: file.path().to_path_buf(),
                cause: ConfigError::Unsupported {
                    what: format!("architecture `{}` in candle's quantized_llama", config.architecture),
                    remedy: "run the instrumented model instead",
                },
            });
        }
        let read = |cause| WeightError::Read { path: file.path().to_path_buf(), cause };
        let failed = |cause| WeightError::Tensor { tensor: "candle's quantized_llama".into(), cause };
        let reader = std::io::BufReader::new(open_regular(file.path()).map_err(read)?);
        let mut reader = candlescope::observe_gguf(reader).map_err(failed)?;
        let content = candle_core::quantized::gguf_file::Content::read(&mut reader).map_err(failed)?;
        let model = quantized_llama::ModelWeights::from_gguf(content, &mut reader, device).map_err(failed)?;
        Ok(Self {
            model,
            max_context: config.max_context.min(quantized_llama::MAX_SEQ_LEN),
            vocab_size: config.vocab_size,
            device: device.clone(),
        })
    }
}

impl CausalLm for CandleQuantizedLlama {
    fn forward(&mut self, tokens: &Tensor, position: usize) -> Result<Tensor> {
        let (batch, count) = tokens.dims2()?;
        if batch > 1 && count > 1 {
            // candle passes a strided slice to the head, which the quantised product refuses.
            bail!(
                "candle's quantized_llama cannot process a batch of prompts; use a batch of 1 or the instrumented model"
            )
        }
        self.model.forward(tokens, position)
    }

    fn takes_batches_of_prompts(&self) -> bool {
        false
    }

    fn reset(&mut self) {
        self.model.clear_kv_cache();
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
