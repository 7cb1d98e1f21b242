//! Why generation failed.

use crate::candle_message;
use crate::load::{PromptTooLong, SourceTooLong};
use crate::tokenizer::TokenizerError;

/// Why generation was refused before its first step, or failed in one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "its messages say what the fields are")]
pub enum GenerateError {
    /// The prompt has no tokens.
    #[error("the prompt is empty; pass a text, or a number of prompt tokens of at least 1")]
    EmptyPrompt,
    /// A prompt does not fit the model's context.
    #[error(transparent)]
    PromptTooLong(#[from] PromptTooLong),
    /// Prompts of a batch differ in length.
    #[error(
        "prompts of a batch must have equal lengths, these have {0} and {1} tokens; generate them one after the other"
    )]
    UnequalPrompts(usize, usize),
    /// The model processes one prompt at a time.
    #[error("this model cannot process a batch of {0} prompts; use a batch of 1 or the instrumented model")]
    BatchOfPrompts(usize),
    /// A token of the prompt is not in the vocabulary.
    #[error("prompt token {token} is not in the vocabulary of {vocabulary}; use the model's own tokenizer")]
    ForeignToken {
        token: u32,
        /// Entries of the vocabulary.
        vocabulary: usize,
    },
    /// A source does not fit the encoder.
    #[error(transparent)]
    #[doc(hidden)]
    SourceTooLong(#[from] SourceTooLong),
    /// An option is invalid.
    #[error("invalid option: {0}")]
    Options(String),
    /// A pass of the model, the choice of a token, or the making of its input failed.
    #[error("generation failed at {step}: {}", candle_message(.cause))]
    Step { step: String, cause: candle_core::Error },
    /// Tokens could not be decoded.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
}
