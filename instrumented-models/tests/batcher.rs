//! Continuous batching: who comes and goes changes nobody's text, and every request is accounted for.
#![allow(missing_docs, reason = "a test")]
mod common;

use candle_core::{DType, Device, Result, Tensor};
use candlescope_core::llm::Request;
use candlescope_core::{MemoryExporter, Outcome, Phase, RequestRecord, Session};

use candlescope_models::generate::GenerateError;
use candlescope_models::layers::{Place, SlotPlaces, SlotStep};
use candlescope_models::slots::{
    Batcher, BatcherOptions, ContinuousRequest, Job, Receive, SlotDecoder, SlotModel, SlotOptions,
    generate_continuously,
};
use candlescope_models::weights::random::RandomWeights;
use candlescope_models::{
    CausalLm, FinishReason, GenerateOptions, Llama, LoadOptions, LoadedModel, ModelSource, SamplingOptions, generate,
};
use candlescope_work::operation::Cost;
use common::*;
use std::cell::{Cell, RefCell};
use std::ops::{ControlFlow, Range};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use tracing_subscriber::prelude::*;

fn llama() -> Llama {
    Llama::load(&tiny(), &mut RandomWeights::new(&tiny(), 7, DType::F32, &Device::Cpu), DType::F32, &Device::Cpu)
        .unwrap()
}

fn batcher<'a>(slots: usize, options: BatcherOptions) -> Batcher<'a> {
    let slots = SlotOptions { slots, context: Some(64), ..SlotOptions::default() };
    Batcher::new(SlotDecoder::new(Box::new(llama()), &slots).unwrap(), options)
}

/// What a client got, and when it goes away.
#[derive(Default)]
struct Got {
    tokens: RefCell<Vec<u32>>,
    end: RefCell<Option<std::result::Result<FinishReason, String>>>,
    /// It goes away once it has so many tokens.
    patience: Cell<Option<usize>>,
    /// Its tokens are no text.
    chokes: Cell<bool>,
}

impl Got {
    fn end(&self) -> std::result::Result<FinishReason, String> {
        self.end.borrow().clone().expect("it has ended")
    }
}

struct Client(Rc<Got>);

impl Receive for Client {
    fn token(&mut self, token: u32) -> std::result::Result<ControlFlow<()>, GenerateError> {
        self.0.tokens.borrow_mut().push(token);
        if self.0.chokes.get() {
            return Err(GenerateError::Options("no text".into()));
        }
        Ok(if self.is_wanted() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    }

    fn is_wanted(&self) -> bool {
        self.0.patience.get().is_none_or(|most| self.0.tokens.borrow().len() < most)
    }

    fn ended(&mut self, outcome: std::result::Result<FinishReason, GenerateError>) {
        let before = self.0.end.replace(Some(outcome.map_err(|error| error.to_string())));
        assert!(before.is_none(), "it ends once");
    }
}

fn prompt(from: usize, count: usize) -> Vec<u32> {
    (0..count).map(|n| ((from * 31 + n * 7) % 96) as u32).collect()
}

fn job(prompt: &[u32], tokens: usize, sampling: SamplingOptions) -> (Job<'static>, Rc<Got>) {
    let got = Rc::new(Got::default());
    let options = GenerateOptions { max_new_tokens: tokens, sampling, ignore_eos: true, ..GenerateOptions::default() };
    let request = Request::new("text_completion", "tiny");
    request.outcome(Outcome::Cancelled);
    let receive = Box::new(Client(got.clone()));
    (Job { request, prompt: prompt.to_vec(), options, stop: Vec::new(), receive }, got)
}

fn run(batcher: &mut Batcher<'_>) -> usize {
    let mut turns = 0;
    while !batcher.is_idle() {
        batcher.turn();
        turns += 1;
        assert!(turns < 10_000, "it never ends");
    }
    turns
}

/// Its text where nobody else is.
fn alone(prompt: &[u32], tokens: usize, sampling: SamplingOptions) -> Vec<u32> {
    let mut one = batcher(1, BatcherOptions::default());
    let (job, got) = job(prompt, tokens, sampling);
    one.submit(job);
    run(&mut one);
    got.tokens.take()
}

#[test]
fn who_else_is_there_changes_no_text() {
    let drawn = SamplingOptions { temperature: Some(0.9), top_k: Some(20), ..SamplingOptions::default() };
    // What it is that has been said is known on the host only.
    let penalised = SamplingOptions { repeat_penalty: 1.5, ..drawn.clone() };
    let mut three = batcher(3, BatcherOptions { prompt_piece: 5, ..BatcherOptions::default() });
    let mut all = Vec::new();
    for n in 0..13 {
        let sampling = [SamplingOptions::default(), drawn.clone(), penalised.clone()][n % 3].clone();
        let (prompt, tokens) = (prompt(n, 1 + n * 5 % 23), 1 + n * 7 % 17);
        let (job, got) = job(&prompt, tokens, sampling.clone());
        three.submit(job);
        all.push((prompt, tokens, sampling, got));
        // They arrive while others are at work.
        (0..n % 4).for_each(|_| three.turn());
    }
    run(&mut three);
    for (n, (prompt, tokens, sampling, got)) in all.into_iter().enumerate() {
        assert_eq!(got.end(), Ok(FinishReason::Length), "request {n}");
        assert_eq!(*got.tokens.borrow(), alone(&prompt, tokens, sampling), "request {n}");
    }
}

#[test]
fn a_model_that_generates_alone_says_the_same() {
    let mut model = llama();
    let best = |logits: Tensor| logits.argmax(1).unwrap().to_vec1::<u32>().unwrap()[0];
    let of = |tokens: &[u32]| Tensor::new(tokens, &Device::Cpu).unwrap().unsqueeze(0).unwrap();
    let prompt = prompt(3, 11);
    let mut text = vec![best(model.forward(&of(&prompt), 0).unwrap())];
    for position in 11..11 + 14 {
        text.push(best(model.forward(&of(&text[text.len() - 1..]), position).unwrap()));
    }
    assert_eq!(alone(&prompt, 15, SamplingOptions::default()), text);
}

#[test]
fn a_long_prompt_holds_nobody_up() {
    let mut two = batcher(2, BatcherOptions { prompt_piece: 4, ..BatcherOptions::default() });
    let (first, a) = job(&prompt(1, 4), 30, SamplingOptions::default());
    two.submit(first);
    two.turn();
    let (second, b) = job(&prompt(2, 40), 2, SamplingOptions::default());
    two.submit(second);
    let before = a.tokens.borrow().len();
    while b.tokens.borrow().is_empty() {
        two.turn();
    }
    // Ten pieces, and a token of the first request with each.
    assert_eq!(a.tokens.borrow().len() - before, 10);
}

#[test]
fn a_beginning_that_is_shared_is_not_computed_again() {
    let mut two = batcher(2, BatcherOptions { least_shared: 8, ..BatcherOptions::default() });
    let system = prompt(9, 30);
    let with = |own: usize| [&system[..], &prompt(own, 6)].concat();
    let mut texts = Vec::new();
    for own in 0..4 {
        let (job, got) = job(&with(own), 5, SamplingOptions::default());
        two.submit(job);
        run(&mut two);
        texts.push(got.tokens.borrow().clone());
    }
    assert!(two.shared_tokens() >= 3 * 30, "{}", two.shared_tokens());
    for (own, text) in texts.into_iter().enumerate() {
        assert_eq!(text, alone(&with(own), 5, SamplingOptions::default()), "prompt {own}");
    }
    // The same again: all but the last token of the prompt, and the same text.
    let before = two.shared_tokens();
    let (again, got) = job(&with(3), 5, SamplingOptions::default());
    two.submit(again);
    run(&mut two);
    assert_eq!(two.shared_tokens() - before, 35);
    assert_eq!(*got.tokens.borrow(), alone(&with(3), 5, SamplingOptions::default()));
}

#[test]
fn a_client_may_leave_in_each_phase() {
    let mut one = batcher(1, BatcherOptions { prompt_piece: 3, ..BatcherOptions::default() });
    let clients: Vec<_> = (0..4)
        .map(|n| {
            let (job, got) = job(&prompt(n, 9), 8, SamplingOptions::default());
            one.submit(job);
            got
        })
        .collect();
    one.turn();
    // Within its prompt, while it waits, and after three tokens.
    clients[0].patience.set(Some(0));
    clients[1].patience.set(Some(0));
    clients[2].patience.set(Some(3));
    run(&mut one);
    let ends: Vec<_> = clients.iter().map(|got| (got.end().unwrap(), got.tokens.borrow().len())).collect();
    let cancelled = FinishReason::Cancelled;
    assert_eq!(ends, [(cancelled, 0), (cancelled, 0), (cancelled, 3), (FinishReason::Length, 8)]);
    assert_eq!(*clients[3].tokens.borrow(), alone(&prompt(3, 9), 8, SamplingOptions::default()));
}

#[test]
fn what_cannot_be_fulfilled_ends_at_once_with_its_cause() {
    let mut one = batcher(1, BatcherOptions::default());
    let refused = |one: &mut Batcher<'_>, prompt: &[u32], tokens| {
        let (job, got) = job(prompt, tokens, SamplingOptions::default());
        one.submit(job);
        assert!(one.is_idle());
        got.end().unwrap_err()
    };
    assert!(refused(&mut one, &[], 3).contains("the prompt is empty"));
    assert!(refused(&mut one, &prompt(0, 64), 3).contains("the prompt has 64 tokens and the model's context is 64"));
    assert!(refused(&mut one, &[96], 3).contains("prompt token 96 is not in the vocabulary of 96"));
    assert!(refused(&mut one, &[1], 0).contains("max-new-tokens must be at least 1"));
    // A slot that is full ends its sequence, as a context does without slots.
    let (long, got) = job(&prompt(0, 60), 100, SamplingOptions::default());
    one.submit(long);
    run(&mut one);
    assert_eq!((got.end(), got.tokens.borrow().len()), (Ok(FinishReason::Context), 4));
}

#[test]
fn a_thousand_at_once_are_all_served() {
    let mut eight = batcher(8, BatcherOptions::default());
    let clients: Vec<_> = (0..1_000)
        .map(|n| {
            let (job, got) = job(&prompt(n, 1 + n % 9), 1 + n % 5, SamplingOptions::default());
            eight.submit(job);
            got
        })
        .collect();
    run(&mut eight);
    for (n, got) in clients.iter().enumerate() {
        assert_eq!((got.end(), got.tokens.borrow().len()), (Ok(FinishReason::Length), 1 + n % 5));
    }
}

/// A model that fails when it is told to.
struct Failing {
    model: Llama,
    fails: Arc<AtomicBool>,
}

impl CausalLm for Failing {
    fn forward(&mut self, tokens: &Tensor, position: usize) -> Result<Tensor> {
        self.model.forward(tokens, position)
    }

    fn reset(&mut self) {
        self.model.reset();
    }

    fn max_context(&self) -> usize {
        self.model.max_context()
    }

    fn vocab_size(&self) -> usize {
        self.model.vocab_size()
    }

    fn device(&self) -> &Device {
        self.model.device()
    }
}

impl SlotModel for Failing {
    fn hold(&mut self, slots: usize, context: usize) -> Result<()> {
        self.model.hold(slots, context)
    }

    fn forward_at(&mut self, tokens: &Tensor, place: Place<'_>) -> Result<Tensor> {
        if self.fails.load(Relaxed) {
            candle_core::bail!("out of memory")
        }
        self.model.forward_at(tokens, place)
    }

    fn slot_step(&self, places: SlotPlaces) -> Result<SlotStep> {
        self.model.slot_step(places)
    }

    fn erase(&mut self, slots: Range<usize>, from: usize, to: usize) -> Result<()> {
        self.model.erase(slots, from, to)
    }

    fn kv_bytes_per_token(&self) -> u64 {
        self.model.kv_bytes_per_token()
    }

    fn step_cost(&self, rows: u64, context: u64) -> Cost {
        self.model.step_cost(rows, context)
    }
}

#[test]
fn a_failure_ends_whom_it_concerns_and_nothing_else() {
    let fails = Arc::new(AtomicBool::new(false));
    let slots = SlotOptions { slots: 2, context: Some(64), ..SlotOptions::default() };
    let model = Box::new(Failing { model: llama(), fails: fails.clone() });
    let mut two = Batcher::new(SlotDecoder::new(model, &slots).unwrap(), BatcherOptions::default());
    let clients: Vec<_> = (0..4)
        .map(|n| {
            let (job, got) = job(&prompt(n, 20), 6, SamplingOptions::default());
            two.submit(job);
            got
        })
        .collect();
    (0..3).for_each(|_| two.turn());
    fails.store(true, Relaxed);
    two.turn();
    let message = "generation failed at a step of several sequences: out of memory";
    assert!(clients[..2].iter().all(|got| got.end() == Err(message.to_string())), "{:?}", clients[0].end.borrow());
    // A prompt that comes now fails by itself, and once the model works again, what the slots held is not trusted.
    two.turn();
    assert!(clients[2].end().unwrap_err().contains("prefill of 20 tokens: out of memory"));
    fails.store(false, Relaxed);
    run(&mut two);
    assert_eq!(clients[3].end(), Ok(FinishReason::Length));
    assert_eq!(*clients[3].tokens.borrow(), alone(&prompt(3, 20), 6, SamplingOptions::default()));
    assert_eq!(two.shared_tokens(), 0);
}

#[test]
fn every_step_says_for_whom_it_worked() {
    let memory = MemoryExporter::new();
    let (layer, session) = Session::builder().exporter(memory.clone()).start().unwrap();
    listening(tracing_subscriber::registry().with(layer), || {
        let mut three = batcher(3, BatcherOptions { prompt_piece: 8, ..BatcherOptions::default() });
        let clients: Vec<_> = (0..7)
            .map(|n| {
                let (job, got) = job(&prompt(n, 5 + 4 * n), 3 + n, SamplingOptions::default());
                three.submit(job);
                got
            })
            .collect();
        clients[4].patience.set(Some(2));
        clients[5].chokes.set(true);
        run(&mut three);
    });
    let manifest = session.finish();
    assert!(manifest.verdict.ok, "{:?}", manifest.verdict);
    let batch = memory.batch();
    assert_eq!(batch.requests.len(), 7);
    for (n, request) in (0..7).map(|n| {
        let of = |r: &&RequestRecord| r.prompt_tokens == Some(5 + 4 * n);
        (n, batch.requests.iter().find(of).expect("its row"))
    }) {
        let (passed, out) = (batch.steps.iter().flat_map(|step| &step.serves).filter(|s| s.request == request.request))
            .fold((0, 0), |(passed, out), served| {
                (passed + u64::from(served.tokens), out + u64::from(served.output_tokens))
            });
        let (made, outcome) = match n {
            4 => (2, Outcome::Cancelled),
            5 => (1, Outcome::Failed),
            n => (3 + n, Outcome::Done),
        };
        // The last token is not passed.
        assert_eq!((passed, out), (5 + 4 * n + made - 1, made), "request {n}");
        assert_eq!(request.output_tokens, Some(made));
        assert_eq!(request.outcome, Some(outcome));
        assert!(request.queue_ns.is_some() && request.ttft_ns > request.queue_ns, "{request:?}");
    }
    for step in &batch.steps {
        let passed = step.serves.iter().map(|served| served.tokens).sum();
        assert_eq!(step.tokens, Some(passed), "{step:?}");
        assert_eq!(step.request, None, "no request owns a step");
        // It is the step that says how it ran, not an interval in it.
        let ran = (step.phase == Some(Phase::Decode)).then_some(candlescope_core::Ran::NoDevice);
        assert_eq!(step.ran, ran, "{step:?}");
    }
}

#[test]
fn a_list_of_requests_writes_what_each_writes_alone() {
    let load = |slots: Option<SlotOptions>| {
        LoadedModel::load(&ModelSource::Embedded, &LoadOptions { slots, ..LoadOptions::default() }).unwrap()
    };
    let mut alone = load(None);
    let options = |tokens| GenerateOptions { max_new_tokens: tokens, ignore_eos: true, ..GenerateOptions::default() };
    let requests: Vec<ContinuousRequest> = (0..7)
        .map(|n| {
            let prompt = alone.random_prompt(3 + 5 * n, n as u64).unwrap();
            ContinuousRequest { prompt, options: options(1 + 3 * n) }
        })
        .collect();
    let mut slotted = load(Some(SlotOptions { slots: 2, context: Some(128), memory: None, cuda_graph: false }));
    let decoder = slotted.model.take_slots().unwrap();
    let slotted = &slotted;
    let mut batcher = Batcher::new(decoder, BatcherOptions { prompt_piece: 8, least_shared: usize::MAX });
    let (mut told, mut most) = (vec![Vec::new(); requests.len()], 0);
    let outputs = generate_continuously(&mut batcher, slotted, requests.clone(), 2, &mut |request, token| {
        told[request].push(token);
        // Those that have begun and not all of their tokens.
        let open = told
            .iter()
            .zip(&requests)
            .filter(|(told, request)| !told.is_empty() && told.len() < request.options.max_new_tokens);
        most = open.count().max(most);
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(most <= 2 && batcher.is_idle(), "{most} at once");
    for (n, (output, request)) in outputs.iter().zip(&requests).enumerate() {
        let expected =
            generate(&mut alone, std::slice::from_ref(&request.prompt), &request.options, &mut |_| ()).unwrap();
        assert_eq!(output.sequences, expected.sequences, "request {n}: tokens, text and end");
        assert_eq!((&output.sequences[0].tokens, output.prompt_tokens), (&told[n], request.prompt.len()));
        assert_eq!(output.token_times.len(), told[n].len());
        assert!(output.token_times.is_sorted() && output.started <= output.token_times[0]);
    }
    // What slots hold is forgotten on request.
    assert!((0..2).any(|slot| batcher.decoder().held(slot) > 0));
    batcher.forget();
    assert!((0..2).all(|slot| batcher.decoder().held(slot) == 0));
}

#[test]
fn a_break_ends_what_is_under_way_and_a_failure_is_the_answer() {
    let slots = Some(SlotOptions { slots: 2, context: Some(32), memory: None, cuda_graph: false });
    let mut loaded =
        LoadedModel::load(&ModelSource::Embedded, &LoadOptions { slots, ..LoadOptions::default() }).unwrap();
    let decoder = loaded.model.take_slots().unwrap();
    let loaded = &loaded;
    let mut batcher = Batcher::new(decoder, BatcherOptions::default());
    let options = GenerateOptions { max_new_tokens: 6, ignore_eos: true, ..GenerateOptions::default() };
    let of = |count: usize| ContinuousRequest { prompt: vec![1; count], options: options.clone() };
    let mut tokens = 0;
    let outputs = generate_continuously(&mut batcher, loaded, [of(3), of(4), of(5)], 2, &mut |_, _| {
        tokens += 1;
        if tokens < 4 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })
    .unwrap();
    let ends: Vec<FinishReason> = outputs.iter().map(|output| output.sequences[0].finish).collect();
    assert_eq!(ends, [FinishReason::Cancelled; 2], "the third did not begin");
    // A prompt for which there is no room fails all of it.
    let mut goes_on = |_: usize, _: u32| ControlFlow::Continue(());
    let error = generate_continuously(&mut batcher, loaded, [of(3), of(40)], 2, &mut goes_on);
    assert!(error.unwrap_err().to_string().contains("the prompt has 40 tokens"));
    assert!(batcher.is_idle());
    // And nothing more is asked for.
    let mut asked = 0;
    let refused = std::iter::repeat_with(|| of(40)).inspect(|_| asked += 1).take(9);
    assert!(generate_continuously(&mut batcher, loaded, refused, 2, &mut goes_on).is_err());
    assert_eq!((asked, batcher.is_idle()), (1, true));
}

#[test]
fn what_is_under_way_goes_on_to_its_end_when_no_more_is_handed_out() {
    let slots = Some(SlotOptions { slots: 2, context: Some(32), memory: None, cuda_graph: false });
    let mut loaded =
        LoadedModel::load(&ModelSource::Embedded, &LoadOptions { slots, ..LoadOptions::default() }).unwrap();
    let mut batcher = Batcher::new(loaded.model.take_slots().unwrap(), BatcherOptions::default());
    let options = GenerateOptions { max_new_tokens: 6, ignore_eos: true, ..GenerateOptions::default() };
    let closed = std::cell::Cell::new(false);
    let request = |n: usize| ContinuousRequest { prompt: vec![1; 2 + n], options: options.clone() };
    let requests = (0..).map(request).take_while(|_| !closed.get());
    let mut tokens = 0;
    let outputs = generate_continuously(&mut batcher, &loaded, requests, 2, &mut |_, _| {
        tokens += 1;
        closed.set(tokens >= 15);
        ControlFlow::Continue(())
    })
    .unwrap();
    // The fourth was asked for after 14 tokens, when the second ended; the fifth when the third did.
    assert_eq!((outputs.len(), tokens), (4, 24));
    assert!(outputs.iter().all(|output| output.sequences[0].finish == FinishReason::Length));
}
