//! Why a model cannot be loaded, or a prompt not be passed to it.

use crate::chat::ChatError;
use crate::config::ConfigError;
use crate::hub::HubError;
use crate::tokenizer::TokenizerError;
use crate::weights::WeightError;
use candle_core::DType;
use std::path::PathBuf;

/// Why a model could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "its messages say what the fields are")]
pub enum LoadError {
    /// No configuration has this name, or it lacks dimensions, contradicts itself, or is none that can be built.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Its weights are missing or invalid.
    #[error(transparent)]
    Weights(#[from] WeightError),
    /// A file of the model's directory is missing or invalid.
    #[error("{path} {reason}; a model directory holds config.json, *.safetensors and tokenizer.json", path = path.display())]
    Directory {
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Its tokenizer is invalid.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The model could not be fetched from the hub.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// The element type cannot be used for computing.
    #[error("a model cannot run in {0:?}; pass f32, f16 or bf16")]
    DType(DType),
    /// The engine cannot run this.
    #[error("{0}")]
    Engine(String),
    /// A model with an encoder, where one that only continues a text is wanted. [`AnyModel::load`](crate::AnyModel::load) loads it.
    #[error(
        "`{source_name}` is of the architecture {architecture}, which has an encoder, and this takes only decoders, models \
         that continue a text; `candlescope profile --model {source_name}` runs it"
    )]
    WithEncoder {
        /// The model, as it was named.
        source_name: String,
        architecture: String,
    },
    /// There is no room for the slots.
    #[error("sequences cannot be held in slots: {}", crate::candle_message(.0))]
    Slots(candle_core::Error),
    /// A library panicked on the model's files.
    #[error(
        "loading `{source_name}` failed: a library panicked ({message}); the files are damaged, or of a kind that it \
         cannot read"
    )]
    Panicked {
        /// The model, as it was named.
        source_name: String,
        message: String,
    },
}

/// Why a prompt could not be encoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "its messages say what the fields are")]
pub enum PromptError {
    /// The model came without a tokenizer.
    #[error("{model} has no tokenizer ({reason}); give a number of prompt tokens in place of a text")]
    NoTokenizer { model: String, reason: String },
    /// The model came without a chat template.
    #[error("{0} has no chat template; pass the prompt without one")]
    NoTemplate(String),
    /// The text is empty.
    #[error("the prompt is empty; pass a text, or a number of prompt tokens of at least 1")]
    Empty,
    /// The tokenizer could not make tokens of the text.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The chat template could not be rendered with the messages.
    #[error(transparent)]
    Chat(#[from] ChatError),
}

/// A prompt does not fit the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the prompt has {prompt} tokens and the model's context is {context}: with one token to generate at most {most} fit; \
     shorten the prompt by {over} tokens, use a model with a longer context, or raise --max-model-len where it is given",
    most = context - 1,
    over = prompt.saturating_add(1) - context
)]
#[non_exhaustive]
pub struct PromptTooLong {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Tokens of a sequence that the model, or its slot, holds at most, generated ones included.
    pub context: usize,
}

impl PromptTooLong {
    /// Fails if a prompt of `prompt` tokens leaves no room for one more in `context`.
    pub(crate) const fn check(prompt: usize, context: usize) -> Result<(), Self> {
        if prompt < context { Ok(()) } else { Err(Self { prompt, context }) }
    }
}

/// A source does not fit the model's encoder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the input has {positions} positions and the model's encoder takes at most {most}: shorten it by {over}",
    over = positions - most)]
#[non_exhaustive]
pub struct SourceTooLong {
    /// Positions of the input: tokens, or two frames of sound each.
    pub positions: usize,
    /// Most that the encoder takes.
    pub most: usize,
}

impl SourceTooLong {
    /// Fails if the encoder does not take `positions`.
    pub(crate) const fn check(positions: usize, most: usize) -> Result<(), Self> {
        if positions <= most { Ok(()) } else { Err(Self { positions, most }) }
    }
}
