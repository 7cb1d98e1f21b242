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
    CausalLm, FinishReason, GenerateOptions, KvCacheDType, Llama, LoadOptions, LoadedModel, ModelSource,
    SamplingOptions, generate,
};
use candlescope_work::operation::Cost;
use common::*;
use std::cell::{Cell, RefCell};
use std::ops::{ControlFlow, Range};
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use tracing_subscriber::prelude::*;

fn llama() -> Llama {
    Llama::load(&tiny(), &mut RandomWeights::new(&tiny(), 7, DType::F32, &Device::Cpu), DType::F32, &Device::Cpu)
        .unwrap()
}

fn batcher<'a>(slots: usize, options: BatcherOptions) -> Batcher<'a> {
    batcher_of(llama(), slots, options)
}

fn batcher_of<'a>(model: impl SlotModel + 'static, slots: usize, options: BatcherOptions) -> Batcher<'a> {
    let slots = SlotOptions { slots, context: Some(64), ..SlotOptions::default() };
    Batcher::new(SlotDecoder::new(Box::new(model), &slots).unwrap(), options)
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
    alone_in(llama(), prompt, tokens, sampling)
}

fn alone_in(model: Llama, prompt: &[u32], tokens: usize, sampling: SamplingOptions) -> Vec<u32> {
    let mut one = batcher_of(model, 1, BatcherOptions::default());
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

/// A slot is not held until the prompts before it have passed.
#[test]
fn a_client_that_leaves_behind_a_long_prompt_frees_its_slot() {
    let mut two = batcher(2, BatcherOptions { prompt_piece: 1, ..BatcherOptions::default() });
    let (long, first) = job(&prompt(0, 40), 2, SamplingOptions::default());
    let (short, second) = job(&prompt(1, 9), 2, SamplingOptions::default());
    two.submit(long);
    two.submit(short);
    two.turn();
    assert_eq!((two.running(), two.has_room()), (2, false));
    second.patience.set(Some(0));
    two.turn();
    assert_eq!((two.running(), two.has_room(), second.end()), (1, true, Ok(FinishReason::Cancelled)));
    run(&mut two);
    assert_eq!(*first.tokens.borrow(), alone(&prompt(0, 40), 2, SamplingOptions::default()));
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

/// What a model is told by a test, and tells it.
#[derive(Default)]
struct Told {
    fails: AtomicBool,
    cannot_move: AtomicBool,
    /// Of each step of slots.
    rows: Mutex<Vec<usize>>,
}

/// A model that fails when it is told to.
struct Watched {
    model: Llama,
    told: Arc<Told>,
}

impl Watched {
    fn new() -> (Self, Arc<Told>) {
        let told = Arc::<Told>::default();
        (Self { model: llama(), told: told.clone() }, told)
    }
}

impl CausalLm for Watched {
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

impl SlotModel for Watched {
    fn hold(&mut self, slots: usize, context: usize) -> Result<()> {
        self.model.hold(slots, context)
    }

    fn forward_at(&mut self, tokens: &Tensor, place: Place<'_>) -> Result<Tensor> {
        if self.told.fails.load(Relaxed) {
            candle_core::bail!("out of memory")
        }
        if matches!(place, Place::Each(_)) {
            self.told.rows.lock().unwrap().push(tokens.dim(0)?);
        }
        self.model.forward_at(tokens, place)
    }

    fn slot_step(&self, places: SlotPlaces) -> Result<SlotStep> {
        self.model.slot_step(places)
    }

    fn erase(&mut self, slots: Range<usize>, from: usize, to: usize) -> Result<()> {
        self.model.erase(slots, from, to)
    }

    fn exchange(&mut self, a: (usize, usize), b: (usize, usize)) -> Result<()> {
        if self.told.cannot_move.load(Relaxed) {
            candle_core::bail!("no memory for a copy")
        }
        self.model.exchange(a, b)
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
    let (model, told) = Watched::new();
    let mut two = batcher_of(model, 2, BatcherOptions::default());
    let clients: Vec<_> = (0..4)
        .map(|n| {
            let (job, got) = job(&prompt(n, 20), 6, SamplingOptions::default());
            two.submit(job);
            got
        })
        .collect();
    (0..3).for_each(|_| two.turn());
    told.fails.store(true, Relaxed);
    two.turn();
    let message = "generation failed at a step of several sequences: out of memory";
    assert!(clients[..2].iter().all(|got| got.end() == Err(message.to_string())), "{:?}", clients[0].end.borrow());
    // A prompt that comes now fails by itself, and once the model works again, what the slots held is not trusted.
    two.turn();
    assert!(clients[2].end().unwrap_err().contains("prefill of 20 tokens: out of memory"));
    told.fails.store(false, Relaxed);
    run(&mut two);
    assert_eq!(clients[3].end(), Ok(FinishReason::Length));
    assert_eq!(*clients[3].tokens.borrow(), alone(&prompt(3, 20), 6, SamplingOptions::default()));
    assert_eq!(two.shared_tokens(), 0);
}

/// Requests of so many tokens, whose prompts have five each.
fn submitted(batcher: &mut Batcher<'_>, tokens: &[usize]) -> Vec<Rc<Got>> {
    let submit = |(n, tokens): (usize, &usize)| {
        let (job, got) = job(&prompt(n, 5), *tokens, SamplingOptions::default());
        batcher.submit(job);
        got
    };
    tokens.iter().enumerate().map(submit).collect()
}

#[test]
fn a_request_that_is_left_alone_pays_for_no_other_slot() {
    let (model, told) = Watched::new();
    let mut four = batcher_of(model, 4, BatcherOptions::default());
    let clients = submitted(&mut four, &[1, 1, 1, 50]);
    run(&mut four);
    let rows = told.rows.lock().unwrap().clone();
    assert_eq!((rows.len(), four.moved_sequences()), (49, 1));
    // A client that asks again would have taken a free slot by then.
    assert!(rows[..3] == [4; 3] && rows[3..].iter().all(|rows| *rows == 1), "{rows:?}");
    assert_eq!(*clients[3].tokens.borrow(), alone(&prompt(3, 5), 50, SamplingOptions::default()));
}

#[test]
fn no_sequence_moves_while_clients_ask_again_or_for_a_few_tokens() {
    let mut two = batcher(2, BatcherOptions::default());
    submitted(&mut two, &[2, 58]);
    let mut ended = 0;
    while !two.is_idle() {
        two.turn();
        if two.running() == 1 && ended < 56 {
            ended += 1;
            submitted(&mut two, &[2]);
        }
    }
    assert_eq!((ended, two.moved_sequences()), (56, 0), "the slot below was never free for long");
    submitted(&mut two, &[2, 19]);
    run(&mut two);
    assert_eq!(two.moved_sequences(), 0, "it ends soon");
}

/// All orders of the numbers below `count`.
fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let longer = |order: Vec<usize>| (0..count).map(move |at| [&order[..at], &[count - 1], &order[at..]].concat());
    orders(count - 1).into_iter().flat_map(longer).collect()
}

#[test]
fn in_whatever_order_requests_end_a_move_changes_no_token() {
    let drawn = SamplingOptions { temperature: Some(0.9), top_k: Some(20), ..SamplingOptions::default() };
    let penalised = SamplingOptions { repeat_penalty: 1.5, ..drawn.clone() };
    // Tokens of the prompt and of the text.
    let requests = [(3, 2, SamplingOptions::default()), (9, 5, drawn.clone()), (17, 22, penalised), (18, 44, drawn)];
    for kept_as in KvCacheDType::ALL {
        let model = || llama().kv_cache_dtype(*kept_as);
        let text = |(n, (tokens, made, sampling)): (usize, &(usize, usize, SamplingOptions))| {
            alone_in(model(), &prompt(n, *tokens), *made, sampling.clone())
        };
        let expected: Vec<Vec<u32>> = requests.iter().enumerate().map(text).collect();
        let mut four = batcher_of(model(), 4, BatcherOptions { prompt_piece: 9, ..BatcherOptions::default() });
        for (at, order) in orders(4).into_iter().enumerate() {
            let submit = |n: usize| {
                let (tokens, made, sampling) = &requests[n];
                let (job, got) = job(&prompt(n, *tokens), *made, sampling.clone());
                four.submit(job);
                (n, got)
            };
            let clients: Vec<(usize, Rc<Got>)> = order.iter().copied().map(submit).collect();
            run(&mut four);
            for (n, got) in clients {
                assert_eq!(*got.tokens.borrow(), expected[n], "request {n} of {order:?}, {kept_as:?}");
            }
            // What slots hold of the orders before changes places, too, and serves in every other one.
            if at % 2 == 0 {
                four.forget();
            }
        }
        assert!(four.moved_sequences() >= 20 && four.shared_tokens() > 0, "{four:?}, {kept_as:?}");
    }
}

#[test]
fn what_a_slot_holds_for_prompts_to_come_changes_places_with_a_sequence_that_moves() {
    for kept_as in KvCacheDType::ALL {
        let model = || llama().kv_cache_dtype(*kept_as);
        let options = BatcherOptions { least_shared: 8, ..BatcherOptions::default() };
        let mut two = batcher_of(model(), 2, options);
        let with = |system: usize, own: usize| [prompt(system, 18), prompt(own, 3)].concat();
        let ask = |two: &mut Batcher<'_>, prompt: &[u32], tokens: usize| {
            let (job, got) = job(prompt, tokens, SamplingOptions::default());
            two.submit(job);
            got
        };
        let first = ask(&mut two, &with(9, 60), 2);
        let second = ask(&mut two, &with(20, 61), 40);
        while two.moved_sequences() == 0 {
            assert!(!two.is_idle(), "it never moved");
            two.turn();
        }
        assert_eq!(first.end(), Ok(FinishReason::Length));
        // Each begins as one of them did, and then differs.
        let third = ask(&mut two, &with(9, 62), 3);
        run(&mut two);
        assert_eq!(two.shared_tokens(), 18, "{kept_as:?}: what stood in the slot below is still there");
        let fourth = ask(&mut two, &with(20, 63), 3);
        run(&mut two);
        assert_eq!(two.shared_tokens(), 36, "{kept_as:?}: and what moved is where it is");
        let all =
            [(first, with(9, 60), 2), (second, with(20, 61), 40), (third, with(9, 62), 3), (fourth, with(20, 63), 3)];
        for (n, (got, prompt, tokens)) in all.into_iter().enumerate() {
            let expected = alone_in(model(), &prompt, tokens, SamplingOptions::default());
            assert_eq!(*got.tokens.borrow(), expected, "request {n}, {kept_as:?}");
        }
    }
}

#[test]
fn a_client_that_goes_away_when_its_sequence_would_move_costs_no_step() {
    let (model, told) = Watched::new();
    let mut four = batcher_of(model, 4, BatcherOptions::default());
    let clients = submitted(&mut four, &[1, 1, 1, 50]);
    (0..6).for_each(|_| four.turn());
    assert_eq!((told.rows.lock().unwrap().len(), four.moved_sequences()), (3, 0));
    clients[3].patience.set(Some(0));
    four.turn();
    assert_eq!((clients[3].end(), clients[3].tokens.borrow().len()), (Ok(FinishReason::Cancelled), 4));
    assert_eq!((told.rows.lock().unwrap().len(), four.moved_sequences(), four.is_idle()), (3, 0, true));
    // After it has moved, it ends as ever, and the slots serve others.
    let clients = submitted(&mut four, &[1, 1, 1, 50]);
    while four.moved_sequences() == 0 {
        four.turn();
    }
    clients[3].patience.set(Some(0));
    run(&mut four);
    assert_eq!(clients[3].end(), Ok(FinishReason::Cancelled));
    let again = submitted(&mut four, &[9; 5]);
    run(&mut four);
    for (n, got) in again.iter().enumerate() {
        assert_eq!(*got.tokens.borrow(), alone(&prompt(n, 5), 9, SamplingOptions::default()), "request {n}");
    }
}

#[test]
fn a_move_that_fails_ends_the_requests_of_its_step_and_leaves_nothing_to_trust() {
    let (model, told) = Watched::new();
    let mut four = batcher_of(model, 4, BatcherOptions { least_shared: 2, ..BatcherOptions::default() });
    let clients = submitted(&mut four, &[1, 1, 1, 50]);
    told.cannot_move.store(true, Relaxed);
    run(&mut four);
    let message = "generation failed at a step of several sequences: no memory for a copy";
    assert_eq!((clients[3].end(), clients[3].tokens.borrow().len()), (Err(message.to_string()), 4));
    assert_eq!(((0..4).filter(|slot| four.decoder().held(*slot) > 0).count(), four.moved_sequences()), (2, 0));
    told.cannot_move.store(false, Relaxed);
    let again = submitted(&mut four, &[2, 3, 4, 50]);
    run(&mut four);
    assert_eq!((four.shared_tokens(), four.moved_sequences()), (2 * 4, 1), "of the slots that no failure touched");
    for (n, (got, tokens)) in again.iter().zip([2, 3, 4, 50]).enumerate() {
        assert_eq!(*got.tokens.borrow(), alone(&prompt(n, 5), tokens, SamplingOptions::default()), "request {n}");
    }
}

#[test]
fn a_move_is_a_part_of_the_step_that_follows() {
    let memory = MemoryExporter::new();
    let (layer, session) = Session::builder().exporter(memory.clone()).start().unwrap();
    listening(tracing_subscriber::registry().with(layer), || {
        let mut four = batcher(4, BatcherOptions::default());
        submitted(&mut four, &[1, 1, 1, 50]);
        run(&mut four);
        assert_eq!(four.moved_sequences(), 1);
    });
    assert!(session.finish().verdict.ok);
    let batch = memory.batch();
    let moves: Vec<_> = batch.spans.iter().filter(|span| &*span.path.name == "move_sequence").collect();
    assert_eq!(moves.len(), 1, "{moves:?}");
    let (config, step) = (tiny(), batch.steps.iter().find(|step| Some(step.step) == moves[0].step).expect("its step"));
    assert_eq!((step.phase, step.serves.len()), (Some(Phase::Decode), 1));
    // Eight positions and five in f32, keys and values, read and written twice.
    let of_a_token = 2 * config.num_layers * config.num_kv_heads * config.head_dim * 4;
    assert_eq!((moves[0].io_bytes, moves[0].bytes), (Some((4 * (8 + 5) * of_a_token) as u64), None));
    let long = batch.requests.iter().find(|request| request.output_tokens == Some(50)).expect("its row");
    let serves = batch.steps.iter().flat_map(|step| &step.serves).filter(|served| served.request == long.request);
    assert_eq!(serves.map(|served| u64::from(served.output_tokens)).sum::<u64>(), 50, "every token has its step");
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
    let mut slotted = load(Some(SlotOptions { slots: 2, context: Some(128), ..SlotOptions::default() }));
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
    let slots = Some(SlotOptions { slots: 2, context: Some(32), ..SlotOptions::default() });
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
    let slots = Some(SlotOptions { slots: 2, context: Some(32), ..SlotOptions::default() });
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
