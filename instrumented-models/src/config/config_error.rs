//! Names of configurations, and why one cannot be had.

use candlescope_core::nearest;

/// Name of the tiny model made in the process.
pub const EMBEDDED: &str = "embedded";

/// Named configurations of decoders, `config:NAME`: true sizes with random weights, and the embedded model.
pub const NAMED: &[&str] = &[
    "smollm2-135m",
    "tinyllama-1.1b",
    "qwen2.5-0.5b",
    "qwen2.5-7b",
    "qwen3-0.6b",
    "llama-3-8b",
    "distilgpt2",
    "gpt2",
    "gpt2-medium",
    "gpt2-large",
    "gpt2-xl",
    EMBEDDED,
];

/// Named configurations of models with an encoder, which the engine `candle` runs: `config:NAME`.
pub const NAMED_WITH_ENCODER: &[&str] = &["t5-small", "t5-base", "bert-base", "minilm", "whisper-tiny", "paddleocr-vl"];

/// Names of all configurations, those of models with an encoder included.
fn all_names() -> Vec<&'static str> {
    [NAMED, NAMED_WITH_ENCODER].concat()
}

pub(super) fn suggest(wanted: &str) -> String {
    nearest::suggest(wanted, all_names())
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "its messages say what the fields are")]
pub enum ConfigError {
    /// The name is not in [`NAMED`].
    #[error("no configuration is named `{name}`{suggestion}; known are {known}", known = all_names().join(", "))]
    UnknownName {
        /// The name that was given.
        name: String,
        /// ` (did you mean …?)` or nothing.
        suggestion: String,
    },
    /// The name is in [`NAMED_WITH_ENCODER`], and dimensions of a decoder are wanted.
    #[error(
        "`config:{name}` has an encoder, and this takes only decoders, models that continue a text; \
         `candlescope profile --model config:{name}` runs it"
    )]
    WithEncoder {
        /// The name that was given.
        name: String,
    },
    /// `config.json` lacks a field or has a wrong value in it.
    #[error(
        "`{field}` is missing from config.json or is not {expected}; take config.json from the model's own directory"
    )]
    Field {
        /// Name of the field.
        field: String,
        /// What it should be.
        expected: &'static str,
    },
    /// The metadata of a GGUF file lacks something.
    #[error("it lacks {what}; the file is incomplete: convert the model again, or take another one")]
    Lacks { what: String },
    /// The model's architecture is not one of ours.
    #[error("architecture `{found}` is not supported; supported are {supported}")]
    Architecture {
        /// The value in the file.
        found: String,
        supported: String,
    },
    /// The architecture is ours, but this variant of it is not.
    #[error("{what} is not supported; {remedy}")]
    Unsupported {
        what: String,
        /// What to do instead.
        remedy: &'static str,
    },
    /// A dimension is larger than in any real model.
    #[error("{name} is {value}, more than the limit of {limit}; the file is damaged or malicious")]
    TooLarge {
        name: &'static str,
        /// The value in the file.
        value: usize,
        limit: usize,
    },
    /// candle's reader refuses `config.json`.
    #[error("config.json is not what candle reads: {0}; take it from the model's own directory")]
    Unreadable(String),
    /// Dimensions contradict each other.
    #[error("the dimensions do not fit together: {0}")]
    Inconsistent(String),
}
