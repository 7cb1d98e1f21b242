//! candle's `t5`.

use super::hf_fields::{candles, count, optional_count};
use super::reading::{self, Size};
use crate::config::{ConfigError, token_ids};
use crate::encoder_decoder::{EncoderDecoder, Source};
use crate::info::Dimensions;
use crate::weights::{WeightError, WeightSource};
use candle_core::{DType, Device, Result, Tensor, bail};
use candle_transformers::models::t5;
use candlescope_core::modules;
use serde_json::Value;

/// Longest source and longest text that a T5 was trained with, where `n_positions` does not say. Its positions are
/// relative, so that this is no limit of the formula.
const POSITIONS: usize = 512;

/// `candle_transformers::models::t5`, of a `config.json` of `model_type` `t5`.
///
/// candle keeps the keys and values of the text, and makes those of the source anew for each token.
#[derive(Debug, Clone)]
pub struct CandleT5 {
    model: t5::T5ForConditionalGeneration,
    encoded: Option<Tensor>,
    dimensions: Dimensions,
    device: Device,
}

/// Reads what is needed of a `config.json`, and refuses what candle could not run.
fn read(json: &Value) -> std::result::Result<(t5::Config, Dimensions), ConfigError> {
    for name in ["vocab_size", "d_model", "d_kv", "d_ff", "num_heads"] {
        count(json, name)?;
    }
    let buckets = count(json, "relative_attention_num_buckets")?;
    if buckets < 4 {
        return Err(ConfigError::Inconsistent(format!(
            "relative_attention_num_buckets is {buckets}, it must be 4 or more"
        )));
    }
    let layers = count(json, "num_layers")?;
    let decoder_layers = optional_count(json, "num_decoder_layers")?.unwrap_or(layers);
    let positions = optional_count(json, "n_positions")?.unwrap_or(POSITIONS);
    let mut config: t5::Config = candles(json)?;
    if !config.is_encoder_decoder {
        return Err(ConfigError::Unsupported {
            what: "a T5 without a decoder".into(),
            remedy: "use one whose `is_encoder_decoder` is true",
        });
    }
    // Whether to keep keys and values is a choice of the program; files of trained models have either.
    config.use_cache = true;
    let dimensions = Dimensions {
        architecture: "t5".into(),
        hidden_size: config.d_model,
        intermediate_size: config.d_ff,
        layers: decoder_layers,
        encoder_layers: Some(layers),
        heads: config.num_heads,
        kv_heads: config.num_heads,
        head_dim: config.d_kv,
        vocab_size: config.vocab_size,
        source_positions: positions,
        positions,
        start: vec![config.decoder_start_token_id.unwrap_or(config.pad_token_id) as u32],
        eos: token_ids(json.get("eos_token_id")),
        tied: config.tie_word_embeddings,
    };
    Ok((config, dimensions))
}

impl CandleT5 {
    /// Takes the weights of a `config.json` from `source`; `name` stands for it in errors.
    pub fn load(
        name: &str,
        json: &Value,
        source: &mut dyn WeightSource,
        dtype: DType,
        device: &Device,
    ) -> std::result::Result<(Self, Size), WeightError> {
        let (config, dimensions) = read(json).map_err(|cause| WeightError::Config { path: name.into(), cause })?;
        // It was read as JSON, with a `model_type`.
        let _ = modules::model(&json.to_string());
        let (model, size) = reading::build("candle's t5", source, dtype, device, |vb| {
            t5::T5ForConditionalGeneration::load(vb, &config)
        })?;
        Ok((Self { model, encoded: None, dimensions, device: device.clone() }, size))
    }

    /// Whether a `config.json` ties the head to the embedding: then `lm_head.weight` is not needed.
    pub(crate) fn is_tied(json: &Value) -> bool {
        json.get("tie_word_embeddings").and_then(Value::as_bool).unwrap_or(true)
    }
}

impl EncoderDecoder for CandleT5 {
    fn encode(&mut self, source: &Source) -> Result<()> {
        let Source::Text(tokens) = source else { bail!("T5 reads text, not sound: pass tokens") };
        self.reset();
        self.encoded = Some(self.model.encode(tokens)?);
        Ok(())
    }

    fn decode(&mut self, tokens: &Tensor, position: usize) -> Result<Tensor> {
        if position == 0 {
            self.model.clear_kv_cache();
        }
        let Some(encoded) = &self.encoded else { bail!("nothing has been encoded: call encode first") };
        self.model.decode(tokens, encoded)?.to_dtype(DType::F32)
    }

    fn reset(&mut self) {
        self.encoded = None;
        self.model.clear_kv_cache();
    }

    fn keeps_keys(&self) -> bool {
        true
    }

    fn dimensions(&self) -> &Dimensions {
        &self.dimensions
    }

    fn device(&self) -> &Device {
        &self.device
    }
}
