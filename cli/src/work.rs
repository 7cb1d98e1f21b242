//! What `profile` runs: requests to a model of any kind.

use crate::options::{Dataset, Options, Prompt};
use crate::progress::Progress;
use crate::prompts::{AskedPrompts, Encoder, PromptInput, always, of_dataset};
use crate::shared_prompts::shared_tokens;
use anyhow::{Context, Result, anyhow, bail};
use candlescope_core::{Handle, PerturbProgress};
use candlescope_models::chat::Message;
use candlescope_models::generate::{lookup_checks, lookup_steps};
use candlescope_models::slots::{Batcher, BatcherOptions, ContinuousRequest, generate_continuously};
use candlescope_models::{
    AnyModel, Encoding, GenerateOptions, GenerationOutput, LoadedEncoder, LoadedEncoderDecoder, LoadedModel,
    LoadedVision, ModelSource, Picture, SamplingOptions, candle_message, encode, generate, generate_from,
    generate_seen, see,
};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Tokens of the prompt of a model without a tokenizer, unless told otherwise.
const RANDOM_TOKENS: usize = 128;

/// The same about an image, which has tokens of its own: a task such as `OCR:` is as short.
const RANDOM_TASK: usize = 8;

/// What is asked about an image of a data set that asks nothing itself.
const TASK: &str = "OCR:";

/// How long a run waits until kernels are recorded. Usually that is some 40 ms; the first time it can take seconds.
pub(crate) const RECORDER_STARTS: Duration = Duration::from_secs(30);

/// What one request yielded.
pub(crate) enum Output {
    /// Sequences of generated tokens, one for each of the batch.
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

/// What stands around the requests: how far they are, and the session.
pub(crate) struct RunContext<'a> {
    pub(crate) progress: &'a Progress,
    pub(crate) handle: Option<&'a Handle>,
}

impl RunContext<'_> {
    /// The warm-up is over: what is recorded at times of its own may begin. Its first window is open when this returns, so
    /// that no measured request pays for that.
    fn is_warm(&self) {
        if let Some(handle) = self.handle
            && handle.begin_kernel_windows()
        {
            self.progress.message("switching the recorder of kernels on".to_string());
            handle.wait_for_kernels(RECORDER_STARTS);
        }
    }
}

/// What all requests yielded, those of the warm-up left out, and facts about a data set.
pub(crate) struct WorkResult {
    pub(crate) outputs: Vec<Output>,
    pub(crate) dataset: Option<Value>,
    /// How far prompts of a data set begin alike, and how much of that was not computed.
    pub(crate) sharing: Option<Value>,
    /// How many decoding steps looking tokens up takes for these texts.
    pub(crate) lookup: Option<Value>,
}

/// Runs all requests.
pub(crate) fn run(
    model: AnyModel,
    source: &ModelSource,
    picture: Option<&Picture>,
    options: &Options,
    around: &RunContext<'_>,
) -> Result<WorkResult> {
    if picture.is_some() && !matches!(model, AnyModel::Vision(_)) {
        bail!(
            "{} looks at no images: leave --image out, or choose a model that does, such as config:paddleocr-vl",
            model.info().name
        );
    }
    if let Some(ahead) = options.given.runtime.speculate {
        let checks = matches!(&model, AnyModel::Decoder(model) if model.model.checks_tokens());
        if !checks {
            bail!(
                "--speculate {ahead} needs a model that checks tokens which were looked up, and {} does not as it is loaded: leave \
                 --speculate out, or choose a decoder of our layers (--engine instrumented)",
                model.info().name
            );
        }
    }
    match model {
        AnyModel::Vision(mut model) => vision(&mut model, source, picture, options, around),
        AnyModel::Decoder(mut model) => decoder(&mut model, source, options, around),
        AnyModel::EncoderDecoder(mut model) => encoder_decoder(&mut model, source, options, around),
        AnyModel::Encoder(model) => encoder(&model, source, options, around),
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
    around: &RunContext<'_>,
) -> Result<WorkResult> {
    let asking = {
        let text = |text: &str| Ok(model.encode_prompt(text)?);
        let chat = |messages: &[Message]| Ok(model.encode_chat(messages)?);
        let most = model.model.max_context().saturating_sub(1);
        let encoder = Encoder { model: &model.info.name, most, text: &text, chat: Some(&chat), image: None };
        match &options.prompt {
            Prompt::RandomTokens(n) => always(model.random_prompt(*n, options.given.runtime.seed)?, options),
            Prompt::Text(text) if options.given.runtime.chat => always(encoder.say(text, true)?, options),
            Prompt::Text(_) if needs_random(source, model.tokenizer.is_some()) => {
                always(model.random_prompt(RANDOM_TOKENS, options.given.runtime.seed)?, options)
            }
            Prompt::Text(text) => always(encoder.say(text, false)?, options),
            Prompt::Dataset(set) => of_dataset(set, options, &encoder)?,
        }
    };
    if let Some(at_once) = options.given.runtime.concurrency {
        return continuously(model, &asking, options, around, at_once);
    }
    let is_set = asking.facts.is_some();
    let prompts: Vec<Vec<u32>> = asking.all.iter().map(|asked| asked.tokens.clone()).collect();
    let done = requests(asking, options, around, options.given.runtime.max_new_tokens, |asked| {
        let prompts = vec![asked.tokens.clone(); options.given.runtime.batch];
        let output = generate(model, &prompts, &generation(options, asked), &mut |token| {
            if token.sequence == 0 {
                around.progress.advance();
            }
        })?;
        Ok(Output::Text(output))
    })?;
    let lookup = lookup(&prompts, &done.outputs, options);
    // A time limit may have ended the first pass over them.
    let ran: Vec<&[u32]> = prompts.iter().take(done.outputs.len()).map(Vec::as_slice).collect();
    let sharing = if is_set { sharing(&ran, 1, 0) } else { None };
    Ok(WorkResult { sharing, lookup, ..done })
}

/// Tokens that are looked up at once where nobody says how many.
const LOOKAHEAD: usize = 4;

/// How many decoding steps texts of one sequence take where tokens are looked up in them: what a run keeps of whether
/// its texts repeat themselves. `None` where tokens are drawn, or none were decoded.
fn lookup(prompts: &[Vec<u32>], outputs: &[Output], options: &Options) -> Option<Value> {
    let runtime = &options.given.runtime;
    if runtime.batch > 1 || runtime.temperature != 0.0 {
        return None;
    }
    let ahead = runtime.speculate.unwrap_or(LOOKAHEAD);
    let texts = outputs.iter().zip(prompts.iter().cycle()).filter_map(|(output, prompt)| match output {
        Output::Text(text) => Some((prompt, &text.sequences.first()?.tokens)),
        Output::Vectors(_) => None,
    });
    // Tokens, steps, and steps that check any, of each request.
    let of = |(prompt, tokens): (&Vec<u32>, &Vec<u32>)| {
        let steps = lookup_steps(prompt, tokens, ahead);
        [tokens.len().saturating_sub(1), steps, lookup_checks(prompt, tokens, ahead)]
    };
    let [tokens, steps, checks] =
        texts.map(of).fold([0; 3], |sum, one| [sum[0] + one[0], sum[1] + one[1], sum[2] + one[2]]);
    (tokens > 0).then(|| json!({ "ahead": ahead, "tokens": tokens, "steps": steps, "checks": checks }))
}

/// What a run keeps of how the prompts of a data set that ran begin, with so many in slots at once, of which `reused`
/// tokens were not computed in one pass over them; `None` where there are no two.
fn sharing(prompts: &[&[u32]], at_once: usize, reused: u64) -> Option<Value> {
    if prompts.len() < 2 {
        return None;
    }
    let least = BatcherOptions::default().least_shared;
    let tokens: usize = prompts.iter().map(|prompt| prompt.len()).sum();
    Some(json!({ "tokens": tokens, "shared": shared_tokens(prompts, at_once, least), "reused": reused }))
}

/// Runs all requests with `at_once` of them under way. A pass over the prompts ends before the next one begins, and
/// slots hold nothing of the pass before: that prompts come again is the measurement's doing. At the end of a time
/// limit nothing more begins, and what is under way goes on to its end.
fn continuously(
    model: &mut LoadedModel,
    asking: &AskedPrompts,
    options: &Options,
    around: &RunContext<'_>,
    at_once: usize,
) -> Result<WorkResult> {
    let runtime = &options.given.runtime;
    let all = asking.all.len();
    let limit = options.duration_s.map(Duration::from_secs_f64);
    // Of one prompt, all requests are one pass.
    let (in_pass, passes) = match limit {
        _ if all > 1 => (all, runtime.repeats),
        Some(_) => (usize::MAX, 1),
        None => (runtime.repeats, 1),
    };
    if in_pass < at_once && all == 1 {
        bail!(
            "--concurrency is {at_once}, and there are {in_pass} requests: give --repeats {at_once} or more, or more prompts with \
             --dataset"
        );
    }
    if in_pass < at_once {
        bail!(
            "--concurrency is {at_once}, and a pass over the data set, which ends before the next one begins, has {in_pass} requests: \
             give --concurrency {in_pass} or less, or a --dataset of {at_once} prompts or more"
        );
    }
    let Some(decoder) = model.model.take_slots() else {
        bail!("--concurrency holds requests in slots, and {} has none: our layers have (--engine)", model.info.name);
    };
    let (slots, model) = (decoder.slots(), &*model);
    let least_shared = if runtime.prefix_reuse { BatcherOptions::default().least_shared } else { usize::MAX };
    let mut batcher = Batcher::new(decoder, BatcherOptions { prompt_piece: runtime.prompt_piece, least_shared });
    let request =
        |asked: &PromptInput| ContinuousRequest { prompt: asked.tokens.clone(), options: generation(options, asked) };
    let nth = |n: usize| request(&asking.all[n % all]);
    let ticks = |requests: usize| requests.saturating_mul(runtime.max_new_tokens) as u64;
    match limit {
        Some(_) => around.progress.share(),
        None => around.progress.count(ticks(runtime.warmup.saturating_add(in_pass.saturating_mul(passes)))),
    }
    let mut run = |requests: &mut dyn Iterator<Item = ContinuousRequest>, tick: &dyn Fn()| {
        let before = batcher.shared_tokens();
        let outputs = generate_continuously(&mut batcher, model, requests, at_once, &mut |_, _| {
            tick();
            ControlFlow::Continue(())
        })?;
        batcher.forget();
        anyhow::Ok((outputs, batcher.shared_tokens() - before))
    };
    around.progress.message(format!("{} warm-up requests, {at_once} at once", runtime.warmup));
    run(&mut (0..runtime.warmup).map(nth), &|| {
        if limit.is_none() {
            around.progress.advance();
        }
    })?;
    around.is_warm();
    let begun = Instant::now();
    let tick = || match limit {
        Some(limit) => around.progress.at((begun.elapsed().div_duration_f64(limit) * 1e3).min(1e3) as u64),
        None => around.progress.advance(),
    };
    // Tokens that were not computed again in passes over all prompts, of which there are so many, and in one that was
    // cut short.
    let (mut outputs, mut reused, mut whole, mut done) = (Vec::new(), [0, 0], 0, 0);
    while limit.map_or(done < passes, |limit| done == 0 || begun.elapsed() < limit) {
        around.progress.message(match limit {
            Some(_) => format!("pass {}, {at_once} requests at once", done + 1),
            None => format!("pass {}/{passes} of {in_pass} requests, {at_once} at once", done + 1),
        });
        // A run without a request has nothing to tell.
        let goes_on = |n: &usize| done + n == 0 || limit.is_none_or(|limit| begun.elapsed() < limit);
        let (made, shared) = run(&mut (0..in_pass).take_while(goes_on).map(nth), &tick)?;
        let is_whole = made.len() == in_pass;
        reused[usize::from(!is_whole)] += shared;
        (whole, done) = (whole + u64::from(is_whole), done + 1);
        outputs.extend(made.into_iter().map(Output::Text));
        if limit.is_none() {
            around.progress.at(ticks(runtime.warmup + done * in_pass));
        }
    }
    let ran: Vec<&[u32]> = asking.all.iter().take(outputs.len()).map(|asked| asked.tokens.as_slice()).collect();
    let reused = reused[0].checked_div(whole).unwrap_or(reused[1]);
    let sharing = if asking.facts.is_some() { sharing(&ran, at_once.min(slots), reused) } else { None };
    Ok(WorkResult { outputs, dataset: asking.facts.clone(), sharing, lookup: None })
}

fn encoder_decoder(
    model: &mut LoadedEncoderDecoder,
    source: &ModelSource,
    options: &Options,
    around: &RunContext<'_>,
) -> Result<WorkResult> {
    refuse_chat(options, &model.info.name)?;
    let most = model.source_positions();
    let asking = match &options.prompt {
        Prompt::Dataset(set) if model.reads_sound() => {
            bail!("{} reads sound, and the data set {} has none; leave it out", model.info.name, set.name)
        }
        Prompt::Dataset(set) => {
            let text = |text: &str| Ok(model.encode_prompt(text)?);
            of_dataset(set, options, &Encoder { model: &model.info.name, most, text: &text, chat: None, image: None })?
        }
        // What is not tokens is made below.
        _ => always(Vec::new(), options),
    };
    let random = |n: usize| model.random_source(n, options.given.runtime.batch, options.given.runtime.seed);
    let inputs = asking.all.iter().map(|asked| {
        Ok(match &options.prompt {
            Prompt::RandomTokens(n) => random(*n)?,
            // A text cannot be heard: the longest sound there is, as whisper itself pads every sound to that.
            Prompt::Text(_) if model.reads_sound() => random(most)?,
            Prompt::Text(_) if needs_random(source, model.tokenizer.is_some()) => random(RANDOM_TOKENS.min(most))?,
            Prompt::Text(text) => model.text(&model.encode_prompt(text)?, options.given.runtime.batch)?,
            Prompt::Dataset(_) => model.text(&asked.tokens, options.given.runtime.batch)?,
        })
    });
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    let mut n = 0;
    requests(asking, options, around, options.given.runtime.max_new_tokens, |asked| {
        let input = &inputs[place(n, options, inputs.len())];
        n += 1;
        let output = generate_from(model, input, &generation(options, asked), &mut |token| {
            if token.sequence == 0 {
                around.progress.advance();
            }
        })?;
        Ok(Output::Text(output))
    })
}

fn encoder(
    model: &LoadedEncoder,
    source: &ModelSource,
    options: &Options,
    around: &RunContext<'_>,
) -> Result<WorkResult> {
    refuse_chat(options, &model.info.name)?;
    let most = model.info.context_length;
    let text = |text: &str| Ok(model.encode_prompt(text)?);
    let asking = match &options.prompt {
        Prompt::RandomTokens(n) => always(model.random_prompt(*n, options.given.runtime.seed)?, options),
        Prompt::Text(_) if needs_random(source, model.tokenizer.is_some()) => {
            always(model.random_prompt(RANDOM_TOKENS.min(most), options.given.runtime.seed)?, options)
        }
        Prompt::Text(text) => always(model.encode_prompt(text)?, options),
        Prompt::Dataset(set) => {
            of_dataset(set, options, &Encoder { model: &model.info.name, most, text: &text, chat: None, image: None })?
        }
    };
    requests(asking, options, around, 1, |asked| {
        Ok(Output::Vectors(encode(model, &vec![asked.tokens.clone(); options.given.runtime.batch])?))
    })
}

fn vision(
    model: &mut LoadedVision,
    source: &ModelSource,
    picture: Option<&Picture>,
    options: &Options,
    around: &RunContext<'_>,
) -> Result<WorkResult> {
    refuse_chat(options, &model.info.name)?;
    let asking = match &options.prompt {
        Prompt::Dataset(set) => {
            if picture.is_some() {
                bail!("--image is one image, and the data set {} has its own: leave one of them out", set.name);
            }
            images_of_dataset(model, set, options)?
        }
        prompt => {
            let image = match picture {
                Some(picture) => model.image(picture)?,
                None => model.random_image(options.given.runtime.seed),
            };
            let place = model.model.show(&image, options.given.runtime.batch)?;
            let tokens = match prompt {
                Prompt::RandomTokens(n) => model.random_prompt(*n, place, options.given.runtime.seed)?,
                Prompt::Text(text) if !needs_random(source, model.tokenizer.is_some()) => {
                    model.encode_prompt(text, place)?
                }
                _ => model.random_prompt(RANDOM_TASK, place, options.given.runtime.seed)?,
            };
            always(tokens, options)
        }
    };
    let images: Vec<Option<PathBuf>> = asking.all.iter().map(|asked| asked.image.clone()).collect();
    let (repeats, batch) = (options.given.runtime.repeats, options.given.runtime.batch);
    let mut request = 0;
    let model = RefCell::new(model);
    // The tower's passes alone stand before the first measured request, because what lies between requests counts in the
    // run's throughput. A step outside of requests counts as measured, and the first pass is cold.
    let passes = || {
        let model = &mut *model.borrow_mut();
        for image in images.iter().cycle().take(images.len().saturating_mul(repeats)) {
            if let Some(image) = image {
                show(model, image, batch)?;
            }
            see(model)?;
        }
        Ok(())
    };
    requests_after(passes, asking, options, around, options.given.runtime.max_new_tokens, |asked| {
        let model = &mut *model.borrow_mut();
        if let Some(image) = &asked.image {
            show(model, image, batch)?;
        }
        if request < options.given.runtime.warmup {
            model.model.look().map_err(|error| anyhow!("the tower's pass failed: {}", candle_message(&error)))?;
        }
        request += 1;
        let prompts = vec![asked.tokens.clone(); batch];
        let output = generate_seen(model, &prompts, &generation(options, asked), &mut |token| {
            if token.sequence == 0 {
                around.progress.advance();
            }
        })?;
        Ok(Output::Text(output))
    })
}

/// Shows the image of a file to the model; how many tokens it is.
fn show(model: &mut LoadedVision, image: &Path, batch: usize) -> Result<usize> {
    let image = model.image(&Picture::read(image)?)?;
    Ok(model.model.show(&image, batch)?)
}

/// The prompts of a data set of images. Each is shown once, because its size says how many tokens it is.
fn images_of_dataset(model: &mut LoadedVision, set: &Dataset, options: &Options) -> Result<AskedPrompts> {
    let name = model.info.name.clone();
    let most = model.info.context_length.saturating_sub(1);
    let model = RefCell::new(model);
    let text = |_: &str| bail!("it is a text without an image, and {name} looks at one: take a data set of images");
    let image = |path: &Path, text: Option<&str>| {
        let model = &mut **model.borrow_mut();
        let place = show(model, path, options.given.runtime.batch)?;
        match text {
            Some(text) => Ok(model.encode_prompt(text, place)?),
            None if model.tokenizer.is_some() => Ok(model.encode_prompt(TASK, place)?),
            None => Ok(model.random_prompt(RANDOM_TASK, place, options.given.runtime.seed)?),
        }
    };
    of_dataset(set, options, &Encoder { model: &name, most, text: &text, chat: None, image: Some(&image) })
        .with_context(|| format!("the data set {}", set.name))
}

fn refuse_chat(options: &Options, model: &str) -> Result<()> {
    if options.given.runtime.chat {
        bail!("{model} has no chat template; leave --chat out");
    }
    Ok(())
}

/// How tokens are drawn.
pub(crate) fn sampling(options: &Options) -> SamplingOptions {
    SamplingOptions {
        temperature: (options.given.runtime.temperature != 0.0).then_some(options.given.runtime.temperature),
        top_k: options.given.runtime.top_k,
        top_p: options.given.runtime.top_p,
        ..SamplingOptions::default()
    }
}

fn generation(options: &Options, asked: &PromptInput) -> GenerateOptions {
    GenerateOptions {
        max_new_tokens: asked.max_new_tokens,
        sampling: sampling(options),
        seed: options.given.runtime.seed,
        ignore_eos: options.given.runtime.ignore_eos,
        lookahead: options.given.runtime.speculate.unwrap_or(0),
        operation: if options.given.runtime.chat || asked.is_chat { "chat" } else { "text_completion" }.into(),
        ..GenerateOptions::default()
    }
}

/// Which of `prompts` the request `n` has: the measured ones go through all of them in order, from the first.
fn place(n: usize, options: &Options, prompts: usize) -> usize {
    n.checked_sub(options.given.runtime.warmup).unwrap_or(n) % prompts
}

/// Runs warm-up and measured requests of at most `ticks` units of progress each.
fn requests(
    asking: AskedPrompts,
    options: &Options,
    around: &RunContext<'_>,
    ticks: usize,
    one: impl FnMut(&PromptInput) -> Result<Output>,
) -> Result<WorkResult> {
    requests_after(|| Ok(()), asking, options, around, ticks, one)
}

/// The same, with `before_measured` between the warm-up and the first measured request.
fn requests_after(
    before_measured: impl FnOnce() -> Result<()>,
    asking: AskedPrompts,
    options: &Options,
    around: &RunContext<'_>,
    ticks: usize,
    mut one: impl FnMut(&PromptInput) -> Result<Output>,
) -> Result<WorkResult> {
    let measured = options.given.runtime.repeats.saturating_mul(asking.all.len());
    let all = options.given.runtime.warmup.saturating_add(measured);
    let limit = options.duration_s.map(Duration::from_secs_f64);
    match limit {
        Some(_) => around.progress.share(),
        None => around.progress.count(all.saturating_mul(ticks) as u64),
    }
    let mut outputs = Vec::new();
    let mut before_measured = Some(before_measured);
    let mut begun = Instant::now();
    for request in 0.. {
        match limit {
            // A run without a request has nothing to tell.
            Some(limit) if request > options.given.runtime.warmup && begun.elapsed() >= limit => break,
            None if request >= all => break,
            _ => {}
        }
        if request == options.given.runtime.warmup {
            before_measured.take().map_or(Ok(()), |before| before())?;
            around.is_warm();
            begun = Instant::now();
        }
        around.progress.message(match request.checked_sub(options.given.runtime.warmup) {
            None => format!("warm-up {}/{}", request + 1, options.given.runtime.warmup),
            Some(n) if limit.is_some() => format!("request {}", n + 1),
            Some(n) => format!("request {}/{measured}", n + 1),
        });
        let output = one(&asking.all[place(request, options, asking.all.len())])?;
        around.progress.at(match limit {
            Some(limit) if request >= options.given.runtime.warmup => {
                (begun.elapsed().div_duration_f64(limit) * 1e3).min(1e3) as u64
            }
            Some(_) => 0,
            None => (request + 1).saturating_mul(ticks) as u64,
        });
        if request >= options.given.runtime.warmup {
            outputs.push(output);
        }
    }
    if let (Some(_), Some(handle)) = (&options.perturb, around.handle) {
        let mut next = options.given.runtime.warmup;
        experiment(handle, around.progress, || {
            let asked = &asking.all[place(next, options, asking.all.len())];
            next += 1;
            one(asked).map(drop)
        })?;
    }
    Ok(WorkResult { outputs, dataset: asking.facts, sharing: None, lookup: None })
}

/// Most requests in a row that bring an experiment no pair: no step of theirs is of the kind that was named, they have
/// too few steps, or the budget is used up for long.
const MOST_WITHOUT_PAIRS: u64 = 200;

/// Runs requests until an experiment has its pairs.
fn experiment(handle: &Handle, progress: &Progress, mut one: impl FnMut() -> Result<()>) -> Result<()> {
    handle.begin_perturbing()?;
    let (mut requests, mut before) = (0, 0);
    loop {
        let PerturbProgress { pairs, wanted, running, .. } = handle.perturbing();
        if pairs > before {
            (requests, before) = (0, pairs);
        }
        if !running || requests >= MOST_WITHOUT_PAIRS {
            break;
        }
        progress.message(format!("experiment: {pairs} of {wanted} pairs"));
        one()?;
        requests += 1;
    }
    handle.end_perturbing();
    Ok(())
}
