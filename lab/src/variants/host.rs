//! The model that all variants are made of.

use super::runner::{CandleRunner, Runner};
use super::variant::Variant;
use super::variant_options::VariantOptions;
use crate::hardware::available_bytes;
use crate::method::{Cancel, CaseError};
use crate::suites::{HostError, Recorder, shown};
use candlescope_core::files::read_text_limited;
use candlescope_core::run::model_key;
use candlescope_models::weights::{Form, WeightError, write_gguf};
use candlescope_models::{HeldModel, LoadOptions, LoadedModel, ModelSource};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// Largest text that is read.
const MAX_TEXT: u64 = 64 << 20;
/// A text that every Debian has, so that results of two machines are of the same text.
pub const DEFAULT_TEXT: &str = "/usr/share/common-licenses/GPL-3";

/// A model, held once, of which variants are made.
pub struct VariantHost {
    pub(super) held: HeldModel,
    pub(super) options: VariantOptions,
    pub(super) cancel: Cancel,
    pub(super) recorder: Option<Recorder>,
    load: LoadOptions,
    /// Where files are made that a variant is run from.
    #[cfg_attr(not(feature = "onnx"), expect(dead_code, reason = "only variants in ONNX are run from files"))]
    files: PathBuf,
}

impl std::fmt::Debug for VariantHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VariantHost").field("options", &self.options).finish_non_exhaustive()
    }
}

impl VariantHost {
    /// Loads the model that `options` name. `files` is where files are made that a variant is run from.
    ///
    /// # Errors
    /// When it cannot be loaded.
    pub fn load(options: &VariantOptions, load: LoadOptions, files: &Path) -> Result<Self, HostError> {
        let source = ModelSource::parse(&options.model)?;
        let held = LoadedModel::load_holding(&source, &load)?;
        let (options, files) = (options.clone(), files.to_path_buf());
        Ok(Self { held, options, cancel: Cancel::new(), recorder: None, load, files })
    }

    /// Stops between two repetitions when `cancel` is set.
    #[must_use]
    pub fn cancel(mut self, cancel: &Cancel) -> Self {
        self.cancel = cancel.clone();
        self
    }

    /// Records profiled repetitions with `recorder`, whose session must be there before the model is loaded.
    #[must_use]
    pub fn recorder(mut self, recorder: Option<Recorder>) -> Self {
        self.recorder = recorder;
        self
    }

    /// Facts about the model, and what its weights were stored as.
    pub fn facts(&self) -> Map<String, Value> {
        let mut facts = self.held.loaded.info.to_map();
        let stored: Vec<&str> = self.held.stored.iter().map(|dtype| Form::Quantized(*dtype).name()).collect();
        facts.insert(model_key::STORED_AS.name().into(), if stored.is_empty() { Value::Null } else { stored.into() });
        facts
    }

    /// Whether the model's weights mean nothing, so that nothing can be said about quality.
    pub fn is_random(&self) -> bool {
        self.held.loaded.info.seed.is_some()
    }

    #[cfg(feature = "onnx")]
    pub(super) fn files(&self) -> &Path {
        &self.files
    }

    pub(super) fn on_cpu(&self) -> bool {
        self.load.device.is_cpu()
    }

    /// The prompt whose continuation is timed: seeded random tokens.
    pub(super) fn prompt(&self) -> Result<Vec<u32>, CaseError> {
        let VariantOptions { prompt_tokens, output_tokens, seed, .. } = self.options;
        let (context, needed) = (self.held.loaded.info.context_length, prompt_tokens + output_tokens);
        if needed > context {
            return Err(CaseError::Refused(format!(
                "a prompt of {prompt_tokens} tokens and {output_tokens} of output do not fit the model's context of \
                 {context}"
            )));
        }
        self.held.loaded.random_prompt(prompt_tokens, seed).map_err(|error| CaseError::Refused(error.to_string()))
    }

    /// Makes a variant.
    ///
    /// # Errors
    /// [`CaseError::Refused`] where the model cannot be run in this way, with the reason.
    pub fn build(&self, variant: Variant) -> Result<Box<dyn Runner>, CaseError> {
        self.check_memory(variant)?;
        match variant {
            Variant::Onnx => return self.onnx(),
            Variant::OnnxCandle => return self.onnx_candle(),
            _ => (),
        }
        let HeldModel { loaded, weights, .. } = &self.held;
        let forms = (variant.form(), variant.kv_cache_dtype());
        let held = weights.model_with(&loaded.config, forms, &self.load.device).map_err(|error| refused(&error))?;
        Ok(Box::new(CandleRunner::new(held, variant, &loaded.info.name)))
    }

    /// Fails if the variant needs more memory than there is.
    fn check_memory(&self, variant: Variant) -> Result<(), CaseError> {
        let limit = self.options.memory_limit.or_else(|| if self.on_cpu() { available_bytes() } else { None });
        let parameters = self.held.loaded.info.parameters;
        let need = match variant.form() {
            // Its weights are those that are held already.
            _ if variant.is_base() || variant == Variant::KvQ8 => 0,
            Form::Dense(dtype) => parameters * dtype.size_in_bytes() as u64,
            Form::Quantized(dtype) => parameters * dtype.type_size() as u64 / dtype.block_size() as u64,
        };
        match limit.filter(|limit| need > *limit) {
            Some(limit) => Err(CaseError::Refused(format!(
                "its weights need {}, and {} are available: take a smaller model, or a machine with more memory",
                shown(need),
                shown(limit)
            ))),
            None => Ok(()),
        }
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self) -> Result<Box<dyn Runner>, CaseError> {
        use super::onnx_runtime::OnnxRunner;
        // The library first: without it no file needs to be written.
        super::onnx_runtime::start(self.options.onnxruntime.as_deref())?;
        let files = self.onnx_files(&self.files, true)?;
        Ok(Box::new(OnnxRunner::open(&files, &self.held.loaded, self.on_cpu())?))
    }

    #[cfg(not(feature = "onnx"))]
    #[allow(clippy::unused_self, reason = "the same call in both builds")]
    fn onnx(&self) -> Result<Box<dyn Runner>, CaseError> {
        Err(CaseError::Refused(
            "this build has no ONNX: build it with `cargo build -p candlescope-cli --features onnx`".into(),
        ))
    }

    #[cfg(feature = "candle-onnx")]
    fn onnx_candle(&self) -> Result<Box<dyn Runner>, CaseError> {
        if !self.on_cpu() {
            return Err(CaseError::Refused(
                "candle-onnx computes on the CPU only: measure it with --device cpu".into(),
            ));
        }
        let files = self.onnx_files(&self.files, true)?;
        Ok(Box::new(super::onnx_candle::CandleOnnxRunner::open(&files)?))
    }

    #[cfg(not(feature = "candle-onnx"))]
    #[allow(clippy::unused_self, reason = "the same call in both builds")]
    fn onnx_candle(&self) -> Result<Box<dyn Runner>, CaseError> {
        Err(CaseError::Refused(
            "this build has no candle-onnx: build it with `cargo build -p candlescope-cli --features candle-onnx`, which \
             needs protoc (Debian's protobuf-compiler)"
                .into(),
        ))
    }

    /// The ONNX files in `dir`. With `reuse`, those that are there are taken for this model's.
    #[cfg(feature = "onnx")]
    pub(super) fn onnx_files(&self, dir: &Path, reuse: bool) -> Result<candlescope_models::onnx::OnnxFiles, CaseError> {
        if let Some(files) = candlescope_models::onnx::OnnxFiles::in_dir(dir, "model").filter(|_| reuse) {
            return Ok(files);
        }
        let failed = |error: std::io::Error| CaseError::Failed(format!("cannot use {}: {error}", dir.display()));
        std::fs::create_dir_all(dir).map_err(failed)?;
        let HeldModel { loaded, weights, .. } = &self.held;
        candlescope_models::onnx::write_onnx(dir, "model", &loaded.config, weights).map_err(|error| refused(&error))
    }

    /// Writes the variant's GGUF file into `dir`, or counts its bytes.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub(super) fn gguf(&self, variant: Variant, dir: Option<&Path>) -> Result<u64, CaseError> {
        let HeldModel { loaded, weights, text, .. } = &self.held;
        let file = dir.map(|dir| dir.join(format!("model.{}.gguf", variant.form().name())));
        write_gguf(file.as_deref(), &loaded.config, weights, variant.form(), text).map_err(|error| refused(&error))
    }

    /// Where quality is measured: the text's tokens, or why there are none. A text that was asked for and cannot be used
    /// is an error.
    pub(super) fn text(&self) -> Result<Result<TextTokens, String>, String> {
        let asked = self.options.text.as_deref();
        let path = asked.unwrap_or(Path::new(DEFAULT_TEXT));
        if asked.is_none() && self.is_random() {
            return Ok(Err("the weights are random: there is no quality to lose".into()));
        }
        if asked.is_none() && !path.is_file() {
            return Ok(Err(format!("{} is not on this machine; name a text with --text", path.display())));
        }
        let text = read_text_limited(path, MAX_TEXT)
            .map_err(|error| format!("cannot read the text {}: {error}", path.display()))?;
        let tokens = match self.held.loaded.encode_prompt(&text) {
            Ok(tokens) => tokens,
            // Nobody asked for this text.
            Err(error) if asked.is_none() => return Ok(Err(error.to_string())),
            Err(error) => return Err(error.to_string()),
        };
        let chunk = self.options.chunk;
        if tokens.len() < chunk {
            return Err(format!(
                "the text {} has {} tokens, and {chunk} are needed at least: pass a longer one with --text, or a smaller \
                 --chunk",
                path.display(),
                tokens.len()
            ));
        }
        let pieces = tokens.chunks_exact(chunk).take(self.options.chunks).map(<[u32]>::to_vec).collect();
        Ok(Ok(TextTokens { path: path.to_path_buf(), tokens: tokens.len(), pieces }))
    }

    /// Seeded random pieces, for errors of layers where there is no text.
    pub(super) fn random_pieces(&self) -> Vec<Vec<u32>> {
        let VariantOptions { chunk, chunks, seed, .. } = self.options;
        let piece = |n: usize| self.held.loaded.random_prompt(chunk, seed.wrapping_add(1 + n as u64)).ok();
        (0..chunks.min(2)).filter_map(piece).collect()
    }
}

/// A text in pieces.
#[derive(Debug, Clone)]
pub(super) struct TextTokens {
    pub(super) path: PathBuf,
    /// Tokens of the whole text.
    pub(super) tokens: usize,
    /// Pieces of equal length.
    pub(super) pieces: Vec<Vec<u32>>,
}

/// A model that cannot be run in some way is a result, with its reason.
fn refused(error: &WeightError) -> CaseError {
    let message = error.to_string();
    match error {
        WeightError::Blocks { .. } | WeightError::Unwritable { .. } => CaseError::Refused(message),
        _ if crate::hardware::is_out_of_memory(&message) => CaseError::OutOfMemory(message),
        _ => CaseError::Failed(message),
    }
}
