//! A request on its way through the server: what was asked, what becomes of it, and why it failed.

use candlescope::llm::Request;
use candlescope_models::chat::{ChatError, Message};
use candlescope_models::{FinishReason, GenerateError, GenerateOptions, LoadedModel, PromptError};
use std::panic::AssertUnwindSafe;
use std::time::Duration;
use tokio::sync::mpsc;

/// The prompt of a client.
#[derive(Debug)]
pub(crate) enum Prompt {
    Text(String),
    Tokens(Vec<u32>),
    Chat(Vec<Message>),
}

impl Prompt {
    /// Its tokens for this model.
    pub(crate) fn tokens(self, model: &LoadedModel) -> Result<Vec<u32>, PromptError> {
        match self {
            Self::Text(text) => model.encode_prompt(&text),
            Self::Tokens(tokens) => Ok(tokens),
            Self::Chat(messages) => model.encode_chat(&messages),
        }
    }
}

/// The events of a request, in this order: tokens, then one of the others.
#[derive(Debug)]
pub(crate) enum Event {
    Token(String),
    Done(Usage),
    Failed(Failure),
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The request cannot be fulfilled: the client's error.
    Request(String),
    /// The model failed.
    Model(String),
    /// It took longer than this.
    Late(Duration),
}

impl From<PromptError> for Failure {
    fn from(error: PromptError) -> Self {
        let at_the_model = matches!(error, PromptError::Tokenizer(_) | PromptError::Chat(ChatError::Host(_)));
        let message = format!("{:#}", anyhow::Error::from(error));
        if at_the_model { Self::Model(message) } else { Self::Request(message) }
    }
}

impl From<GenerateError> for Failure {
    fn from(error: GenerateError) -> Self {
        let at_the_model = matches!(error, GenerateError::Step { .. } | GenerateError::Tokenizer(_));
        let message = format!("{:#}", anyhow::Error::from(error));
        if at_the_model { Self::Model(message) } else { Self::Request(message) }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: usize,
    /// Tokens of the prompt whose keys and values were there already.
    pub(crate) cached_tokens: usize,
    pub(crate) completion_tokens: usize,
    pub(crate) finish: FinishReason,
}

/// One request on its way to a worker. Its span was made when it arrived, so the wait is part of it.
pub(crate) struct Job {
    pub(crate) request: Request,
    pub(crate) prompt: Prompt,
    pub(crate) options: GenerateOptions,
    /// Large enough for all events of the request, so that a slow client holds up nobody. Closed when the client has
    /// gone.
    pub(crate) events: mpsc::Sender<Event>,
}

/// A request that makes the model panic must not end the worker: the next one begins with an empty cache. (A panic on
/// one of candle's own threads may leave candle in a bad state; further requests then get candle's errors.)
pub(crate) fn unless_it_panics<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    std::panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(Failure::Model(format!("the model panicked: {}", message.unwrap_or("the server's log says more"))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_model_is_a_failure_of_one_request() {
        let failed = unless_it_panics::<()>(|| panic!("index {} out of bounds", 3));
        assert_eq!(failed, Err(Failure::Model("the model panicked: index 3 out of bounds".to_string())));
        assert_eq!(unless_it_panics(|| Ok(1)), Ok(1));
    }

    #[test]
    fn whose_mistake_it_is() {
        assert!(matches!(GenerateError::EmptyPrompt.into(), Failure::Request(_)));
        assert!(matches!(PromptError::Empty.into(), Failure::Request(_)));
        let cause = candle_core::Error::Msg("out of memory".to_string());
        let step = GenerateError::Step { step: "output token 3".to_string(), cause };
        assert_eq!(
            Failure::from(step),
            Failure::Model("generation failed at output token 3: out of memory".to_string())
        );
    }
}
