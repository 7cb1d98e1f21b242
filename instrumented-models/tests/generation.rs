//! The generation loop: lengths, end reasons, batches, seeds, refused input.
#![allow(missing_docs, reason = "a test")]
mod common;

use candle_core::{Device, Result, Tensor};
use candlescope_models::config::NAMED;
use candlescope_models::generate::{Context, generate_with, lookup_checks, lookup_steps};
use candlescope_models::load::{Engine, LoadOptions, LoadedModel};
use candlescope_models::{CausalLm, FinishReason, GenerateOptions, ModelSource, SamplingOptions, generate};

fn embedded() -> LoadedModel {
    LoadedModel::load(&ModelSource::Embedded, &LoadOptions::default()).unwrap()
}

fn options(max_new_tokens: usize) -> GenerateOptions {
    GenerateOptions { max_new_tokens, ..GenerateOptions::default() }
}

fn run(
    loaded: &mut LoadedModel,
    prompts: &[Vec<u32>],
    options: &GenerateOptions,
) -> candlescope_models::GenerationOutput {
    generate(loaded, prompts, options, &mut |_| {}).unwrap()
}

#[test]
fn embedded_runs_with_nothing_on_disk_and_repeats() {
    let mut loaded = embedded();
    let prompt = loaded.encode_prompt("Hello").unwrap();
    let mut events = Vec::new();
    let output = generate(&mut loaded, std::slice::from_ref(&prompt), &options(32), &mut |e| {
        events.push((e.index, e.token, e.text.to_string()))
    })
    .unwrap();
    let sequence = &output.sequences[0];
    assert_eq!((sequence.tokens.len(), sequence.finish), (32, FinishReason::Length));
    assert!(sequence.text.chars().all(|c| c.is_ascii_graphic() || c == ' '), "{:?}", sequence.text);
    assert_eq!(events.iter().map(|e| e.1).collect::<Vec<_>>(), sequence.tokens);
    assert_eq!(events.iter().map(|e| e.2.as_str()).collect::<String>(), sequence.text);
    assert!(output.ttft().unwrap() <= output.ended - output.started);
    assert_eq!((output.itl().len(), output.token_times.len()), (31, 32));
    assert_eq!(run(&mut embedded(), &[prompt], &options(32)).sequences, output.sequences);
}

#[test]
fn without_a_cache_the_same_text() {
    let mut loaded = embedded();
    let prompt = loaded.encode_prompt("once more").unwrap();
    let cached = run(&mut loaded, std::slice::from_ref(&prompt), &options(24));
    let whole = run(&mut loaded, &[prompt], &GenerateOptions { kv_cache: false, ..options(24) });
    assert_eq!(cached.sequences, whole.sequences);
}

#[test]
fn a_batch_gives_what_its_prompts_give_alone() {
    let mut loaded = embedded();
    let prompts: Vec<Vec<u32>> = ["alpha", "gamma", "delta"].iter().map(|p| loaded.encode_prompt(p).unwrap()).collect();
    let together = run(&mut loaded, &prompts, &options(16));
    for (prompt, expected) in prompts.iter().zip(&together.sequences) {
        assert_eq!(&run(&mut loaded, std::slice::from_ref(prompt), &options(16)).sequences[0], expected);
    }
}

#[test]
fn ours_and_candles_engine_write_the_same() {
    let load =
        |engine| LoadedModel::load(&ModelSource::Embedded, &LoadOptions { engine, ..LoadOptions::default() }).unwrap();
    let mut ours = load(Engine::Instrumented);
    let mut theirs = load(Engine::Candle);
    let prompt = ours.encode_prompt("side by side").unwrap();
    assert_eq!(
        run(&mut ours, std::slice::from_ref(&prompt), &options(40)).sequences,
        run(&mut theirs, &[prompt], &options(40)).sequences
    );
    assert_eq!((ours.info.engine, theirs.info.engine), ("instrumented", "candle"));
}

#[test]
fn sampling_is_seeded() {
    let mut loaded = embedded();
    let prompt = loaded.encode_prompt("dice").unwrap();
    let sampling = SamplingOptions { temperature: Some(0.9), top_p: Some(0.95), ..SamplingOptions::default() };
    let mut draw = |seed| {
        run(
            &mut loaded,
            std::slice::from_ref(&prompt),
            &GenerateOptions { seed, sampling: sampling.clone(), ..options(20) },
        )
        .sequences
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
}

#[test]
fn stop_tokens_end_a_sequence_and_not_its_neighbours() {
    let mut loaded = embedded();
    let prompts: Vec<Vec<u32>> = ["alpha", "gamma"].iter().map(|p| loaded.encode_prompt(p).unwrap()).collect();
    let free = run(&mut loaded, &prompts, &options(16));
    let stop = free.sequences[0].tokens[3];
    let first = |tokens: &[u32]| tokens.iter().position(|t| *t == stop);
    let stopped = run(&mut loaded, &prompts, &GenerateOptions { stop_tokens: vec![stop], ..options(16) });
    for (free, stopped) in free.sequences.iter().zip(&stopped.sequences) {
        match first(&free.tokens) {
            Some(at) => {
                assert_eq!((stopped.tokens.as_slice(), stopped.finish), (&free.tokens[..=at], FinishReason::Stop))
            }
            None => assert_eq!((&stopped.tokens, stopped.finish), (&free.tokens, FinishReason::Length)),
        }
    }
}

#[test]
fn the_context_ends_generation() {
    let mut loaded = embedded();
    let prompt = loaded.random_prompt(2045, 1).unwrap();
    let output = run(&mut loaded, &[prompt], &GenerateOptions { ignore_eos: true, ..options(10) });
    assert_eq!((output.sequences[0].tokens.len(), output.sequences[0].finish), (3, FinishReason::Context));
}

#[test]
fn unusable_prompts_are_refused_with_numbers() {
    let mut loaded = embedded();
    let mut refuse = |prompts: &[Vec<u32>], o: &GenerateOptions| {
        generate(&mut loaded, prompts, o, &mut |_| {}).unwrap_err().to_string()
    };
    for empty in [&[][..], &[vec![]][..]] {
        assert!(refuse(empty, &options(1)).contains("the prompt is empty; pass a text"));
    }
    let long = refuse(&[vec![1; 3000]], &options(1));
    assert!(
        long.contains("3000 tokens") && long.contains("2048") && long.contains("shorten the prompt by 953"),
        "{long}"
    );
    assert!(refuse(&[vec![1], vec![1, 2]], &options(1)).contains("equal lengths"));
    assert!(refuse(&[vec![9999]], &options(1)).contains("9999 is not in the vocabulary of 259"));
    assert!(refuse(&[vec![1]], &options(0)).contains("max-new-tokens"));
    let hot = SamplingOptions { temperature: Some(-1.), ..SamplingOptions::default() };
    assert!(refuse(&[vec![1]], &GenerateOptions { sampling: hot, ..options(1) }).contains("temperature"));
    assert!(embedded().encode_prompt("").unwrap_err().to_string().contains("the prompt is empty"));
}

#[test]
fn random_prompts_that_do_not_fit_are_refused_before_they_are_made() {
    let loaded = embedded();
    for count in [2048, 99_999_999_999, usize::MAX] {
        let message = loaded.random_prompt(count, 1).unwrap_err().to_string();
        assert!(message.contains(&format!("{count} tokens")) && message.contains("context is 2048"), "{message}");
        assert!(message.contains("shorten the prompt"), "{message}");
    }
    assert_eq!(loaded.random_prompt(2047, 1).unwrap().len(), 2047);
}

/// Fails like candle's operations under `RUST_BACKTRACE=1`.
struct Failing(Device);

impl CausalLm for Failing {
    fn forward(&mut self, _: &Tensor, _: usize) -> candle_core::Result<Tensor> {
        Err(candle_core::Error::WithBacktrace {
            inner: Box::new(candle_core::Error::Msg("the shapes differ".into())),
            backtrace: Box::new(std::backtrace::Backtrace::force_capture()),
        })
    }
    fn reset(&mut self) {}
    fn max_context(&self) -> usize {
        16
    }
    fn vocab_size(&self) -> usize {
        4
    }
    fn device(&self) -> &Device {
        &self.0
    }
}

#[test]
fn a_failing_step_says_so_once_and_on_one_line() {
    let context = Context { name: "failing", stop: vec![], tokenizer: None };
    let error =
        generate_with(&mut Failing(Device::Cpu), &context, &[vec![1, 2]], &options(1), &mut |_| {}).unwrap_err();
    assert_eq!(error.to_string(), "generation failed at prefill of 2 tokens: the shapes differ");
    assert!(std::error::Error::source(&error).is_none(), "the cause is in the message already");
}

#[test]
fn a_named_configuration_runs_at_its_true_size_on_token_counts() {
    assert!(NAMED.contains(&"smollm2-135m"));
    let source = ModelSource::parse("config:smollm2-135m").unwrap();
    let mut loaded = LoadedModel::load(&source, &LoadOptions { seed: 3, ..LoadOptions::default() }).unwrap();
    let map = loaded.info.to_map();
    assert_eq!(map["parameters"], 134_515_008u64);
    assert_eq!(map["weight_bytes"], 134_515_008u64 * 4);
    assert_eq!(map["seed"], 3);
    assert_eq!(map["compute_dtype"], "f32");
    let refusal = loaded.encode_prompt("words").unwrap_err().to_string();
    assert!(refusal.contains("number of prompt tokens"), "{refusal}");
    let prompt = loaded.random_prompt(12, 5).unwrap();
    assert_eq!(prompt, loaded.random_prompt(12, 5).unwrap());
    let output = run(&mut loaded, &[prompt], &GenerateOptions { ignore_eos: true, ..options(3) });
    assert_eq!(output.sequences[0].tokens.len(), 3);
    assert!(output.sequences[0].text.is_empty());
}

#[test]
fn tokens_that_are_looked_up_change_no_text() {
    let mut loaded = embedded();
    for text in ["to be or not to be or not to be or", "Hello", "a b a b a b a"] {
        let prompt = loaded.encode_prompt(text).unwrap();
        let long = GenerateOptions { ignore_eos: true, ..options(80) };
        let plain = run(&mut loaded, std::slice::from_ref(&prompt), &long);
        for lookahead in [1, 4, 11] {
            let ahead = GenerateOptions { lookahead, ..long.clone() };
            let ahead = run(&mut loaded, std::slice::from_ref(&prompt), &ahead);
            assert_eq!(ahead.sequences, plain.sequences, "{text}: {lookahead} ahead");
            assert_eq!(ahead.token_times.len(), 80, "{text}: {lookahead} ahead");
        }
        // An end token among those that come at once ends the text as it does without.
        let stop = vec![plain.sequences[0].tokens[40]];
        let ends = |lookahead| GenerateOptions { stop_tokens: stop.clone(), lookahead, ..long.clone() };
        let plain = run(&mut loaded, std::slice::from_ref(&prompt), &ends(0));
        let ahead = run(&mut loaded, std::slice::from_ref(&prompt), &ends(4));
        assert_eq!((&ahead.sequences, ahead.token_times.len()), (&plain.sequences, plain.token_times.len()), "{text}");
    }
}

/// A model that continues every text as its script has it, whatever was guessed, and counts its passes.
struct Scripted {
    script: Vec<u32>,
    held: usize,
    passes: usize,
    /// Passes that gave the logits after each of their tokens.
    checked: usize,
    checks: bool,
}

impl Scripted {
    fn rows(&mut self, tokens: &Tensor, position: usize) -> Result<Tensor> {
        let tokens = tokens.flatten_all()?.to_vec1::<u32>()?;
        assert!(position <= self.held, "{position} leaves a gap behind {}", self.held);
        assert_eq!(tokens[0], self.script[position], "what is passed first is known");
        (self.held, self.passes) = (position + tokens.len(), self.passes + 1);
        let of = |at: usize| (0..10).map(move |token| if token == at { 1f32 } else { 0. });
        let rows = (0..tokens.len()).flat_map(|n| of(self.script[position + n + 1] as usize));
        Tensor::from_vec(rows.collect::<Vec<f32>>(), (tokens.len(), 10), &Device::Cpu)
    }
}

impl CausalLm for Scripted {
    fn forward(&mut self, tokens: &Tensor, position: usize) -> Result<Tensor> {
        let rows = self.rows(tokens, position)?;
        rows.narrow(0, rows.dim(0)? - 1, 1)
    }

    fn forward_each(&mut self, tokens: &Tensor, position: usize) -> Option<Result<Tensor>> {
        self.checked += 1;
        self.checks.then(|| self.rows(tokens, position))
    }

    fn checks_tokens(&self) -> bool {
        self.checks
    }

    fn reset(&mut self) {
        self.held = 0;
    }

    fn max_context(&self) -> usize {
        64
    }

    fn vocab_size(&self) -> usize {
        10
    }

    fn device(&self) -> &Device {
        &Device::Cpu
    }
}

#[test]
fn a_text_that_repeats_itself_takes_as_few_steps_as_lookups_say() {
    // Three times the same, with one token that is another: what is guessed behind it is wrong once.
    let script: Vec<u32> = [1, 2, 3, 4, 5, 6, 7].into_iter().chain([1, 2, 3, 9, 5, 6, 7]).cycle().take(60).collect();
    let (prompt, output) = (script[..7].to_vec(), &script[7..40]);
    let model = |checks| Scripted { script: script.clone(), held: 0, passes: 0, checked: 0, checks };
    let context = Context { name: "scripted", stop: Vec::new(), tokenizer: None };
    for lookahead in [0, 1, 3, 8] {
        let mut model = model(true);
        let how = GenerateOptions { lookahead, ..options(33) };
        let made = generate_with(&mut model, &context, std::slice::from_ref(&prompt), &how, &mut |_| {}).unwrap();
        assert_eq!(made.sequences[0].tokens, output, "{lookahead} ahead");
        assert_eq!(model.passes, 1 + lookup_steps(&prompt, output, lookahead), "{lookahead} ahead");
        assert_eq!(model.checked, lookup_checks(&prompt, output, lookahead), "{lookahead} ahead");
    }
    assert!(lookup_steps(&prompt, output, 3) < 16, "{}", lookup_steps(&prompt, output, 3));
    let refused = |checks, prompts: &[Vec<u32>], how: &GenerateOptions| {
        generate_with(&mut model(checks), &context, prompts, how, &mut |_| {}).unwrap_err().to_string()
    };
    let ahead = GenerateOptions { lookahead: 3, ..options(33) };
    assert!(refused(false, std::slice::from_ref(&prompt), &ahead).contains("its cache does not go back"));
    // Before the first token, whether or not there is anything to look up.
    let one = GenerateOptions { lookahead: 3, ..options(1) };
    assert!(refused(false, std::slice::from_ref(&prompt), &one).contains("its cache does not go back"));
    assert!(refused(true, &[prompt.clone(), prompt.clone()], &ahead).contains("one sequence"));
    let warm = SamplingOptions { temperature: Some(0.7), ..SamplingOptions::default() };
    assert!(refused(true, &[prompt], &GenerateOptions { sampling: warm, ..ahead }).contains("the most likely tokens"));
}
