//! candle's `bert`.

use super::hf_fields::{candles, count, shared_by_heads};
use super::reading::{self, Size};
use crate::config::ConfigError;
use crate::info::Dimensions;
use crate::weights::{WeightError, WeightSource};
use candle_core::{DType, Device, Result, Tensor};
use candle_transformers::models::bert;
use candlescope_core::modules;
use serde_json::Value;

/// What candle has of `hidden_act`.
const ACTIVATIONS: [&str; 3] = ["gelu", "geluapproximate", "relu"];

/// `candle_transformers::models::bert`, of a `config.json` of `model_type` `bert`: an encoder without a head.
pub struct CandleBert {
    model: bert::BertModel,
    dimensions: Dimensions,
}

impl std::fmt::Debug for CandleBert {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CandleBert").field("dimensions", &self.dimensions).finish_non_exhaustive()
    }
}

/// Reads what is needed of a `config.json`, and refuses what candle could not run.
fn read(json: &Value) -> std::result::Result<(bert::Config, Dimensions), ConfigError> {
    for name in ["vocab_size", "num_hidden_layers", "intermediate_size", "type_vocab_size"] {
        count(json, name)?;
    }
    shared_by_heads(json, "hidden_size", "num_attention_heads")?;
    let positions = count(json, "max_position_embeddings")?;
    if let Some(act) = json.get("hidden_act").and_then(Value::as_str).filter(|act| !ACTIVATIONS.contains(act)) {
        let what = format!("`hidden_act` `{act}` in candle's bert");
        return Err(ConfigError::Unsupported { what, remedy: "use a model with gelu or relu" });
    }
    let kind = json.get("position_embedding_type").and_then(Value::as_str);
    if let Some(kind) = kind.filter(|kind| *kind != "absolute") {
        let what = format!("`position_embedding_type` `{kind}` in candle's bert");
        return Err(ConfigError::Unsupported { what, remedy: "use a model with absolute positions" });
    }
    // Which prefix the weights' names have is found out from them, not guessed by candle.
    let config = bert::Config { model_type: None, ..candles(json)? };
    let dimensions = Dimensions {
        architecture: "bert".into(),
        hidden_size: config.hidden_size,
        intermediate_size: config.intermediate_size,
        layers: config.num_hidden_layers,
        encoder_layers: None,
        heads: config.num_attention_heads,
        kv_heads: config.num_attention_heads,
        head_dim: config.hidden_size / config.num_attention_heads,
        vocab_size: config.vocab_size,
        source_positions: positions,
        positions,
        start: Vec::new(),
        eos: Vec::new(),
        tied: true,
    };
    Ok((config, dimensions))
}

impl CandleBert {
    /// Takes the weights of a `config.json` from `source`, with or without the prefix `bert.`; `name` stands for it in
    /// errors.
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
        let words = "embeddings.word_embeddings.weight";
        let prefixed = !source.contains(words) && source.contains(&format!("bert.{words}"));
        let (model, size) = reading::build("candle's bert", source, dtype, device, |vb| {
            bert::BertModel::load(if prefixed { vb.pp("bert") } else { vb }, &config)
        })?;
        Ok((Self { model, dimensions }, size))
    }

    /// Hidden states of the last layer, (batch, tokens, features), for `tokens` (batch, tokens) of type u32. All tokens
    /// are of the first of BERT's two kinds, and none is padding.
    ///
    /// # Errors
    /// As candle's.
    pub fn forward(&self, tokens: &Tensor) -> Result<Tensor> {
        self.model.forward(tokens, &tokens.zeros_like()?, None)
    }

    /// Its dimensions by `config.json`; without tokens that begin or end a text, because it writes none.
    pub fn dimensions(&self) -> &Dimensions {
        &self.dimensions
    }

    /// The device that the model is on.
    pub fn device(&self) -> &Device {
        &self.model.device
    }
}
