//! The loop of models that encode a source and write a text about it.
//!
//! A request covers one call of [`generate_from`]. Its `encode` step passes the source through the encoder, `prefill`
//! the tokens that every text begins with through the decoder, and each `decode` step one token more. The first output
//! token is chosen at the end of `prefill`. Whisper's decoder keeps nothing of the text: its steps pass all of it.

use super::streams::Streams;
use super::{
    Context, FinishReason, GenerateError, GenerateOptions, GenerationOutput, TokenEvent, check_options, check_tokens,
    wanted_of,
};
use crate::encoder_decoder::{EncoderDecoder, Source};
use crate::load::{LoadedEncoderDecoder, SourceTooLong, random_tokens};
use crate::sampling::{Sampler, pass};
use candle_core::Tensor;
use candlescope_core::llm::{self, Request};
use candlescope_core::{Outcome, annotate};
use std::ops::ControlFlow;
use std::time::Instant;

impl LoadedEncoderDecoder {
    /// `batch` times the same tokens as a source.
    ///
    /// # Errors
    /// If they are not of the model's vocabulary, or too many, or the tensor cannot be made.
    pub fn text(&self, tokens: &[u32], batch: usize) -> Result<Source, GenerateError> {
        let dimensions = self.model.dimensions();
        SourceTooLong::check(tokens.len(), dimensions.source_positions)?;
        check_tokens(tokens, dimensions.vocab_size)?;
        let made =
            Tensor::new(tokens, self.model.device()).and_then(|one| one.unsqueeze(0)?.repeat((batch, 1))?.contiguous());
        made.map(Source::Text).map_err(|cause| GenerateError::Step { step: "making the source".into(), cause })
    }

    /// A source of `positions` positions and `batch` sequences: seeded random tokens, or random frames of sound, which
    /// are uniform in the range that a normalised spectrum has. Fails, before anything is allocated, if the model's
    /// encoder does not take so many.
    ///
    /// # Errors
    /// If there are too many positions, or the tensor cannot be made.
    pub fn random_source(&self, positions: usize, batch: usize, seed: u64) -> Result<Source, GenerateError> {
        let dimensions = self.model.dimensions();
        SourceTooLong::check(positions, dimensions.source_positions)?;
        let Some(bins) = self.model.mel_bins() else {
            let tokens = random_tokens(positions, dimensions.vocab_size, &self.info.eos_tokens, seed);
            return self.text(&tokens, batch);
        };
        use rand::{Rng, SeedableRng, rngs::StdRng};
        let mut rng = StdRng::seed_from_u64(seed);
        let values: Vec<f32> = (0..bins * 2 * positions).map(|_| rng.random_range(-1.0f32..1.0)).collect();
        let made = Tensor::from_vec(values, (1, bins, 2 * positions), self.model.device())
            .and_then(|one| one.repeat((batch, 1, 1))?.contiguous());
        made.map(Source::Sound).map_err(|cause| GenerateError::Step { step: "making the sound".into(), cause })
    }
}

/// Writes a text about each sequence of `source`, and calls `on_token` for each new token.
///
/// # Errors
/// If the source does not fit the model, an option is invalid, or a step fails.
pub fn generate_from(
    loaded: &mut LoadedEncoderDecoder,
    source: &Source,
    options: &GenerateOptions,
    on_token: &mut dyn FnMut(TokenEvent<'_>),
) -> Result<GenerationOutput, GenerateError> {
    let LoadedEncoderDecoder { model, tokenizer, info, .. } = loaded;
    let context = Context::of(info, tokenizer.as_ref(), options);
    generate_from_with(model.as_mut(), &context, source, options, on_token)
}

/// [`generate_from`] for any model.
///
/// # Errors
/// As for [`generate_from`].
fn generate_from_with(
    model: &mut dyn EncoderDecoder,
    context: &Context<'_>,
    source: &Source,
    options: &GenerateOptions,
    on_token: &mut dyn FnMut(TokenEvent<'_>),
) -> Result<GenerationOutput, GenerateError> {
    check_options(options)?;
    if options.lookahead > 0 {
        return Err(GenerateError::Options("tokens are looked up for decoders alone: leave lookahead at 0".into()));
    }
    let encoding = |cause| GenerateError::Step { step: "the encoder's pass".into(), cause };
    let (batch, positions) = source.size().map_err(encoding)?;
    if batch == 0 || positions == 0 {
        return Err(GenerateError::EmptyPrompt);
    }
    let dimensions = model.dimensions().clone();
    SourceTooLong::check(positions, dimensions.source_positions)?;
    let start = dimensions.start;
    let most = options.max_new_tokens.min(dimensions.positions.saturating_sub(start.len()));
    if most == 0 {
        let positions = dimensions.positions;
        return Err(GenerateError::Options(format!(
            "a text begins with {} tokens and has room for {positions}",
            start.len()
        )));
    }
    let limit = if most < options.max_new_tokens { FinishReason::Context } else { FinishReason::Length };
    model.reset();

    let started = Instant::now();
    let request = Request::new(&options.operation, context.name).prompt_tokens(positions).batch(batch);
    // What holds wherever this ends with an error.
    request.outcome(Outcome::Failed);
    let in_request = request.enter();
    {
        let _step = llm::encode(llm::Tokens::new(batch * positions).context(positions).batch(batch));
        annotate(wanted_of(batch, positions, positions));
        model.encode(source).map_err(encoding)?;
        // So that the phase ends when the device has finished, and its work is not part of the prefill.
        model.device().synchronize().map_err(encoding)?;
    }
    let sampler = Sampler::new(&options.sampling, options.seed, batch);
    let mut texts: Vec<Vec<u32>> = vec![start.clone(); batch];
    let mut output = Streams::new(context, batch);
    let mut token_times = Vec::with_capacity(most);
    let incremental = options.kv_cache && model.keeps_keys();
    let device = model.device().clone();

    for step in 0..most {
        let length = start.len() + step;
        let failed = |cause| GenerateError::Step { step: format!("output token {}", step + 1), cause };
        let position = if step > 0 && incremental { length - 1 } else { 0 };
        let new = length - position;
        let tokens = llm::Tokens::new(batch * new).context(length).batch(batch);
        let phase = if step == 0 { llm::prefill(tokens) } else { llm::decode(tokens) };
        let open = output.open();
        annotate(wanted_of(open, if step == 0 { length } else { 1 }, length));
        let forward = |tokens: &Tensor| model.decode(tokens, position);
        let next = pass(forward, &device, &sampler, &texts, position).map_err(failed)?;
        request.record_tokens(open);
        token_times.push(Instant::now());
        drop(phase);
        for (text, token) in texts.iter_mut().zip(&next) {
            text.push(*token);
        }
        // The caller of this loop does not stop it.
        let _ = output.take(&next, &mut |event| {
            on_token(event);
            ControlFlow::Continue(())
        })?;
        if output.open() == 0 {
            break;
        }
    }
    let sequences = output.finish(limit)?;
    request.outcome(Outcome::Done);
    drop(in_request);
    Ok(GenerationOutput { sequences, prompt_tokens: positions, started, token_times, ended: Instant::now() })
}
