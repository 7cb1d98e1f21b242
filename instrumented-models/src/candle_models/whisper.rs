//! candle's `whisper`.

use super::hf_fields::{candles, count, shared_by_heads};
use super::reading::{self, Size};
use crate::config::{ConfigError, token_ids};
use crate::encoder_decoder::{EncoderDecoder, Source};
use crate::info::Dimensions;
use crate::layers::record;
use crate::weights::{WeightError, WeightSource};
use candle_core::{DType, Device, Result, Tensor, bail};
use candle_transformers::models::whisper;
use candlescope_core::Annotation;
use candlescope_core::modules;
use candlescope_work::operation::linear;
use serde_json::Value;
use tracing::Span;

/// `candle_transformers::models::whisper`, of a `config.json` of `model_type` `whisper`.
///
/// candle keeps the keys and values of the sound, and none of the text: each step passes all of the text.
#[derive(Debug, Clone)]
pub struct CandleWhisper {
    model: whisper::model::Whisper,
    encoded: Option<Tensor>,
    /// Whether the keys and values that the decoder keeps are another sound's.
    stale: bool,
    /// candle leaves to the program which positions go through the head: ours passes the last, and says so.
    head: Span,
    dimensions: Dimensions,
    device: Device,
}

/// Reads what is needed of a `config.json`, and refuses what candle could not run.
fn read(json: &Value) -> std::result::Result<(whisper::Config, Dimensions), ConfigError> {
    for name in ["num_mel_bins", "vocab_size", "encoder_layers", "decoder_layers"] {
        count(json, name)?;
    }
    shared_by_heads(json, "d_model", "encoder_attention_heads")?;
    shared_by_heads(json, "d_model", "decoder_attention_heads")?;
    let (source_positions, positions) = (count(json, "max_source_positions")?, count(json, "max_target_positions")?);
    if count(json, "d_model")? < 4 {
        return Err(ConfigError::Inconsistent("d_model is below 4, too few for sines of positions".into()));
    }
    let usual = 4 * count(json, "d_model")? as u64;
    for name in ["encoder_ffn_dim", "decoder_ffn_dim"] {
        if json.get(name).and_then(Value::as_u64).is_some_and(|width| width != usual) {
            let what = format!("`{name}` other than four times d_model in candle's whisper");
            return Err(ConfigError::Unsupported { what, remedy: "use another model" });
        }
    }
    let config: whisper::Config = candles(json)?;
    // The start, and what transformers forces after it: language, task, no time stamps.
    let mut start = token_ids(json.get("decoder_start_token_id"));
    let forced = json.get("forced_decoder_ids").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    start.extend(forced.iter().filter_map(|pair| u32::try_from(pair.get(1)?.as_u64()?).ok()));
    if start.is_empty() {
        return Err(ConfigError::Field { field: "decoder_start_token_id".into(), expected: "the number of a token" });
    }
    let dimensions = Dimensions {
        architecture: "whisper".into(),
        hidden_size: config.d_model,
        intermediate_size: 4 * config.d_model,
        layers: config.decoder_layers,
        encoder_layers: Some(config.encoder_layers),
        heads: config.decoder_attention_heads,
        kv_heads: config.decoder_attention_heads,
        head_dim: config.d_model / config.decoder_attention_heads,
        vocab_size: config.vocab_size,
        source_positions,
        positions,
        start,
        eos: token_ids(json.get("eos_token_id")),
        tied: true,
    };
    Ok((config, dimensions))
}

impl CandleWhisper {
    /// Takes the weights of a `config.json` from `source`; `name` stands for it in errors. Computes in f32, which is all
    /// that candle's whisper does.
    pub fn load(
        name: &str,
        json: &Value,
        source: &mut dyn WeightSource,
        device: &Device,
    ) -> std::result::Result<(Self, Size), WeightError> {
        let (config, dimensions) = read(json).map_err(|cause| WeightError::Config { path: name.into(), cause })?;
        // It was read as JSON, with a `model_type`.
        let _ = modules::model(&json.to_string());
        let (model, size) = reading::build("candle's whisper", source, whisper::DTYPE, device, |vb| {
            whisper::model::Whisper::load(&vb, config)
        })?;
        let head = tracing::trace_span!(target: "candlescope_models", parent: None, "head");
        Ok((Self { model, encoded: None, stale: true, head, dimensions, device: device.clone() }, size))
    }
}

impl EncoderDecoder for CandleWhisper {
    fn encode(&mut self, source: &Source) -> Result<()> {
        let Source::Sound(mel) = source else { bail!("whisper reads sound, not text: pass a spectrum") };
        self.reset();
        self.encoded = Some(self.model.encoder.forward(mel, true)?);
        Ok(())
    }

    fn decode(&mut self, tokens: &Tensor, position: usize) -> Result<Tensor> {
        if position > 0 {
            bail!("candle's whisper keeps nothing of the text: pass all of it, from position 0")
        }
        let Some(encoded) = &self.encoded else { bail!("nothing has been encoded: call encode first") };
        let (batch, count) = tokens.dims2()?;
        let hidden = self.model.decoder.forward(tokens, encoded, std::mem::take(&mut self.stale))?;
        let last = hidden.narrow(1, count - 1, 1)?.contiguous()?;
        let _entered = self.head.enter();
        let logits = self.model.decoder.final_linear(&last)?.squeeze(1)?;
        record(|| {
            let (features, words) = (self.dimensions.hidden_size, self.dimensions.vocab_size);
            let cost = linear(batch, features, words, (features * words * 4) as u64, 4);
            Annotation::from(cost).dtype(candlescope_core::DType::F32).shape(&[words, features])
        });
        logits.to_dtype(DType::F32)
    }

    fn reset(&mut self) {
        (self.encoded, self.stale) = (None, true);
        self.model.reset_kv_cache();
    }

    fn keeps_keys(&self) -> bool {
        false
    }

    fn mel_bins(&self) -> Option<usize> {
        Some(self.model.config.num_mel_bins)
    }

    fn dimensions(&self) -> &Dimensions {
        &self.dimensions
    }

    fn device(&self) -> &Device {
        &self.device
    }
}
