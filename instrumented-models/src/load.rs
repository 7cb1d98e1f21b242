//! Loads a model by its name.

mod encoders;
mod load_error;
mod load_options;
mod loaded_vision;
mod text_model;

use crate::candle_models::{CandleDecoder, CandleLlama, CandleQuantizedLlama};
use crate::chat::{ChatTemplate, Message};
use crate::config::{EMBEDDED, INSTRUMENTED_ARCHITECTURES, ModelConfig, with_encoder};
use crate::gpt2::Gpt2;
use crate::info::{ModelInfo, compute_dtype, quantized_compute_dtype};
use crate::layers::{KvCacheDType, ggml_dtype_word};
use crate::llama::Llama;
use crate::slot_model::SlotModel;
use crate::slots::SlotDecoder;
use crate::source::ModelSource;
use crate::tokenizer::Tokenizer;
use crate::untrusted::{caught, read_text};
use crate::weights::gguf::{GgufFile, GgufWeights};
use crate::weights::random::RandomWeights;
use crate::weights::safetensors::SafetensorsDir;
use crate::weights::{Form, GgufText, HeldWeights, HoldingSource, WeightError, WeightSource, WithoutPrefix};
use candle_core::quantized::GgmlDType;
use candle_core::{DType, Device};
pub use encoders::{AnyModel, LoadedEncoder, LoadedEncoderDecoder};
pub use load_error::{LoadError, PromptError, PromptTooLong, SourceTooLong};
pub use load_options::{Engine, LoadOptions};
pub use loaded_vision::LoadedVision;
use serde_json::Value;
use std::cell::RefCell;
use std::path::Path;
pub use text_model::TextModel;

/// Largest `config.json` and `tokenizer_config.json`, in bytes.
const MAX_CONFIG_FILE: u64 = 16 << 20;

/// A model with everything that generation needs.
pub struct LoadedModel {
    /// The model, whose keys and values grow with the text, or lie in slots if these were asked for.
    #[doc(hidden)]
    pub model: TextModel,
    /// Its tokenizer, if it has one.
    pub tokenizer: Option<Tokenizer>,
    /// Its chat template, if it has one.
    pub chat: Option<ChatTemplate>,
    /// Dimensions as its configuration or the metadata of its GGUF file says them.
    pub config: ModelConfig,
    /// Facts about it for `run.json`: name, dimensions, element types, bytes of weights.
    pub info: ModelInfo,
    no_tokenizer: String,
}

impl std::fmt::Debug for LoadedModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoadedModel").field("info", &self.info).finish_non_exhaustive()
    }
}

impl LoadedModel {
    /// Loads a model. Layers make their spans here, so install the subscriber first.
    ///
    /// The files are untrusted: their claims are checked against their size and against limits, and a panic of a
    /// library on them becomes an error (unless panics abort the program).
    pub fn load(source: &ModelSource, options: &LoadOptions) -> Result<Self, LoadError> {
        if let Some(form) = options.quantize {
            return Self::quantized(source, options, form);
        }
        let dtype = weight_dtype(options)?;
        Loader { source: source.to_string(), options, dtype, held: None }.load(source)
    }

    /// Loads a model for our layers with dense weights in f32, widened if they are stored otherwise, and keeps the
    /// weights, from which the same model can be made in other forms. `dtype`, `dequantize` and `engine` of `options`
    /// do not count.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    #[doc(hidden)]
    pub fn load_holding(source: &ModelSource, options: &LoadOptions) -> Result<HeldModel, LoadError> {
        let options = LoadOptions { dequantize: true, engine: Engine::Instrumented, slots: None, ..options.clone() };
        let held = Some(RefCell::default());
        let loader = Loader { source: source.to_string(), options: &options, dtype: DType::F32, held };
        let loaded = loader.load(source)?;
        let (stored, text) = match source {
            ModelSource::Gguf(path) => {
                let file = GgufFile::open(path)?;
                let types = file.content().tensor_infos.iter();
                let matrices = types.filter(|(_, info)| info.shape.rank() == 2);
                let mut stored: Vec<GgmlDType> = matrices.map(|(_, info)| info.ggml_dtype).collect();
                stored.sort_by_key(|dtype| ggml_dtype_word(*dtype).as_str());
                stored.dedup();
                (stored, GgufText::of(&file))
            }
            _ => (Vec::new(), GgufText::default()),
        };
        let weights = loader.held.map(RefCell::into_inner).unwrap_or_default();
        Ok(HeldModel { loaded, weights, stored, text })
    }

    /// Loads a model and quantises its matrices, of which there are two copies on the host for a moment.
    fn quantized(source: &ModelSource, options: &LoadOptions, form: GgmlDType) -> Result<Self, LoadError> {
        if options.engine == Engine::Candle {
            return Err(LoadError::Engine(
                "weights are quantised for our layers only: leave the engine out, or the quantising".into(),
            ));
        }
        let on_host = LoadOptions { device: Device::Cpu, quantize: None, ..options.clone() };
        let HeldModel { loaded, weights, .. } = Self::load_holding(source, &on_host).map_err(|error| match error {
            LoadError::Engine(why) => LoadError::Engine(format!("weights are quantised for our layers only: {why}")),
            other => other,
        })?;
        let Self { tokenizer, chat, config, info, no_tokenizer, .. } = loaded;
        let loader = Loader { source: source.to_string(), options, dtype: DType::F32, held: None };
        let made = || {
            let (device, kept_as) = (&options.device, options.kv_cache_dtype);
            let mut formed = weights.formed(Form::Quantized(form), device)?;
            let model = match config.is_gpt2() {
                true => {
                    let model = Gpt2::load(&config, &mut formed, DType::F32, device)?;
                    loader.ours(model.kv_cache_dtype(kept_as), formed.bytes())?
                }
                false => {
                    let model = Llama::load(&config, &mut formed, DType::F32, device)?;
                    loader.ours(model.kv_cache_dtype(kept_as), formed.bytes())?
                }
            };
            let text = TextSide { tokenizer, chat, missing: no_tokenizer };
            Ok(loader.finish(model, config, text, Some((Some(form), formed.bytes()))))
        };
        let mut loaded = caught(made)
            .unwrap_or_else(|message| Err(LoadError::Panicked { source_name: source.to_string(), message }))?;
        loaded.info.seed = info.seed;
        Ok(loaded)
    }

    /// The model of the hub that has been fetched into `directory`.
    fn fetched(source: &ModelSource, id: &str, directory: &Path, options: &LoadOptions) -> Result<Self, LoadError> {
        if options.quantize.is_some() {
            // It is in the cache by now.
            return Self::load(source, options);
        }
        let dtype = weight_dtype(options)?;
        let loader = Loader { source: source.to_string(), options, dtype, held: None };
        caught(|| loader.directory(directory, Some(id)))
            .unwrap_or_else(|message| Err(LoadError::Panicked { source_name: source.to_string(), message }))
    }

    /// Tokens of a prompt.
    pub fn encode_prompt(&self, text: &str) -> Result<Vec<u32>, PromptError> {
        encoded(self.tokenizer(), text)
    }

    /// Tokens of a conversation, by the model's chat template, up to the beginning of the assistant's turn.
    pub fn encode_chat(&self, messages: &[Message]) -> Result<Vec<u32>, PromptError> {
        let template = self.chat.as_ref().ok_or_else(|| PromptError::NoTemplate(self.info.name.clone()))?;
        if messages.iter().all(|m| m.content.is_empty()) {
            return Err(PromptError::Empty);
        }
        Ok(self.tokenizer()?.encode(&template.render(messages, true)?, false)?)
    }

    /// A prompt of `count` seeded random tokens, none of which ends a text. Fails, before anything is allocated, if so
    /// many do not fit the model's context.
    pub fn random_prompt(&self, count: usize, seed: u64) -> Result<Vec<u32>, PromptTooLong> {
        PromptTooLong::check(count, self.model.max_context())?;
        Ok(random_tokens(count, self.config.vocab_size, &self.info.eos_tokens, seed))
    }

    fn tokenizer(&self) -> Result<&Tokenizer, PromptError> {
        present(self.tokenizer.as_ref(), &self.info.name, &self.no_tokenizer)
    }
}

/// The type that dense weights are held in.
fn weight_dtype(options: &LoadOptions) -> Result<DType, LoadError> {
    let dtype = options.dtype.unwrap_or(if options.device.is_cpu() { DType::F32 } else { DType::BF16 });
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 => Ok(dtype),
        other => Err(LoadError::DType(other)),
    }
}

/// A model with the weights it was made of.
#[derive(Debug)]
pub struct HeldModel {
    /// The model, in f32.
    pub loaded: LoadedModel,
    /// Its weights in f32, by the names that the model asks for.
    pub weights: HeldWeights,
    /// The types of its matrices in a GGUF file, each once; empty for other sources.
    pub stored: Vec<GgmlDType>,
    /// The tokenizer's part of a GGUF file's metadata; empty for other sources.
    pub text: GgufText,
}

/// A model's tokenizer; fails with the `reason` if it has none.
fn present<'a>(tokenizer: Option<&'a Tokenizer>, model: &str, reason: &str) -> Result<&'a Tokenizer, PromptError> {
    tokenizer.ok_or_else(|| PromptError::NoTokenizer { model: model.to_string(), reason: reason.to_string() })
}

/// Tokens of a text, with what the model wants around it.
fn encoded(tokenizer: Result<&Tokenizer, PromptError>, text: &str) -> Result<Vec<u32>, PromptError> {
    if text.is_empty() {
        return Err(PromptError::Empty);
    }
    Ok(tokenizer?.encode(text, true)?)
}

/// So many seeded random tokens of a vocabulary, none of which is in `end`.
pub(crate) fn random_tokens(count: usize, vocabulary: usize, end: &[u32], seed: u64) -> Vec<u32> {
    use rand::{Rng, SeedableRng, rngs::StdRng};
    let mut rng = StdRng::seed_from_u64(seed);
    // A vocabulary of only end tokens has no token to choose.
    let all_end = end.len() >= vocabulary;
    let vocabulary = u32::try_from(vocabulary).unwrap_or(u32::MAX);
    (0..count)
        .map(|_| {
            loop {
                let token = rng.random_range(0..vocabulary);
                if all_end || !end.contains(&token) {
                    break token;
                }
            }
        })
        .collect()
}

struct Loader<'a> {
    source: String,
    options: &'a LoadOptions,
    dtype: DType,
    /// Where dense weights are kept, if they are wanted.
    held: Option<RefCell<HeldWeights>>,
}

/// Tokenizer and chat template of a model.
#[derive(Default)]
struct TextSide {
    tokenizer: Option<Tokenizer>,
    chat: Option<ChatTemplate>,
    /// Why there is no tokenizer.
    missing: String,
}

impl TextSide {
    fn of_random_weights() -> Self {
        Self { missing: "its weights are random, and so would be its words".into(), ..Self::default() }
    }
}

impl Loader<'_> {
    fn load(&self, source: &ModelSource) -> Result<LoadedModel, LoadError> {
        candlescope::modules::check_threads(&self.options.device);
        // If that fails, whoever chooses a token says so.
        let _ = crate::sampling::prepare(&self.options.device);
        caught(|| match source {
            ModelSource::Embedded => self.random(EMBEDDED),
            ModelSource::Config(name) => self.random(name),
            ModelSource::Gguf(path) => self.gguf(path),
            ModelSource::Directory(path) => self.directory(path, None),
            ModelSource::Hub(id) => self.directory(&crate::hub::fetch(id)?, Some(id)),
        })
        .unwrap_or_else(|message| Err(LoadError::Panicked { source_name: source.to_string(), message }))
    }

    fn random(&self, name: &str) -> Result<LoadedModel, LoadError> {
        let config = ModelConfig::named(name)?;
        self.check_engine(&config)?;
        let mut weights = RandomWeights::new(&config, self.options.seed, self.dtype, &self.options.device);
        let model = self.dense(&config, &mut weights)?;
        let text = if config.name == EMBEDDED {
            TextSide { tokenizer: Some(Tokenizer::Bytes), ..TextSide::default() }
        } else {
            TextSide::of_random_weights()
        };
        let mut loaded = self.finish(model, config, text, None);
        loaded.info.seed = Some(self.options.seed);
        Ok(loaded)
    }

    /// The name of a model, that of its directory unless it has another, and its `config.json`.
    fn config_json(directory: &Path, name: Option<&str>) -> Result<(String, Value), LoadError> {
        let path = directory.join("config.json");
        if !path.is_file() {
            return Err(LoadError::Directory { path, reason: "is missing".into() });
        }
        let json = read_json(&path).map_err(|reason| LoadError::Directory { path, reason })?;
        if let Some(name) = name {
            return Ok((name.to_string(), json));
        }
        let name = directory.canonicalize().unwrap_or_else(|_| directory.to_path_buf());
        Ok((name.file_name().and_then(|n| n.to_str()).unwrap_or("model").to_string(), json))
    }

    /// What `preprocessor_config.json` of a model's directory says, null if there is none.
    fn processor_json(directory: &Path) -> Result<Value, LoadError> {
        let path = directory.join("preprocessor_config.json");
        if !path.is_file() {
            return Ok(Value::Null);
        }
        read_json(&path).map_err(|reason| LoadError::Directory { path, reason })
    }

    /// The tokenizer of a model's directory, and its chat template if it has one.
    fn directory_text(directory: &Path) -> Result<TextSide, LoadError> {
        let path = directory.join("tokenizer.json");
        if !path.is_file() {
            return Err(LoadError::Directory { path, reason: "is missing".into() });
        }
        let tokenizer = Some(Tokenizer::from_file(&path)?);
        let path = directory.join("tokenizer_config.json");
        let chat = if path.is_file() {
            let json = read_json(&path).map_err(|reason| LoadError::Directory { path, reason })?;
            ChatTemplate::from_tokenizer_config(&json)
        } else {
            None
        };
        Ok(TextSide { tokenizer, chat, missing: String::new() })
    }

    /// A model of a directory; one of the hub is called by its id, because its directory is called by a commit.
    fn directory(&self, directory: &Path, id: Option<&str>) -> Result<LoadedModel, LoadError> {
        let (name, json) = Self::config_json(directory, id)?;
        if let Some(architecture) = with_encoder(&json) {
            return Err(LoadError::WithEncoder { source_name: self.source.clone(), architecture: architecture.into() });
        }
        let in_file = |cause| WeightError::Config { path: directory.join("config.json"), cause };
        let config = ModelConfig::from_hf(&name, &json).map_err(in_file)?;
        self.check_engine(&config)?;
        let text = Self::directory_text(directory)?;
        let mut weights = SafetensorsDir::open(directory, self.dtype, &self.options.device)?;
        let model = self.dense(&config, &mut weights)?;
        Ok(self.finish(model, config, text, None))
    }

    fn gguf(&self, path: &Path) -> Result<LoadedModel, LoadError> {
        let mut file = GgufFile::open(path)?;
        let mut config = file.config()?;
        let text = gguf_text(&file, &config, path)?;
        let device = &self.options.device;
        if self.options.dequantize {
            let mut weights = GgufWeights::dequantized(&mut file, &mut config, self.dtype, device);
            let model = self.dense(&config.clone(), &mut weights)?;
            return Ok(self.finish(model, config, text, None));
        }
        let quantized = file.quantization();
        let model = match self.options.engine {
            Engine::Candle => {
                check_plain(self.options)?;
                TextModel::growing(CandleQuantizedLlama::load(&file, device)?)
            }
            // candle's own model reads fewer architectures from these files than ours.
            Engine::Instrumented | Engine::Auto => {
                let mut weights = GgufWeights::quantized(&mut file, device);
                let model = Llama::load(&config, &mut weights, DType::F32, device)?;
                self.ours(model.kv_cache_dtype(self.options.kv_cache_dtype), quantized.1)?
            }
        };
        Ok(self.finish(model, config, text, Some(quantized)))
    }

    fn dense(&self, config: &ModelConfig, weights: &mut dyn WeightSource) -> Result<TextModel, LoadError> {
        let device = &self.options.device;
        let mut unprefixed;
        let weights = if config.is_gpt2() && !weights.contains("transformer.wte.weight") {
            unprefixed = WithoutPrefix::new(weights, "transformer.");
            &mut unprefixed
        } else {
            weights
        };
        self.check_engine(config)?;
        let (mut held, mut holding) = (self.held.as_ref().map(RefCell::borrow_mut), None);
        let weights: &mut dyn WeightSource = match held.as_deref_mut() {
            Some(held) => holding.insert(HoldingSource::new(weights, held)),
            None => weights,
        };
        let (architecture, kept_as) = (config.architecture.as_str(), self.options.kv_cache_dtype);
        let bytes = config.parameters() * self.dtype.size_in_bytes() as u64;
        Ok(match (self.options.engine.of(architecture), architecture) {
            (Engine::Candle, "llama") => TextModel::growing(CandleLlama::load(config, weights, self.dtype, device)?),
            (Engine::Candle, _) => TextModel::growing(CandleDecoder::load(config, weights, self.dtype, device)?),
            _ if config.is_gpt2() => {
                self.ours(Gpt2::load(config, weights, self.dtype, device)?.kv_cache_dtype(kept_as), bytes)?
            }
            _ => self.ours(Llama::load(config, weights, self.dtype, device)?.kv_cache_dtype(kept_as), bytes)?,
        })
    }

    /// A model of our layers, whose weights have so many bytes, with its sequences in slots if that is wanted.
    fn ours(&self, model: impl SlotModel + 'static, bytes: u64) -> Result<TextModel, LoadError> {
        let Some(slots) = &self.options.slots else { return Ok(TextModel::growing(model)) };
        SlotDecoder::beside(Box::new(model), slots, bytes).map(TextModel::in_slots).map_err(LoadError::Slots)
    }

    /// Fails if the engine does not have the architecture, though the other one has.
    fn check_engine(&self, config: &ModelConfig) -> Result<(), LoadError> {
        let architecture = config.architecture.as_str();
        if self.options.engine.of(architecture) == Engine::Candle {
            check_plain(self.options)?;
        }
        match self.options.engine {
            Engine::Candle if config.is_gpt2() => Err(LoadError::Engine(
                "candle-transformers has no GPT-2: choose the engine `instrumented`, which has it".into(),
            )),
            Engine::Instrumented if !INSTRUMENTED_ARCHITECTURES.contains(&architecture) => {
                Err(LoadError::Engine(format!(
                    "architecture `{architecture}` runs as candle-transformers' own model only: choose the engine \
                     `candle`, or leave the choice out; the engine `instrumented` has {}",
                    INSTRUMENTED_ARCHITECTURES.join(", ")
                )))
            }
            _ => Ok(()),
        }
    }

    fn finish(
        &self,
        model: TextModel,
        config: ModelConfig,
        text: TextSide,
        quantized: Option<(Option<GgmlDType>, u64)>,
    ) -> LoadedModel {
        let parameters = config.parameters();
        let device = &self.options.device;
        let dtype = if quantized.is_some() { DType::F32 } else { self.dtype };
        let (quantization, compute_dtype, weight_bytes) = match quantized {
            None => {
                let bytes = parameters * dtype.size_in_bytes() as u64;
                (dtype.as_str().to_string(), compute_dtype(dtype, device), bytes)
            }
            Some((None, bytes)) => (String::new(), None, bytes),
            Some((Some(stored), bytes)) => {
                // Not worth failing for: an unknown type is left out.
                let computed = quantized_compute_dtype(stored, device).ok().flatten();
                (ggml_dtype_word(stored).as_str().to_string(), computed, bytes)
            }
        };
        let info = ModelInfo {
            name: config.name.clone(),
            source: self.source.clone(),
            architecture: config.architecture.clone(),
            engine: match (self.options.engine, quantized.is_some()) {
                (Engine::Auto, true) => Engine::Instrumented.as_str(),
                (engine, _) => engine.of(&config.architecture).as_str(),
            },
            parameters,
            weight_bytes,
            quantization,
            dtype: dtype.as_str().to_string(),
            compute_dtype,
            kv_cache_dtype: match self.options.kv_cache_dtype {
                KvCacheDType::Auto => None,
                kept_as => Some(kept_as.as_str()),
            },
            hidden_size: config.hidden_size,
            intermediate_size: config.intermediate(),
            layers: config.num_layers,
            encoder_layers: None,
            heads: config.num_heads,
            kv_heads: config.num_kv_heads,
            head_dim: config.head_dim,
            vocab_size: config.vocab_size,
            // Slots may hold less than the model does.
            context_length: self.options.slots.map_or_else(|| model.max_context(), |_| config.max_context),
            seed: None,
            eos_tokens: config.eos.clone(),
        };
        LoadedModel { model, tokenizer: text.tokenizer, chat: text.chat, config, info, no_tokenizer: text.missing }
    }
}

/// Fails if sequences in slots, quantised weights or a cache in 8 bits are wanted, for a model of candle-transformers or
/// one with an encoder.
fn check_plain(options: &LoadOptions) -> Result<(), LoadError> {
    let asked = match options {
        LoadOptions { slots: Some(_), .. } => "slots and CUDA graphs are",
        LoadOptions { quantize: Some(_), .. } => "quantising while the model loads is",
        LoadOptions { kv_cache_dtype: KvCacheDType::Q8, .. } => "keys and values in 8 bits (`--kv-cache-dtype q8`) are",
        _ => return Ok(()),
    };
    Err(LoadError::Engine(format!(
        "{asked} for decoders of the engine `instrumented`, which has {}: leave them out for this model",
        INSTRUMENTED_ARCHITECTURES.join(", ")
    )))
}

/// Tokenizer and chat template of a GGUF file. A tokenizer.json beside the file has precedence over the metadata; if
/// neither works, the model still runs with numbers of tokens.
fn gguf_text(file: &GgufFile, config: &ModelConfig, path: &Path) -> Result<TextSide, LoadError> {
    let beside = path.with_file_name("tokenizer.json");
    let (tokenizer, missing) = if beside.is_file() {
        (Some(Tokenizer::from_file(&beside)?), String::new())
    } else {
        match Tokenizer::from_gguf(file) {
            Ok(tokenizer) => (Some(tokenizer), String::new()),
            Err(error) => (None, error.to_string()),
        }
    };
    let written = |id: Option<u32>| id.and_then(|id| tokenizer.as_ref().and_then(|t| t.token(id))).unwrap_or_default();
    let chat = file
        .text("tokenizer.chat_template")
        .map(|template| ChatTemplate::new(template, &written(config.bos), &written(config.eos.first().copied())));
    Ok(TextSide { tokenizer, chat, missing })
}

fn read_json(path: &Path) -> Result<Value, String> {
    let text = read_text(path, MAX_CONFIG_FILE)?;
    serde_json::from_str(&text).map_err(|e| format!("is not JSON: {e}"))
}
