//! What `profile` runs: requests to a model of any kind.

use crate::options::{Options, Prompt};
use crate::progress::Progress;
use anyhow::{Result, anyhow, bail};
use candlescope_models::chat::Message;
use candlescope_models::{
    AnyModel, Encoding, GenerateOptions, GenerationOutput, LoadedEncoder, LoadedEncoderDecoder, LoadedModel,
    LoadedVision, ModelSource, Picture, SamplingOptions, candle_message, encode, generate, generate_from,
    generate_seen, see,
};

/// Tokens of the prompt of a model without a tokenizer, unless told otherwise.
const RANDOM_TOKENS: usize = 128;

/// The same about an image, which has tokens of its own: a task such as `OCR:` is as short.
const RANDOM_TASK: usize = 8;

/// What one request yielded.
pub(crate) enum Output {
    /// Sequences of tokens.
    Text(GenerationOutput),
    /// A vector for each text.
    Vectors(Encoding),
}

impl Output {
    /// Tokens of the prompt, or positions of the source.
    pub(crate) fn prompt_tokens(&self) -> usize {
        match self {
            Output::Text(text) => text.prompt_tokens,
            Output::Vectors(vectors) => vectors.tokens,
        }
    }

    /// Why the first sequence ended, if tokens were generated.
    pub(crate) fn finish_reason(&self) -> Option<&'static str> {
        match self {
            Output::Text(text) => text.sequences.first().map(|sequence| sequence.finish.as_str()),
            Output::Vectors(_) => None,
        }
    }
}

/// Runs all requests; those of the warm-up are not returned.
pub(crate) fn run(
    model: AnyModel,
    source: &ModelSource,
    picture: Option<&Picture>,
    options: &Options,
    progress: &Progress,
) -> Result<Vec<Output>> {
    if picture.is_some() && !matches!(model, AnyModel::Vision(_)) {
        bail!(
            "{} looks at no images: leave --image out, or choose a model that does, such as config:paddleocr-vl",
            model.info().name
        );
    }
    match model {
        AnyModel::Vision(mut model) => vision(&mut model, source, picture, options, progress),
        AnyModel::Decoder(mut model) => decoder(&mut model, source, options, progress),
        AnyModel::EncoderDecoder(mut model) => encoder_decoder(&mut model, source, options, progress),
        AnyModel::Encoder(model) => encoder(&model, source, options, progress),
    }
}

/// `config:NAME` has the shape of a model but no tokenizer: random tokens replace the default prompt.
fn needs_random(source: &ModelSource, has_tokenizer: bool) -> bool {
    !has_tokenizer && matches!(source, ModelSource::Config(_))
}

fn decoder(
    model: &mut LoadedModel,
    source: &ModelSource,
    options: &Options,
    progress: &Progress,
) -> Result<Vec<Output>> {
    let prompt = match &options.prompt {
        Prompt::RandomTokens(n) => model.random_prompt(*n, options.seed)?,
        Prompt::Text(text) if options.chat => model.encode_chat(&[Message::new("user", text)])?,
        Prompt::Text(_) if needs_random(source, model.tokenizer.is_some()) => {
            model.random_prompt(RANDOM_TOKENS, options.seed)?
        }
        Prompt::Text(text) => model.encode_prompt(text)?,
    };
    let (prompts, how) = (vec![prompt; options.batch], generation(options));
    requests(options, progress, options.max_new_tokens, || {
        let output = generate(model, &prompts, &how, &mut |token| {
            if token.sequence == 0 {
                progress.advance();
            }
        })?;
        Ok(Output::Text(output))
    })
}

fn encoder_decoder(
    model: &mut LoadedEncoderDecoder,
    source: &ModelSource,
    options: &Options,
    progress: &Progress,
) -> Result<Vec<Output>> {
    refuse_chat(options, &model.info.name)?;
    let most = model.source_positions();
    let input = match &options.prompt {
        Prompt::RandomTokens(n) => model.random_source(*n, options.batch, options.seed)?,
        // A text cannot be heard: the longest sound there is, as whisper itself pads every sound to that.
        Prompt::Text(_) if model.reads_sound() => model.random_source(most, options.batch, options.seed)?,
        Prompt::Text(_) if needs_random(source, model.tokenizer.is_some()) => {
            model.random_source(RANDOM_TOKENS.min(most), options.batch, options.seed)?
        }
        Prompt::Text(text) => model.text(&model.encode_prompt(text)?, options.batch)?,
    };
    let how = generation(options);
    requests(options, progress, options.max_new_tokens, || {
        let output = generate_from(model, &input, &how, &mut |token| {
            if token.sequence == 0 {
                progress.advance();
            }
        })?;
        Ok(Output::Text(output))
    })
}

fn encoder(model: &LoadedEncoder, source: &ModelSource, options: &Options, progress: &Progress) -> Result<Vec<Output>> {
    refuse_chat(options, &model.info.name)?;
    let prompt = match &options.prompt {
        Prompt::RandomTokens(n) => model.random_prompt(*n, options.seed)?,
        Prompt::Text(_) if needs_random(source, model.tokenizer.is_some()) => {
            model.random_prompt(RANDOM_TOKENS.min(model.info.context_length), options.seed)?
        }
        Prompt::Text(text) => model.encode_prompt(text)?,
    };
    let prompts = vec![prompt; options.batch];
    requests(options, progress, 1, || Ok(Output::Vectors(encode(model, &prompts)?)))
}

fn vision(
    model: &mut LoadedVision,
    source: &ModelSource,
    picture: Option<&Picture>,
    options: &Options,
    progress: &Progress,
) -> Result<Vec<Output>> {
    refuse_chat(options, &model.info.name)?;
    let image = match picture {
        Some(picture) => model.image(picture)?,
        None => model.random_image(options.seed),
    };
    let place = model.model.show(&image, options.batch)?;
    let prompt = match &options.prompt {
        Prompt::RandomTokens(n) => model.random_prompt(*n, place, options.seed)?,
        Prompt::Text(_) if needs_random(source, model.tokenizer.is_some()) => {
            model.random_prompt(RANDOM_TASK, place, options.seed)?
        }
        Prompt::Text(text) => model.encode_prompt(text, place)?,
    };
    let (prompts, how) = (vec![prompt; options.batch], generation(options));
    let mut request = 0;
    requests(options, progress, options.max_new_tokens, || {
        // A step outside of requests counts as measured, and the first one is cold.
        if request >= options.warmup {
            see(model)?;
        } else {
            model.model.look().map_err(|error| anyhow!("the tower's pass failed: {}", candle_message(&error)))?;
        }
        request += 1;
        let output = generate_seen(model, &prompts, &how, &mut |token| {
            if token.sequence == 0 {
                progress.advance();
            }
        })?;
        Ok(Output::Text(output))
    })
}

fn refuse_chat(options: &Options, model: &str) -> Result<()> {
    if options.chat {
        bail!("{model} has no chat template; leave --chat out");
    }
    Ok(())
}

fn generation(options: &Options) -> GenerateOptions {
    GenerateOptions {
        max_new_tokens: options.max_new_tokens,
        sampling: SamplingOptions {
            temperature: (options.temperature != 0.0).then_some(options.temperature),
            top_k: options.top_k,
            top_p: options.top_p,
            ..SamplingOptions::default()
        },
        seed: options.seed,
        ignore_eos: options.ignore_eos,
        operation: if options.chat { "chat" } else { "text_completion" }.into(),
        ..GenerateOptions::default()
    }
}

/// Runs warm-up and measured requests of at most `ticks` units of progress each.
fn requests(
    options: &Options,
    progress: &Progress,
    ticks: usize,
    mut one: impl FnMut() -> Result<Output>,
) -> Result<Vec<Output>> {
    let all = options.warmup.saturating_add(options.repeats);
    progress.count(all.saturating_mul(ticks) as u64);
    let mut outputs = Vec::new();
    for request in 0..all {
        progress.message(match request.checked_sub(options.warmup) {
            None => format!("warm-up {}/{}", request + 1, options.warmup),
            Some(n) => format!("request {}/{}", n + 1, options.repeats),
        });
        let output = one()?;
        progress.at((request + 1).saturating_mul(ticks) as u64);
        if request >= options.warmup {
            outputs.push(output);
        }
    }
    Ok(outputs)
}
