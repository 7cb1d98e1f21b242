//! The generation loop: prompt, then one token a step, every step marked as a phase.
//!
//! A request covers one call of [`generate`]. Its `prefill` step contains the prompt's forward pass and the choice of
//! the first token, each `decode` step one forward pass and the choice of one more token: a step is a token (of every
//! sequence in the batch). The choice is a nested `sample` phase. The prompt itself is never recorded.
//!
//! A sequence of a batch that has ended is still computed with the others until the last one ends, because its rows are
//! part of every product; its tokens are discarded. So a step states how many tokens and sequences it processes
//! (`tokens`, `batch`) and how many are needed (`new_tokens`, `sequences`, `context_sum`). FLOPs and bytes are those of
//! all processed rows: a layer does not know which sequence a row belongs to. The same holds of tokens that are looked up
//! ahead (`lookup.rs`): those that turn out wrong are processed and not needed.

mod encoder;
mod generate_error;
mod generate_from;
mod generate_seen;
mod lookup;
mod options;
mod output;
mod streams;

use crate::causal_lm::CausalLm;
use crate::load::{LoadedModel, PromptTooLong};
use crate::sampling::Sampler;
use candlescope_core::llm::{self, Request};
use candlescope_core::{Annotation, Outcome, annotate};
pub use encoder::{Encoding, encode};
pub use generate_error::GenerateError;
pub use generate_from::generate_from;
pub use generate_seen::{generate_seen, see};
use lookup::{cannot_check, checked, proposed};
pub use lookup::{lookup_checks, lookup_steps};
pub use options::{Context, GenerateOptions};
pub use output::{FinishReason, GenerationOutput, Sequence, TokenEvent};
use std::ops::ControlFlow;
use std::time::Instant;
use streams::Streams;

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

fn check(model: &dyn CausalLm, prompts: &[Vec<u32>], options: &GenerateOptions) -> Result<usize, GenerateError> {
    let length = common_length(prompts)?;
    PromptTooLong::check(length, model.max_context())?;
    if prompts.len() > 1 && length > 1 && !model.takes_batches_of_prompts() {
        return Err(GenerateError::BatchOfPrompts(prompts.len()));
    }
    check_tokens(prompts.iter().flatten(), model.vocab_size())?;
    check_options(options)?;
    if options.lookahead > 0 && (prompts.len() > 1 || !options.kv_cache || !options.sampling.is_greedy()) {
        return Err(GenerateError::Options(
            "tokens are looked up for one sequence of the most likely tokens, with a cache: leave lookahead at 0 for others".into(),
        ));
    }
    // Whether anything is looked up depends on the text: it is refused before the first token.
    if options.lookahead > 0 && !model.checks_tokens() {
        return Err(cannot_check());
    }
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
pub(crate) fn check_tokens<'a>(
    tokens: impl IntoIterator<Item = &'a u32>,
    vocabulary: usize,
) -> Result<(), GenerateError> {
    match tokens.into_iter().find(|&&token| token as usize >= vocabulary) {
        Some(&token) => Err(GenerateError::ForeignToken { token, vocabulary }),
        None => Ok(()),
    }
}

pub(crate) fn check_options(options: &GenerateOptions) -> Result<(), GenerateError> {
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
    let sampler = Sampler::new(&options.sampling, options.seed, batch);
    let mut texts: Vec<Vec<u32>> = prompts.to_vec();
    let mut output = Streams::new(context, batch);
    let mut token_times = Vec::with_capacity(most);

    let mut made = 0;
    'steps: while made < most {
        let length = prompt_tokens + made;
        let failed = |cause| GenerateError::Step {
            step: if made == 0 {
                format!("prefill of {prompt_tokens} tokens")
            } else {
                format!("output token {}", made + 1)
            },
            cause,
        };
        // One token comes by itself.
        let most_ahead = if made == 0 { 0 } else { options.lookahead.min(most - made - 1) };
        let ahead = texts.first().map_or(&[][..], |text| proposed(text, most_ahead)).to_vec();
        let phase = if made == 0 {
            llm::prefill(llm::Tokens::new(batch * length).context(length).batch(batch))
        } else {
            llm::decode(llm::Tokens::new(batch + ahead.len()).context(length + ahead.len()).batch(batch))
        };
        let open = output.open();
        // The tokens of each sequence, one after the other.
        let next = if ahead.is_empty() {
            annotate(wanted_of(open, if made == 0 { length } else { 1 }, length));
            let position = if made == 0 || !options.kv_cache { 0 } else { length - 1 };
            vec![model.advance(&texts, position, &sampler).map_err(failed)?]
        } else {
            let mut tokens = checked(model, &texts[0], &ahead, failed)?;
            // Nothing comes behind an end.
            let end = tokens.iter().position(|token| context.stop.contains(token));
            tokens.truncate(end.map_or(tokens.len(), |end| end + 1));
            annotate(wanted_of(open, tokens.len(), length + tokens.len() - 1));
            tokens.into_iter().map(|token| vec![token]).collect()
        };
        request.record_tokens(open * next.len());
        token_times.extend(next.iter().map(|_| Instant::now()));
        drop(phase);
        for next in next {
            for (text, token) in texts.iter_mut().zip(&next) {
                text.push(*token);
            }
            made += 1;
            let wanted = output.take(&next, on_token)?;
            if output.open() == 0 {
                break 'steps;
            }
            if wanted.is_break() {
                limit = FinishReason::Cancelled;
                break 'steps;
            }
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
