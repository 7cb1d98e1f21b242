//! The model that all cases of a process share, and the session that records it.

use super::lm_options::LmOptions;
use super::machine_memory::{RequestMemory, predicted_weight_bytes, shown};
use crate::hardware::{available_bytes, free_memory};
use crate::method::{Cancel, CaseError};
use candlescope::parquet::{ParquetConfig, ParquetExporter};
use candlescope::{Capture, Handle};
use candlescope_models::slots::SlotDecoder;
use candlescope_models::{GenerateOptions, LoadError, LoadOptions, LoadedModel, ModelSource, generate_for};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest wait for a recorded run to be written.
const WRITTEN_WITHIN: Duration = Duration::from_secs(60);

/// Why a model cannot be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "its messages say what the fields are")]
pub enum HostError {
    /// The name is none of a model.
    #[error(transparent)]
    Source(#[from] candlescope_models::source::SourceError),
    /// It cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Its prompt cannot be used.
    #[error("cannot use the prompt file {path}: {reason}", path = path.display())]
    Prompt { path: PathBuf, reason: String },
}

/// Records repetitions into runs: a session that was started before the model loads.
#[derive(Debug)]
pub struct Recorder {
    handle: Handle,
    study: PathBuf,
    open: Option<(Capture, PathBuf)>,
}

impl Recorder {
    /// Records into `runs/CASE` of the study in `study`, through a session that captures on request.
    pub fn new(handle: Handle, study: impl Into<PathBuf>) -> Self {
        Self { handle, study: study.into(), open: None }
    }

    pub(crate) fn begin(&mut self, slug: &str, steps: u64) -> Result<(), CaseError> {
        let failed = |error: String| CaseError::Failed(format!("the run of the case cannot be recorded: {error}"));
        // What an interrupted process left is kept.
        let names = std::iter::once(slug.to_string()).chain((2..1_000).map(|n| format!("{slug}.{n}")));
        let folders = names.map(|name| Path::new("runs").join(name));
        let folder = folders.into_iter().find(|folder| !self.study.join(folder).exists());
        let folder = folder.ok_or_else(|| failed("a thousand runs of it are there".into()))?;
        let path = self.study.join(&folder);
        std::fs::create_dir_all(&path).map_err(|error| failed(format!("{}: {error}", path.display())))?;
        let exporter = ParquetExporter::new(ParquetConfig::new(&path));
        let capture = self.handle.capture(exporter, steps).map_err(|error| failed(error.to_string()))?;
        self.open = Some((capture, folder));
        Ok(())
    }

    /// The directory of the run that is being recorded, relative to the study.
    pub(crate) fn folder(&self) -> Option<String> {
        self.open.as_ref().map(|(_, folder)| folder.display().to_string())
    }

    pub(crate) fn end(&mut self) -> Result<(), CaseError> {
        let Some((capture, folder)) = self.open.take() else { return Ok(()) };
        capture.end();
        let path = self.study.join(folder);
        let lost = || CaseError::Failed(format!("the run in {} was not written in time", path.display()));
        capture.wait(WRITTEN_WITHIN).ok_or_else(lost)?;
        let report = candlescope_report::write_report(&path, &candlescope_report::ReportOptions::default());
        report.map(drop).map_err(|error| CaseError::Failed(error.to_string()))
    }
}

/// A model, and what cases need around it.
#[derive(Debug)]
pub struct ModelHost {
    source: ModelSource,
    load: LoadOptions,
    pub(super) options: LmOptions,
    pub(super) cancel: Cancel,
    pub(super) loaded: Option<LoadedModel>,
    /// Why the model was not loaded: it would not have fitted.
    refused: Option<String>,
    pub(super) recorder: Option<Recorder>,
    /// The model's slots, where requests join and leave between steps.
    pub(super) slots: Option<SlotDecoder>,
    /// Sequences and tokens that the cache was made for last.
    shape: Option<(usize, usize)>,
}

impl ModelHost {
    /// A model that will be loaded with `load`, which is what the words in `options` mean.
    ///
    /// # Errors
    /// When the model's name is none.
    pub fn new(options: &LmOptions, load: LoadOptions) -> Result<Self, HostError> {
        Ok(Self {
            source: ModelSource::parse(&options.model)?,
            load,
            options: options.clone(),
            cancel: Cancel::new(),
            loaded: None,
            refused: None,
            recorder: None,
            slots: None,
            shape: None,
        })
    }

    /// Cuts a repetition short when `cancel` is set.
    #[must_use]
    pub fn cancel(mut self, cancel: &Cancel) -> Self {
        self.cancel = cancel.clone();
        self
    }

    /// Records profiled repetitions with `recorder`, whose session must be there before the model loads.
    #[must_use]
    pub fn recorder(mut self, recorder: Option<Recorder>) -> Self {
        self.recorder = recorder;
        self
    }

    /// Loads the model. One that would not fit into this machine's memory is not loaded: its cases are refused then,
    /// each with the figures.
    ///
    /// # Errors
    /// When it cannot be loaded.
    pub fn load(&mut self) -> Result<(), HostError> {
        if let Some(file) = &self.options.prompt_file {
            let wrong = |reason: String| HostError::Prompt { path: file.clone(), reason };
            let text = candlescope_core::files::read_text_limited(file, 64 << 20).map_err(|e| wrong(e.to_string()))?;
            if text.trim().is_empty() {
                return Err(wrong("it is empty; give a text, or a number of prompt tokens".into()));
            }
        }
        let limit = self.memory_limit();
        if let Some((needed, limit)) = predicted_weight_bytes(&self.source, &self.load).zip(limit)
            && needed > limit
        {
            let (needed, limit) = (shown(needed), shown(limit));
            self.refused = Some(format!(
                "the model's weights need {needed}, and {limit} are available: take a smaller model, a quantised one, \
                 or a machine with more memory"
            ));
            return Ok(());
        }
        let mut loaded = LoadedModel::load(&self.source, &self.load)?;
        self.slots = loaded.model.take_slots();
        self.loaded = Some(loaded);
        Ok(())
    }

    /// Facts about the model; empty if it was not loaded.
    pub fn facts(&self) -> serde_json::Map<String, serde_json::Value> {
        self.loaded.as_ref().map(|loaded| loaded.info.to_map()).unwrap_or_default()
    }

    /// Why the model was not loaded, if it would not have fitted.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Bytes that `batch` sequences of `prompt` and `output` tokens need beside the weights: keys, values and
    /// activations, derived and not measured. `None` before the model is loaded.
    pub fn need(&self, batch: usize, prompt: usize, output: usize) -> Option<u64> {
        self.loaded.as_ref().map(|loaded| RequestMemory::of(&loaded.info, batch, prompt, output).total())
    }

    /// Bytes that are there for that: the limit of the options, else what the device has free now. `None` where nobody
    /// tells.
    pub fn available(&self) -> Option<u64> {
        self.options.memory_limit.or_else(|| free_memory(&self.load.device))
    }

    /// Bytes that a case may still take: what the options say, on any device. Without them it is what the machine has
    /// left, and on a GPU nothing is refused, as running out of its memory is an error that can be survived.
    pub(super) fn memory_limit(&self) -> Option<u64> {
        self.options.memory_limit.or_else(|| if self.device().is_cpu() { available_bytes() } else { None })
    }

    pub(super) fn device(&self) -> &candle_core::Device {
        &self.load.device
    }

    pub(super) fn loaded(&mut self) -> Result<&mut LoadedModel, CaseError> {
        match (&mut self.loaded, &self.refused) {
            (Some(loaded), _) => Ok(loaded),
            (None, Some(why)) => Err(CaseError::Refused(why.clone())),
            (None, None) => Err(CaseError::Failed("the model was not loaded".into())),
        }
    }

    /// Prompts of a case: seeded random tokens, different ones for each sequence, or the text of the prompt file.
    pub(super) fn prompts(&mut self, batch: usize, tokens: Option<usize>) -> Result<Vec<Vec<u32>>, CaseError> {
        let failed = |error: &dyn std::fmt::Display| CaseError::Failed(error.to_string());
        let (seed, file) = (self.options.seed, self.options.prompt_file.clone());
        let loaded = self.loaded()?;
        match (tokens, file) {
            (Some(tokens), _) => (0..batch as u64)
                .map(|n| {
                    loaded.random_prompt(tokens, seed.wrapping_add(n)).map_err(|e| CaseError::Refused(e.to_string()))
                })
                .collect(),
            (None, Some(file)) => {
                let text = candlescope_core::files::read_text_limited(&file, 64 << 20).map_err(|e| failed(&e))?;
                Ok(vec![loaded.encode_prompt(&text).map_err(|e| failed(&e))?; batch])
            }
            (None, None) => Err(CaseError::Failed("the case has no prompt".into())),
        }
    }

    /// Makes the cache that `batch` sequences of `tokens` tokens need, unless the last request needed the same: a
    /// server's cache is there when a request comes, so making it belongs to no figure.
    pub(super) fn make_cache(&mut self, batch: usize, tokens: usize) -> Result<(), CaseError> {
        if self.shape == Some((batch, tokens)) {
            return Ok(());
        }
        let loaded = self.loaded()?;
        let prompts = vec![vec![0u32]; batch];
        let how = GenerateOptions { max_new_tokens: tokens.max(1), ignore_eos: true, ..GenerateOptions::default() };
        let request = candlescope::llm::Request::new("text_completion", &loaded.info.name);
        generate_for(loaded, request, &prompts, &how, &mut |_| ControlFlow::Break(()))
            .map_err(|error| super::generate_error::case_error(&error))?;
        self.shape = Some((batch, tokens));
        Ok(())
    }
}
