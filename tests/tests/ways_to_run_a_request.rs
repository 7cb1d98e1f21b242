//! The ways in which services run requests with tokio, and what a run says of them against the program's own count:
//! requests, tokens, time to first token, queue time, gaps between tokens, steps by phase. And the gaps in `/metrics`
//! of the same session, after each way.
#![allow(missing_docs, reason = "a test")]

use candlescope::llm::{self, Request, Tokens};
use candlescope_figures::Analysis;
use candlescope_figures::RequestFigures;
use candlescope_reader::Run;
use candlescope_testkit::services::{free_addresses, get};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::{block_in_place, spawn_blocking};
use tracing::{Instrument, Span, info_span, trace_span};
use tracing_subscriber::prelude::*;

const REQUESTS: usize = 6;
const PROMPT: usize = 5;
const TOKENS: usize = 7;
/// The ways; each is the name of the model of its requests.
const WAYS: [&str; 7] = [
    "block_in_place below instrument",
    "block_in_place below an HTTP span",
    "one spawn_blocking",
    "spawn_blocking for each step",
    "block_in_place in an instrumented future",
    "in a handler with a span",
    "batching engine",
];

/// A model as candle's are: its spans are made when it loads.
struct Model {
    pass: Span,
    layers: Vec<Span>,
}

impl Model {
    fn load() -> Self {
        let layer = |_| trace_span!(target: "candle_nn::linear", "linear");
        Self {
            pass: trace_span!(target: "candle_transformers::models::qwen2", "model"),
            layers: (0..3).map(layer).collect(),
        }
    }

    fn forward(&self) {
        let _pass = self.pass.enter();
        for layer in &self.layers {
            layer.in_scope(|| std::thread::sleep(Duration::from_micros(200)));
        }
    }
}

/// Clock readings right before and right after something.
type Moment = (Instant, Instant);

fn around<R>(f: impl FnOnce() -> R) -> (R, Moment) {
    let before = Instant::now();
    let result = f();
    (result, (before, Instant::now()))
}

/// What the program itself knows of a request.
#[derive(Clone)]
struct Own {
    way: &'static str,
    /// Tokens of its prompt, which no other request of the way has.
    prompt: usize,
    arrival: Moment,
    /// When its first phase began.
    first_phase: Option<Moment>,
    tokens: Vec<Moment>,
    /// Ends of the steps that it had to itself, each of which yields a token.
    ends: Vec<Moment>,
}

/// A request and the program's own count of it.
struct Job {
    request: Request,
    own: Own,
    log: Arc<Mutex<Vec<Own>>>,
    model: Arc<Model>,
}

impl Drop for Job {
    fn drop(&mut self) {
        self.log.lock().expect("not poisoned").push(self.own.clone());
    }
}

impl Job {
    fn arrive(way: &'static str, number: usize, service: &Service) -> Self {
        let prompt = PROMPT + number;
        let (request, arrival) = around(|| Request::new("chat", way).prompt_tokens(prompt));
        let own = Own { way, prompt, arrival, first_phase: None, tokens: Vec::new(), ends: Vec::new() };
        Self { request, own, log: service.log.clone(), model: service.model.clone() }
    }

    fn token(&mut self) {
        let ((), moment) = around(|| self.request.token());
        self.own.tokens.push(moment);
    }

    /// Ends a step of this request alone.
    fn end<S>(&mut self, step: S) {
        let ((), moment) = around(|| drop(step));
        self.own.ends.push(moment);
    }

    fn prefill(&mut self) {
        let (step, moment) = around(|| llm::prefill(Tokens::new(self.own.prompt).context(self.own.prompt)));
        self.own.first_phase.get_or_insert(moment);
        self.model.forward();
        self.token();
        self.end(step);
    }

    /// The step that yields the next token.
    fn step(&mut self) {
        match self.own.tokens.len() {
            0 => self.prefill(),
            n => {
                let step = llm::decode(Tokens::new(1).context(self.own.prompt + n));
                self.model.forward();
                self.token();
                self.end(step);
            }
        }
    }

    fn is_done(&self) -> bool {
        self.own.tokens.len() >= TOKENS
    }

    /// All steps, inside the request's span, which somebody else has entered.
    fn steps(&mut self) {
        while !self.is_done() {
            self.step();
        }
    }
}

#[derive(Clone)]
struct Service {
    model: Arc<Model>,
    log: Arc<Mutex<Vec<Own>>>,
    /// Requests wait for their turn.
    turn: Arc<Semaphore>,
}

/// A handler as people write them: its first poll finds no permit.
#[tracing::instrument(skip_all)]
async fn handle(job: &mut Job, turn: &Semaphore) {
    let _permit = turn.acquire().await.expect("open");
    while !job.is_done() {
        block_in_place(|| job.step());
        tokio::task::yield_now().await;
    }
}

/// The same without a span of its own.
async fn stream(job: &mut Job, turn: &Semaphore) {
    let _permit = turn.acquire().await.expect("open");
    while !job.is_done() {
        block_in_place(|| job.step());
        tokio::task::yield_now().await;
    }
}

async fn answer(way: &'static str, number: usize, service: Service) {
    let mut job = Job::arrive(way, number, &service);
    let span = job.request.span().clone();
    match WAYS.iter().position(|each| *each == way) {
        Some(0) => handle(&mut job, &service.turn).instrument(span).await,
        // What tower-http makes around a handler.
        Some(1) => {
            let http = info_span!(target: "tower_http::trace::make_span", "request", method = "POST");
            stream(&mut job, &service.turn).instrument(span).instrument(http).await;
        }
        Some(2) => {
            let _permit = service.turn.acquire().await.expect("open");
            let all = move || span.in_scope(|| job.steps());
            spawn_blocking(all).await.expect("works");
        }
        Some(3) => {
            let _permit = service.turn.acquire().await.expect("open");
            while !job.is_done() {
                let span = span.clone();
                let step = move || {
                    span.in_scope(|| job.step());
                    job
                };
                job = spawn_blocking(step).await.expect("works");
            }
        }
        Some(4) => stream(&mut job, &service.turn).instrument(span).await,
        _ => {
            let _permit = service.turn.acquire().await.expect("open");
            let handler = info_span!(target: "service", "handler");
            spawn_blocking(move || handler.in_scope(|| span.in_scope(|| job.steps()))).await.expect("works");
        }
    }
}

/// One thread decodes all requests at once: they are entered for their prefills only. Returns how many decoding steps it
/// took.
fn engine(mut queue: mpsc::Receiver<(Job, oneshot::Sender<()>)>, model: &Model) -> usize {
    let (mut running, mut decodes): (Vec<(Job, oneshot::Sender<()>)>, usize) = (Vec::new(), 0);
    loop {
        let next = match running.is_empty() {
            true => queue.blocking_recv(),
            false => queue.try_recv().ok(),
        };
        if let Some((mut job, done)) = next {
            let span = job.request.span().clone();
            span.in_scope(|| job.prefill());
            running.push((job, done));
        } else if running.is_empty() {
            return decodes;
        }
        let n = running.len();
        let step = llm::decode(Tokens::new(n).context(PROMPT + TOKENS).batch(n));
        model.forward();
        running.iter_mut().for_each(|(job, _)| job.token());
        drop(step);
        decodes += 1;
        for at in (0..running.len()).rev().filter(|at| running[*at].0.is_done()).collect::<Vec<_>>() {
            let (job, done) = running.swap_remove(at);
            drop(job);
            let _ = done.send(());
        }
    }
}

/// Runs all ways, one after the other, and calls `after` when all requests of a way have ended. Returns the program's
/// own count and the number of the engine's decoding steps.
fn serve(mut after: impl FnMut(&'static str)) -> (Vec<Own>, usize) {
    let service = Service { model: Arc::new(Model::load()), log: Arc::default(), turn: Arc::new(Semaphore::new(2)) };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).enable_time().build().expect("starts");
    let decodes = runtime.block_on(async {
        for way in WAYS.into_iter().take(6) {
            let all: Vec<_> = (0..REQUESTS).map(|n| tokio::spawn(answer(way, n, service.clone()))).collect();
            for each in all {
                each.await.expect("answers");
            }
            after(way);
        }
        let (queue, jobs) = mpsc::channel(REQUESTS);
        let model = service.model.clone();
        let engine = std::thread::spawn(move || engine(jobs, &model));
        let mut all = Vec::new();
        for number in 0..REQUESTS {
            let (done, end) = oneshot::channel();
            queue.send((Job::arrive(WAYS[6], number, &service), done)).await.expect("runs");
            all.push(end);
            tokio::time::sleep(Duration::from_micros(700)).await;
        }
        for each in all {
            each.await.expect("answers");
        }
        drop(queue);
        let decodes = spawn_blocking(move || engine.join().expect("ends")).await.expect("ends");
        after(WAYS[6]);
        decodes
    });
    let log = std::mem::take(&mut *service.log.lock().expect("not poisoned"));
    (log, decodes)
}

/// Asserts that a time is between two moments, but for what the clocks differ.
fn assert_between(measured: Option<u64>, from: Moment, to: Moment, what: &str) {
    let measured = measured.unwrap_or_else(|| panic!("{what} is not known"));
    let ns = |a: Instant, b: Instant| b.saturating_duration_since(a).as_nanos() as u64;
    let (least, most) = (ns(from.1, to.0), ns(from.0, to.1));
    let slack = 5_000 + most / 1_000;
    assert!(measured + slack >= least && measured <= most + slack, "{what}: {measured} is not in {least}..{most}");
}

/// Gaps between tokens that `/metrics` has counted so far, and their sum in nanoseconds.
fn gaps(page: &str) -> (u64, f64) {
    let value = |of: &str| {
        let series = format!("candlescope_inter_token_latency_seconds_{of} ");
        let line = page.lines().find_map(|line| line.strip_prefix(series.as_str()));
        let line = line.unwrap_or_else(|| panic!("{series}: {page}"));
        line.trim().parse::<f64>().unwrap_or_else(|error| panic!("{series}{line}: {error}"))
    };
    (value("count") as u64, value("sum") * 1e9)
}

/// Asserts that the gaps of a way's requests in `/metrics` are those between the ends of the steps that each had to
/// itself, whatever threads these ran on.
fn assert_gaps(way: &str, own: &[&Own], (count, sum_ns): (u64, f64)) {
    let ns = |a: Instant, b: Instant| b.saturating_duration_since(a).as_nanos() as f64;
    // Steps of the engine are nobody's alone, but for the prefill.
    let expected: usize = own.iter().map(|own| own.ends.len() - 1).sum();
    assert_eq!(count, expected as u64, "{way}: gaps between tokens in /metrics");
    assert_eq!(expected, if way == WAYS[6] { 0 } else { REQUESTS * (TOKENS - 1) }, "{way}: by the program");
    let (mut least, mut most) = (0.0, 0.0);
    for (first, last) in own.iter().map(|own| (own.ends[0], own.ends[own.ends.len() - 1])) {
        let longest = ns(first.0, last.1);
        // What the clocks differ.
        let slack = 5_000.0 + longest / 1_000.0;
        least += ns(first.1, last.0) - slack;
        most += longest + slack;
    }
    assert!(sum_ns >= least && sum_ns <= most, "{way}: gaps in /metrics are {sum_ns} ns, not in {least}..{most}");
}

#[test]
fn what_a_run_and_its_metrics_say_is_what_the_program_counts() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = dir.path().join("run");
    let [address] = free_addresses();
    let builder = candlescope::builder().parquet(&run).prometheus(address.to_string());
    let (layer, scope) = builder.layer().expect("starts");
    tracing_subscriber::registry().with(layer).init();
    let mut scraped: Vec<(&'static str, (u64, f64))> = Vec::new();
    let (own, decodes) = serve(|way| {
        scope.flush(Duration::from_secs(10)).expect("flushes");
        scraped.push((way, gaps(&get(address, "/metrics").expect("metrics"))));
    });
    let mut before = (0, 0.0);
    assert_eq!(scraped.iter().map(|(way, _)| *way).collect::<Vec<_>>(), WAYS);
    for (way, so_far) in scraped {
        let of_way: Vec<&Own> = own.iter().filter(|own| own.way == way).collect();
        assert_gaps(way, &of_way, (so_far.0 - before.0, so_far.1 - before.1));
        before = so_far;
    }
    let manifest = scope.finish().expect("was on");
    assert_eq!(manifest.loss.lost(), 0, "{:?}", manifest.loss);
    let analysis = Analysis::of(&Run::open(&run).expect("opens"));

    for way in WAYS {
        let own: Vec<&Own> = own.iter().filter(|own| own.way == way).collect();
        let rows: Vec<&RequestFigures> = analysis.latency.requests.iter().filter(|row| row.model == way).collect();
        assert_eq!((own.len(), rows.len()), (REQUESTS, REQUESTS), "{way}");
        for own in own {
            let last = own.tokens.last().expect("had tokens");
            let row = rows.iter().find(|row| row.prompt_tokens == Some(own.prompt as u64)).expect("has a row");
            assert_between(row.ttft_ns, own.arrival, own.tokens[0], &format!("{way}: TTFT"));
            assert_between(row.e2e_ns, own.arrival, *last, &format!("{way}: end to end"));
            assert_between(row.queue_ns, own.arrival, own.first_phase.expect("had one"), &format!("{way}: queue"));
            assert_eq!((row.prompt_tokens, row.output_tokens), (Some(own.prompt as u64), Some(TOKENS as u64)), "{way}");
            // Decoding steps of the engine belong to no request.
            let gaps = if way == WAYS[6] { 0 } else { TOKENS - 1 };
            assert_eq!(row.itl_ns.len(), gaps, "{way}: gaps between tokens");
        }
    }

    // Steps are the model's passes, each a phase: no poll of a handler is one, and nothing else is in any figure.
    let steps: Vec<(&str, u64, u64)> =
        analysis.phases.rows.iter().map(|row| (row.name.as_str(), row.steps, row.intervals)).collect();
    let requests = WAYS.len() * REQUESTS;
    let of_requests = 6 * REQUESTS * (TOKENS - 1);
    let intervals = |steps: usize| (steps * 5) as u64;
    assert_eq!(
        steps,
        [
            ("prefill", requests as u64, intervals(requests)),
            ("decode", (of_requests + decodes) as u64, intervals(of_requests + decodes))
        ]
    );
    let paths: Vec<&str> = analysis.operators.iter().map(|operator| operator.path.as_str()).collect();
    let ours = |path: &&str| ["prefill", "decode"].iter().any(|phase| path.starts_with(phase)) || *path == "request";
    assert!(paths.iter().all(ours), "{paths:?}");
    let of_operators: f64 = analysis.phases.rows.iter().map(|row| row.share).sum();
    assert!((of_operators - 1.0).abs() < 0.01, "shares of the steps add up to {of_operators}");
    let said: Vec<&str> = manifest.verdict.findings.iter().map(|finding| finding.code.as_str()).collect();
    assert!(said.contains(&"spans_outside_phases") && manifest.verdict.ok, "{:?}", manifest.verdict);
}
