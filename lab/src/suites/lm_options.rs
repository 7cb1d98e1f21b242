//! Options of the suites for language models.

use crate::method::CaseId;
use candlescope_models::slots::SlotOptions;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A suite: which requests of a language model are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SuiteName {
    /// One prompt, again and again.
    Latency,
    /// More and more sequences at once.
    Throughput,
    /// Lengths of prompt and output.
    Seqlen,
}

impl SuiteName {
    /// All of them, in the order in which reports have them.
    pub const ALL: [Self; 3] = [Self::Latency, Self::Throughput, Self::Seqlen];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Throughput => "throughput",
            Self::Seqlen => "seqlen",
        }
    }
}

/// A request: tokens of the prompt and of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Tokens of the output.
    pub output: usize,
}

/// Lengths of prompts, each with each length of output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grid {
    /// Tokens of the prompts.
    pub prompts: Vec<usize>,
    /// Tokens of the outputs.
    pub outputs: Vec<usize>,
}

/// How requests join and leave between steps, in place of batches that begin and end together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ContinuousOptions {
    /// Requests of a repetition for each of those that are under way at once.
    pub requests_each: usize,
    /// Most tokens of a prompt that pass between two steps of the requests that generate.
    pub prompt_piece: usize,
    /// Whether what a slot holds of a prompt's beginning is not computed again.
    pub prefix_reuse: bool,
    /// Tokens with which all prompts of a repetition begin.
    pub shared_tokens: usize,
    /// Whether steps are captured as CUDA graphs and replayed, where the device can.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cuda_graph: bool,
}

/// What is measured of a language model. How it is loaded stands in words, as on the command line, so that a process
/// that goes on with the study knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[non_exhaustive]
pub struct LmOptions {
    /// The model, as [`ModelSource::parse`](candlescope_models::ModelSource::parse) reads it.
    pub model: String,
    /// The device that all cases run on: `cpu`, or `cuda:N` with CUDA's ordinal.
    pub device: String,
    /// Element type of dense weights.
    pub dtype: Option<String>,
    /// Whether a GGUF's quantised weights are widened to `dtype` when it is loaded.
    pub dequantize: bool,
    /// Which implementation runs the model: `auto`, which is the default, `instrumented` or `candle`.
    pub engine: String,
    /// How keys and values are held: `auto` or `q8`; `auto` if `None`.
    pub kv_cache_dtype: Option<String>,
    /// Seed of random weights and prompts.
    pub seed: u64,
    /// The suites that are measured, in the order of [`SuiteName::ALL`] whatever their order here.
    pub suites: Vec<SuiteName>,
    /// The request of the suite `latency`.
    pub latency: Shape,
    /// A file with the prompt of the suite `latency`, in place of random tokens.
    pub prompt_file: Option<PathBuf>,
    /// The request of the suite `throughput`.
    pub throughput: Shape,
    /// Sequences at once of the suite `throughput`.
    pub batches: Vec<usize>,
    /// Whether the sequences of the suite `throughput` are requests that join and leave between steps; they form
    /// batches that begin and end together if `None`.
    pub continuous: Option<ContinuousOptions>,
    /// The lengths of the suite `seqlen`.
    pub seqlen: Grid,
    /// Bytes that a case may need on its device. Without it, what the machine has left; on a GPU there is no limit.
    pub memory_limit: Option<u64>,
}

impl Default for LmOptions {
    fn default() -> Self {
        Self {
            model: candlescope_models::config::EMBEDDED.into(),
            device: "cpu".into(),
            dtype: None,
            dequantize: false,
            engine: candlescope_models::Engine::Auto.as_str().into(),
            kv_cache_dtype: None,
            seed: 42,
            suites: SuiteName::ALL.into(),
            latency: Shape { prompt: 32, output: 64 },
            prompt_file: None,
            throughput: Shape { prompt: 32, output: 64 },
            batches: vec![1, 4, 8, 16, 32],
            continuous: None,
            seqlen: Grid { prompts: vec![10, 50, 200, 1000], outputs: vec![50, 100, 200] },
            memory_limit: None,
        }
    }
}

impl LmOptions {
    /// Short requests, and few of them: for a look at whether all works.
    pub fn quick() -> Self {
        Self {
            latency: Shape { prompt: 16, output: 16 },
            throughput: Shape { prompt: 16, output: 8 },
            batches: vec![1, 2, 4],
            seqlen: Grid { prompts: vec![10, 20, 40], outputs: vec![4, 8] },
            ..Self::default()
        }
    }

    /// The slots that the model needs for the requests of the suite `throughput`; `None` if they form batches.
    pub fn slots(&self) -> Option<SlotOptions> {
        let cuda_graph = self.continuous?.cuda_graph;
        let slots = self.batches.iter().copied().max().unwrap_or(1);
        let context = Some(self.throughput.prompt + self.throughput.output);
        Some(SlotOptions { slots, context, cuda_graph, ..SlotOptions::default() })
    }

    /// Names of the cases, in order.
    pub fn case_ids(&self) -> Vec<CaseId> {
        let id = |suite: SuiteName, shape: Shape, batch: usize| {
            CaseId::new(suite.as_str())
                .param("batch", batch)
                .param("prompt_tokens", shape.prompt)
                .param("output_tokens", shape.output)
        };
        let mut ids = Vec::new();
        for suite in SuiteName::ALL.into_iter().filter(|suite| self.suites.contains(suite)) {
            match suite {
                SuiteName::Latency => ids.push(match &self.prompt_file {
                    None => id(suite, self.latency, 1),
                    // How many tokens the file has is known once the model is loaded.
                    Some(file) => CaseId::new(suite.as_str())
                        .param("batch", 1)
                        .param("prompt_file", file.file_name().unwrap_or_default().to_string_lossy().into_owned())
                        .param("output_tokens", self.latency.output),
                }),
                SuiteName::Throughput => {
                    ids.extend(self.batches.iter().map(|batch| id(suite, self.throughput, *batch)));
                }
                SuiteName::Seqlen => {
                    for &prompt in &self.seqlen.prompts {
                        ids.extend(self.seqlen.outputs.iter().map(|&output| id(suite, Shape { prompt, output }, 1)));
                    }
                }
            }
        }
        ids
    }
}
