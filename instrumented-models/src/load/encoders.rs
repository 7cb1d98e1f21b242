//! Loads models that have an encoder, of text, sound or images, and says of any model which kind it is.

use super::{
    Engine, LoadError, LoadOptions, LoadedModel, LoadedVision, Loader, PromptError, SourceTooLong, TextSide,
    check_plain, encoded, present, random_tokens,
};
use crate::candle_models::{self, CandleBert, CandlePaddleOcrVl, CandleT5, CandleWhisper, Size};
use crate::config::{ConfigError, ENCODER_ARCHITECTURES, HF_ARCHITECTURES, INSTRUMENTED_ARCHITECTURES, PADDLEOCR_VL};
use crate::encoder_decoder::EncoderDecoder;
use crate::info::{Dimensions, ModelInfo, compute_dtype};
use crate::source::ModelSource;
use crate::tokenizer::Tokenizer;
use crate::untrusted::caught;
use crate::weights::random::RandomWeights;
use crate::weights::safetensors::SafetensorsDir;
use crate::weights::{WeightError, WeightSource};
use candle_core::DType;
use serde_json::Value;
use std::path::Path;

/// A model of any kind.
#[derive(Debug)]
pub enum AnyModel {
    /// It continues a text.
    Decoder(Box<LoadedModel>),
    /// It encodes a source and writes a text about it.
    EncoderDecoder(Box<LoadedEncoderDecoder>),
    /// It encodes, and writes nothing.
    Encoder(Box<LoadedEncoder>),
    /// It looks at an image and writes a text about it.
    Vision(Box<LoadedVision>),
}

/// A model that encodes a source and writes a text about it, with everything that this needs.
pub struct LoadedEncoderDecoder {
    /// T5 or Whisper, as candle-transformers' own model.
    pub model: Box<dyn EncoderDecoder + Send>,
    /// Its tokenizer, if it has one.
    pub tokenizer: Option<Tokenizer>,
    /// Facts about it for `run.json`; its layers are those of the decoder.
    pub info: ModelInfo,
    no_tokenizer: String,
}

impl std::fmt::Debug for LoadedEncoderDecoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoadedEncoderDecoder").field("info", &self.info).finish_non_exhaustive()
    }
}

/// A model that encodes, with everything that this needs.
#[derive(Debug)]
pub struct LoadedEncoder {
    /// BERT, as candle-transformers' own model.
    pub model: CandleBert,
    /// Its tokenizer, if it has one.
    pub tokenizer: Option<Tokenizer>,
    /// Facts about it for `run.json`; its layers are those of the encoder.
    pub info: ModelInfo,
    no_tokenizer: String,
}

impl AnyModel {
    /// Loads a model of any kind. Layers make their spans here, so install the subscriber first.
    ///
    /// # Errors
    /// As for [`LoadedModel::load`], and where the engine does not run the architecture.
    pub fn load(source: &ModelSource, options: &LoadOptions) -> Result<Self, LoadError> {
        // What kind of model one of the hub is, is only known once its files are here.
        let fetched = match source {
            ModelSource::Hub(id) => Some((id.as_str(), crate::hub::fetch(id)?)),
            _ => None,
        };
        let fetched = fetched.as_ref().map(|(id, directory)| (*id, directory.as_path()));
        let with_encoder = caught(|| WithEncoder::of(source, fetched, options));
        let panicked = |message| LoadError::Panicked { source_name: source.to_string(), message };
        match (with_encoder.map_err(panicked)??, fetched) {
            (Some(found), _) => caught(|| found.load(source, options)).map_err(panicked)?,
            (None, Some((id, directory))) => {
                LoadedModel::fetched(source, id, directory, options).map(|model| Self::Decoder(Box::new(model)))
            }
            (None, None) => LoadedModel::load(source, options).map(|model| Self::Decoder(Box::new(model))),
        }
    }

    /// Facts about it for `run.json`, whichever kind it is.
    pub fn info(&self) -> &ModelInfo {
        match self {
            Self::Decoder(model) => &model.info,
            Self::EncoderDecoder(model) => &model.info,
            Self::Encoder(model) => &model.info,
            Self::Vision(model) => &model.info,
        }
    }
}

/// A model with an encoder, not yet loaded.
struct WithEncoder<'a> {
    name: String,
    json: Value,
    /// Where its weights are; `None` for random ones.
    directory: Option<&'a Path>,
}

impl<'a> WithEncoder<'a> {
    /// The model, if it has an encoder. Fails if no engine, or the other engine only, runs its architecture.
    fn of(
        source: &'a ModelSource,
        fetched: Option<(&str, &'a Path)>,
        options: &LoadOptions,
    ) -> Result<Option<Self>, LoadError> {
        let directory = |path: &'a Path, id: Option<&str>| {
            Loader::config_json(path, id).map(|(name, json)| (name, json, Some(path)))
        };
        let (name, json, directory) = match (source, fetched) {
            (_, Some((id, path))) => directory(path, Some(id))?,
            (ModelSource::Config(name), None) => match candle_models::hf_config(name) {
                Some(json) => (name.trim().to_ascii_lowercase(), json, None),
                None => return Ok(None),
            },
            (ModelSource::Directory(path), None) => directory(path, None)?,
            _ => return Ok(None),
        };
        let Some(architecture) = json.get("model_type").and_then(Value::as_str) else { return Ok(None) };
        let has_encoder = ENCODER_ARCHITECTURES.contains(&architecture);
        if !has_encoder && !HF_ARCHITECTURES.contains(&architecture) {
            let supported = match options.engine {
                Engine::Instrumented => INSTRUMENTED_ARCHITECTURES.to_vec(),
                Engine::Candle => {
                    [&["llama"][..], candle_models::DECODER_ARCHITECTURES, ENCODER_ARCHITECTURES].concat()
                }
                Engine::Auto => [HF_ARCHITECTURES, ENCODER_ARCHITECTURES].concat(),
            };
            let (found, supported) = (architecture.to_string(), supported.join(", "));
            let path = directory.map_or_else(|| name.clone().into(), |path| path.join("config.json"));
            return Err(WeightError::Config { path, cause: ConfigError::Architecture { found, supported } }.into());
        }
        if !has_encoder {
            return Ok(None);
        }
        check_plain(options)?;
        if options.engine == Engine::Instrumented && architecture != PADDLEOCR_VL {
            return Err(LoadError::Engine(format!(
                "architecture `{architecture}` runs as candle-transformers' own model only: choose the engine `candle`, or \
                 leave the choice out"
            )));
        }
        Ok(Some(Self { name, json, directory }))
    }

    fn load(self, source: &ModelSource, options: &LoadOptions) -> Result<AnyModel, LoadError> {
        let is_whisper = self.architecture() == "whisper";
        let dtype = match options.dtype {
            Some(DType::F32) => DType::F32,
            None if is_whisper || options.device.is_cpu() => DType::F32,
            None => DType::BF16,
            Some(dtype @ (DType::F16 | DType::BF16)) if !is_whisper => dtype,
            Some(DType::F16 | DType::BF16) => {
                return Err(LoadError::Engine("candle's whisper computes in f32 only: leave the type out".into()));
            }
            Some(other) => return Err(LoadError::DType(other)),
        };
        let (mut weights, text): (Box<dyn WeightSource>, TextSide) = match self.directory {
            Some(directory) => {
                let text = Loader::directory_text(directory)?;
                (Box::new(SafetensorsDir::open(directory, dtype, &options.device)?), text)
            }
            None => {
                let tied = match self.architecture() {
                    "t5" => CandleT5::is_tied(&self.json),
                    "paddleocr_vl" => CandlePaddleOcrVl::is_tied(&self.json),
                    _ => true,
                };
                let weights = RandomWeights::of_any_model(tied, options.seed, dtype, &options.device);
                (Box::new(weights), TextSide::of_random_weights())
            }
        };
        let (name, device) = (self.name.as_str(), &options.device);
        let seed = self.directory.is_none().then_some(options.seed);
        let info = |dimensions: &Dimensions, size| info(name, source, dimensions, size, dtype, options, seed);
        let TextSide { tokenizer, missing: no_tokenizer, .. } = text;
        Ok(match self.architecture() {
            "bert" => {
                let (model, size) = CandleBert::load(name, &self.json, weights.as_mut(), dtype, device)?;
                let info = info(model.dimensions(), size);
                AnyModel::Encoder(Box::new(LoadedEncoder { model, tokenizer, info, no_tokenizer }))
            }
            "t5" => {
                let (model, size) = CandleT5::load(name, &self.json, weights.as_mut(), dtype, device)?;
                let info = info(model.dimensions(), size);
                let model = Box::new(model);
                AnyModel::EncoderDecoder(Box::new(LoadedEncoderDecoder { model, tokenizer, info, no_tokenizer }))
            }
            "paddleocr_vl" => {
                let processor = self.directory.map_or(Ok(Value::Null), Loader::processor_json)?;
                let wrapped = match options.engine {
                    Engine::Instrumented => true,
                    Engine::Candle => false,
                    Engine::Auto => CandlePaddleOcrVl::can_be_wrapped(&self.json),
                };
                let (json, weights) = (&self.json, weights.as_mut());
                let loaded = CandlePaddleOcrVl::load_as(name, (json, &processor), weights, (dtype, device), wrapped);
                let (model, size) = loaded?;
                let mut info = info(model.dimensions(), size);
                if wrapped {
                    info.engine = Engine::Instrumented.as_str();
                }
                AnyModel::Vision(Box::new(LoadedVision::new(model, tokenizer, info, no_tokenizer)))
            }
            _ => {
                let (model, size) = CandleWhisper::load(name, &self.json, weights.as_mut(), device)?;
                let info = info(model.dimensions(), size);
                let model = Box::new(model);
                AnyModel::EncoderDecoder(Box::new(LoadedEncoderDecoder { model, tokenizer, info, no_tokenizer }))
            }
        })
    }

    fn architecture(&self) -> &str {
        self.json.get("model_type").and_then(Value::as_str).unwrap_or_default()
    }
}

fn info(
    name: &str,
    source: &ModelSource,
    of: &Dimensions,
    size: Size,
    dtype: DType,
    options: &LoadOptions,
    seed: Option<u64>,
) -> ModelInfo {
    ModelInfo {
        name: name.to_string(),
        source: source.to_string(),
        architecture: of.architecture.clone(),
        engine: Engine::Candle.as_str(),
        parameters: size.parameters,
        weight_bytes: size.bytes,
        quantization: dtype.as_str().to_string(),
        dtype: dtype.as_str().to_string(),
        compute_dtype: compute_dtype(dtype, &options.device),
        kv_cache_dtype: None,
        hidden_size: of.hidden_size,
        intermediate_size: of.intermediate_size,
        layers: of.layers,
        encoder_layers: of.encoder_layers,
        heads: of.heads,
        kv_heads: of.kv_heads,
        head_dim: of.head_dim,
        vocab_size: of.vocab_size,
        context_length: of.positions,
        seed,
        eos_tokens: of.eos.clone(),
    }
}

impl LoadedEncoderDecoder {
    /// Tokens of a text.
    ///
    /// # Errors
    /// If it is empty, or there is no tokenizer.
    pub fn encode_prompt(&self, text: &str) -> Result<Vec<u32>, PromptError> {
        encoded(present(self.tokenizer.as_ref(), &self.info.name, &self.no_tokenizer), text)
    }

    /// Whether it reads sound, and no text.
    pub fn reads_sound(&self) -> bool {
        self.model.mel_bins().is_some()
    }

    /// Positions that its longest source has.
    pub fn source_positions(&self) -> usize {
        self.model.dimensions().source_positions
    }
}

impl LoadedEncoder {
    /// Tokens of a text.
    ///
    /// # Errors
    /// If it is empty, or there is no tokenizer.
    pub fn encode_prompt(&self, text: &str) -> Result<Vec<u32>, PromptError> {
        encoded(present(self.tokenizer.as_ref(), &self.info.name, &self.no_tokenizer), text)
    }

    /// `count` seeded random tokens.
    ///
    /// # Errors
    /// If the encoder does not take so many, before anything is allocated.
    pub fn random_prompt(&self, count: usize, seed: u64) -> Result<Vec<u32>, SourceTooLong> {
        let dimensions = self.model.dimensions();
        SourceTooLong::check(count, dimensions.source_positions)?;
        Ok(random_tokens(count, dimensions.vocab_size, &[], seed))
    }
}
