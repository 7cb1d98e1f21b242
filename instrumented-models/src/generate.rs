//! The generation loop: prompt, then one token a step, every step marked as a phase.
//!
//! A request covers one call of [`generate`]. Its `prefill` step contains the prompt's forward pass and the choice of
//! the first token, each `decode` step one forward pass and the choice of one more token: a step is a token (of every
//! sequence in the batch). The choice is a nested `sample` phase. The prompt itself is never recorded.
//!
//! A sequence of a batch that has ended is still computed with the others until the last one ends, because its rows are
//! part of every product; its tokens are discarded. So a step states how many tokens and sequences it processes
//! (`tokens`, `batch`) and how many are needed (`new_tokens`, `sequences`, `context_sum`). FLOPs and bytes are those of
//! all processed rows: a layer does not know which sequence a row belongs to.

mod encoder;
mod encoder_decoder;
mod streams;
mod vision;

use crate::candle_message;
use crate::causal_lm::CausalLm;
use crate::load::{LoadedModel, PromptTooLong, SourceTooLong};
use crate::sampling::{Sampler, SamplingOptions};
use candle_core::{Device, Tensor};
use candlescope_core::llm::{self, Request};
use candlescope_core::{Annotation, Outcome, annotate};
pub use encoder::{Encoding, encode};
pub use encoder_decoder::{generate_from, generate_from_with};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};
use streams::Streams;
pub use vision::{generate_seen, see};

/// How to generate.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerateOptions {
    /// Most tokens to generate for each sequence.
    pub max_new_tokens: usize,
    /// How tokens are chosen.
    pub sampling: SamplingOptions,
    /// Seed of sampled generation.
    pub seed: u64,
    /// Go on past the model's end tokens: for measurements of a given length.
    pub ignore_eos: bool,
    /// Tokens that end a sequence besides the model's own.
    pub stop_tokens: Vec<u32>,
    /// Keep keys and values. Without them, every step processes the whole text again.
    pub kv_cache: bool,
    /// `gen_ai.operation.name` of the request: `text_completion` or `chat`.
    pub operation: String,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self {
            max_new_tokens: 64,
            sampling: SamplingOptions::default(),
            seed: 42,
            ignore_eos: false,
            stop_tokens: Vec::new(),
            kv_cache: true,
            operation: "text_completion".into(),
        }
    }
}

/// Why a sequence ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// An end token was chosen; it is the last of the sequence's tokens.
    Stop,
    /// `max_new_tokens` were generated.
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

/// One generated sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    /// Generated tokens, an end token included.
    pub tokens: Vec<u32>,
    /// Their text; empty if there is no tokenizer.
    pub text: String,
    /// Why it ended.
    pub finish: FinishReason,
}

/// A new token, passed to the caller of [`generate`] as soon as it exists.
#[derive(Debug)]
pub struct TokenEvent<'a> {
    /// Sequence of the batch.
    pub sequence: usize,
    /// Number of the token in its sequence, from 0.
    pub index: usize,
    /// The token.
    pub token: u32,
    /// Text that it completes; empty while a character is incomplete, and if there is no tokenizer.
    pub text: &'a str,
}

/// The result of [`generate`].
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

/// Why generation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
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
        /// The token.
        token: u32,
        /// Entries of the vocabulary.
        vocabulary: usize,
    },
    /// A source does not fit the encoder.
    #[error(transparent)]
    SourceTooLong(#[from] SourceTooLong),
    /// An option is invalid.
    #[error("invalid option: {0}")]
    Options(String),
    /// A step failed.
    #[error("generation failed at {step}: {}", candle_message(.cause))]
    Step {
        /// Which step.
        step: String,
        /// candle's error.
        cause: candle_core::Error,
    },
    /// Tokens could not be decoded.
    #[error(transparent)]
    Tokenizer(#[from] crate::tokenizer::TokenizerError),
}

/// Continues `prompts`, tokens of equal length, and calls `on_token` for each new token.
pub fn generate(
    loaded: &mut LoadedModel,
    prompts: &[Vec<u32>],
    options: &GenerateOptions,
    on_token: &mut dyn FnMut(TokenEvent<'_>),
) -> Result<GenerationOutput, GenerateError> {
    let LoadedModel { model, tokenizer, info, .. } = loaded;
    let context = Context::of(info, tokenizer.as_ref(), options);
    generate_with(model.as_mut(), &context, prompts, options, on_token)
}

/// As [`generate`], for a request that exists already: a server makes it when the call arrives, so that the wait for
/// the model is part of it. Ends with [`FinishReason::Cancelled`] as soon as `on_token` returns a break.
///
/// # Errors
/// As for [`generate`].
pub fn generate_for(
    loaded: &mut LoadedModel,
    request: Request,
    prompts: &[Vec<u32>],
    options: &GenerateOptions,
    on_token: &mut dyn FnMut(TokenEvent<'_>) -> ControlFlow<()>,
) -> Result<GenerationOutput, GenerateError> {
    let LoadedModel { model, tokenizer, info, .. } = loaded;
    let context = Context::of(info, tokenizer.as_ref(), options);
    run(model.as_mut(), &context, || request, prompts, options, on_token)
}

/// What the loop needs to know besides the model.
#[derive(Debug)]
pub struct Context<'a> {
    /// The model's name in the request.
    pub name: &'a str,
    /// Tokens that end a sequence.
    pub stop: Vec<u32>,
    /// Decodes tokens to text.
    pub tokenizer: Option<&'a crate::tokenizer::Tokenizer>,
}

impl<'a> Context<'a> {
    fn of(
        info: &'a crate::info::ModelInfo,
        tokenizer: Option<&'a crate::tokenizer::Tokenizer>,
        options: &GenerateOptions,
    ) -> Self {
        let mut stop = options.stop_tokens.clone();
        if !options.ignore_eos {
            stop.extend(&info.eos_tokens);
        }
        Self { name: &info.name, stop, tokenizer }
    }
}

fn check(model: &dyn CausalLm, prompts: &[Vec<u32>], options: &GenerateOptions) -> Result<usize, GenerateError> {
    let length = common_length(prompts)?;
    PromptTooLong::check(length, model.max_context())?;
    if prompts.len() > 1 && length > 1 && !model.takes_batches_of_prompts() {
        return Err(GenerateError::BatchOfPrompts(prompts.len()));
    }
    check_tokens(prompts.iter().flatten(), model.vocab_size())?;
    check_options(options)?;
    Ok(length)
}

/// Tokens of each text of a batch. Fails if there are none, or not equally many.
fn common_length(texts: &[Vec<u32>]) -> Result<usize, GenerateError> {
    let length = texts.first().map_or(0, Vec::len);
    if length == 0 {
        return Err(GenerateError::EmptyPrompt);
    }
    match texts.iter().find(|text| text.len() != length) {
        Some(other) => Err(GenerateError::UnequalPrompts(length, other.len())),
        None => Ok(length),
    }
}

/// Fails if a token is not in the vocabulary.
fn check_tokens<'a>(tokens: impl IntoIterator<Item = &'a u32>, vocabulary: usize) -> Result<(), GenerateError> {
    match tokens.into_iter().find(|&&token| token as usize >= vocabulary) {
        Some(&token) => Err(GenerateError::ForeignToken { token, vocabulary }),
        None => Ok(()),
    }
}

fn check_options(options: &GenerateOptions) -> Result<(), GenerateError> {
    if options.max_new_tokens == 0 {
        return Err(GenerateError::Options("max-new-tokens must be at least 1".into()));
    }
    options.sampling.check().map_err(GenerateError::Options)
}

/// [`generate`] for any model.
pub fn generate_with(
    model: &mut dyn CausalLm,
    context: &Context<'_>,
    prompts: &[Vec<u32>],
    options: &GenerateOptions,
    on_token: &mut dyn FnMut(TokenEvent<'_>),
) -> Result<GenerationOutput, GenerateError> {
    let request = || Request::new(&options.operation, context.name);
    run(model, context, request, prompts, options, &mut |token| {
        on_token(token);
        ControlFlow::Continue(())
    })
}

/// If the input is invalid, no request is made, unless there is one already.
fn run(
    model: &mut dyn CausalLm,
    context: &Context<'_>,
    request: impl FnOnce() -> Request,
    prompts: &[Vec<u32>],
    options: &GenerateOptions,
    on_token: &mut dyn FnMut(TokenEvent<'_>) -> ControlFlow<()>,
) -> Result<GenerationOutput, GenerateError> {
    let prompt_tokens = check(model, prompts, options)?;
    let batch = prompts.len();
    let most = options.max_new_tokens.min(model.max_context() - prompt_tokens);
    let mut limit = if most < options.max_new_tokens { FinishReason::Context } else { FinishReason::Length };
    model.reset();
    // The last generated token is not passed to the model.
    model.reserve(prompt_tokens + most - 1);

    let started = Instant::now();
    let request = request().prompt_tokens(prompt_tokens).batch(batch);
    // What holds wherever this ends with an error.
    request.outcome(Outcome::Failed);
    let in_request = request.enter();
    let mut sampler = Sampler::new(&options.sampling, options.seed, batch);
    let mut texts: Vec<Vec<u32>> = prompts.to_vec();
    let mut output = Streams::new(context, batch);
    let mut token_times = Vec::with_capacity(most);
    let device = model.device().clone();

    for step in 0..most {
        let length = prompt_tokens + step;
        let failed = |cause| GenerateError::Step {
            step: if step == 0 {
                format!("prefill of {prompt_tokens} tokens")
            } else {
                format!("output token {}", step + 1)
            },
            cause,
        };
        let phase = if step == 0 {
            llm::prefill(llm::Tokens::new(batch * length).context(length).batch(batch))
        } else {
            llm::decode(llm::Tokens::new(batch).context(length).batch(batch))
        };
        let open = output.open();
        annotate(wanted_of(open, if step == 0 { length } else { 1 }, length));
        let position = if step == 0 || !options.kv_cache { 0 } else { length - 1 };
        let forward = |tokens: &Tensor| model.forward(tokens, position);
        let next = advance(forward, &device, &mut sampler, &texts, position).map_err(failed)?;
        request.record_tokens(open);
        token_times.push(Instant::now());
        drop(phase);
        for (text, token) in texts.iter_mut().zip(&next) {
            text.push(*token);
        }
        let wanted = output.take(&next, on_token)?;
        if output.open() == 0 {
            break;
        }
        if wanted.is_break() {
            limit = FinishReason::Cancelled;
            break;
        }
    }
    let sequences = output.finish(limit)?;
    request.outcome(if limit == FinishReason::Cancelled { Outcome::Cancelled } else { Outcome::Done });
    drop(in_request);
    Ok(GenerationOutput { sequences, prompt_tokens, started, token_times, ended: Instant::now() })
}

/// The needed work of a step: `new` tokens for each of the `open` sequences that have not ended, up to a context of
/// `length`. All have equal lengths.
fn wanted_of(open: usize, new: usize, length: usize) -> Annotation {
    Annotation::new().new_tokens(open * new).sequences(open).context_sum((open * length) as u64)
}

/// One forward pass over the tokens from `position` on, and the choice of the next tokens.
fn advance(
    forward: impl FnOnce(&Tensor) -> candle_core::Result<Tensor>,
    device: &Device,
    sampler: &mut Sampler,
    texts: &[Vec<u32>],
    position: usize,
) -> candle_core::Result<Vec<u32>> {
    let new = texts.first().map_or(0, |t| t.len() - position);
    let flat: Vec<u32> = texts.iter().flat_map(|t| &t[position..]).copied().collect();
    let tokens = Tensor::from_vec(flat, (texts.len(), new), device)?;
    let logits = forward(&tokens)?;
    let _sampling = llm::sample();
    sampler.next(&logits, texts)
}
