//! What is generated.

use std::time::{Duration, Instant};

/// Why a sequence ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// An end token was chosen; it is the last of the sequence's tokens.
    Stop,
    /// `max_new_tokens` were generated, and the last of them is no end token.
    Length,
    /// The context is full.
    Context,
    /// The caller stopped the generation.
    Cancelled,
}

impl FinishReason {
    /// `stop`, `length`, `context` or `cancelled`.
    pub const fn as_str(self) -> &'static str {
        match self {
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
            FinishReason::Context => "context",
            FinishReason::Cancelled => "cancelled",
        }
    }
}

/// One generated sequence, without its prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    /// Generated tokens, an end token included.
    pub tokens: Vec<u32>,
    /// Their text; empty if there is no tokenizer.
    pub text: String,
    /// Why it ended; sequences of a batch may have different reasons.
    pub finish: FinishReason,
}

/// A new token, passed to the caller of [`generate`](super::generate) as soon as it exists.
#[derive(Debug)]
pub struct TokenEvent<'a> {
    /// Sequence of the batch.
    pub sequence: usize,
    /// Number of the token in its sequence, from 0.
    pub index: usize,
    /// Number of the token in the vocabulary.
    pub token: u32,
    /// Text that it completes; empty while a character is incomplete, and if there is no tokenizer.
    pub text: &'a str,
}

/// The result of [`generate`](super::generate).
#[derive(Debug, Clone)]
pub struct GenerationOutput {
    /// One for each prompt.
    pub sequences: Vec<Sequence>,
    /// Tokens of each prompt.
    pub prompt_tokens: usize,
    /// When the request began.
    pub started: Instant,
    /// When each step's tokens existed on the host; the first is that of prefill.
    pub token_times: Vec<Instant>,
    /// When the request ended.
    pub ended: Instant,
}

impl GenerationOutput {
    /// Request start to first token.
    pub fn ttft(&self) -> Option<Duration> {
        self.token_times.first().map(|first| *first - self.started)
    }

    /// Gaps between consecutive tokens.
    pub fn itl(&self) -> Vec<Duration> {
        self.token_times.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    /// Mean time per token after the first; `None` for a single token.
    pub fn tpot(&self) -> Option<Duration> {
        let (first, last) = (self.token_times.first()?, self.token_times.last()?);
        let steps = u32::try_from(self.token_times.len() - 1).ok().filter(|n| *n > 0)?;
        Some((*last - *first) / steps)
    }

    /// Tokens generated, all sequences together.
    pub fn output_tokens(&self) -> usize {
        self.sequences.iter().map(|s| s.tokens.len()).sum()
    }
}
