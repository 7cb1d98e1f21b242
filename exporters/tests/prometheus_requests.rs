//! What `/metrics` says of requests, beside a program's own count: real sessions, read over a socket.
#![allow(missing_docs, reason = "a test")]

use candlescope_core::llm::{self, Request, Tokens};
use candlescope_core::{Outcome, Session};
use candlescope_exporters::prometheus::exposition::parse_some;
use candlescope_exporters::prometheus::{PrometheusConfig, PrometheusExporter};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tracing::{Dispatch, dispatcher};
use tracing_subscriber::prelude::*;

fn metrics(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n").expect("asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    answer
}

/// The sum of a metric's series that contain `labels`.
fn value(metrics: &str, name: &str, labels: &str) -> f64 {
    let of_metric = parse_some(metrics, |metric| metric == name);
    of_metric.iter().filter(|(series, _)| series.contains(labels)).map(|(_, value)| value).sum()
}

/// Runs `program` under a session with an endpoint. Its threads get the dispatcher. Returns what the endpoint says once
/// everything has come, before the session ends.
fn scraped(program: impl FnOnce(&Dispatch)) -> String {
    let exporter = PrometheusExporter::new(PrometheusConfig::new("127.0.0.1:0"));
    let endpoint = exporter.endpoint();
    let session = Session::builder().exporter(exporter).drain_interval(Duration::from_millis(2));
    let (layer, session) = session.start().expect("starts");
    let dispatch = Dispatch::new(tracing_subscriber::registry().with(layer));
    dispatcher::with_default(&dispatch, || program(&dispatch));
    session.handle().flush(Duration::from_secs(20)).expect("flushes");
    let said = metrics(endpoint.address().expect("listens"));
    session.finish();
    said
}

fn forward(at_least: Duration) {
    tracing::trace_span!("linear").in_scope(|| std::thread::sleep(at_least));
}

/// Gaps between the tokens of requests, as the program sees them.
#[derive(Default)]
struct Own {
    gaps: Vec<Duration>,
}

impl Own {
    fn agrees(&self, said: &str) {
        let count = value(said, "candlescope_inter_token_latency_seconds_count", "");
        assert_eq!(count as usize, self.gaps.len(), "gaps");
        let (own, theirs) = (
            self.gaps.iter().sum::<Duration>().as_secs_f64(),
            value(said, "candlescope_inter_token_latency_seconds_sum", ""),
        );
        assert!((theirs - own).abs() < 0.1 * own + 0.02, "{theirs} s of gaps for {own}");
    }
}

/// As with tokio's `spawn_blocking` for each step, which takes whatever thread is free: each step of four requests at
/// once runs on a thread of its own choice.
#[test]
fn gaps_between_tokens_are_right_whatever_threads_the_steps_run_on() {
    const THREADS: usize = 4;
    let own = Mutex::new(Own::default());
    let said = scraped(|dispatch| {
        std::thread::scope(|scope| {
            let pool: Vec<_> = (0..THREADS)
                .map(|_| {
                    let (sender, jobs) = std::sync::mpsc::channel::<Box<dyn FnOnce() + Send>>();
                    scope.spawn(move || dispatcher::with_default(dispatch, || jobs.iter().for_each(|job| job())));
                    sender
                })
                .collect();
            for n in 0..THREADS {
                let (pool, own) = (pool.clone(), &own);
                scope.spawn(move || {
                    let request = dispatcher::with_default(dispatch, || Request::new("chat", "m").prompt_tokens(5));
                    let request = std::sync::Arc::new(request);
                    let mut latest: Option<Instant> = None;
                    for token in 0..60 {
                        let (done, ended) = std::sync::mpsc::channel();
                        let of_step = request.clone();
                        let step = move || {
                            let in_request = of_step.enter();
                            let step = match token {
                                0 => llm::prefill(Tokens::new(5).context(5)),
                                _ => llm::decode(Tokens::new(1).context(5 + token)),
                            };
                            forward(Duration::from_micros(500));
                            of_step.token();
                            drop(step);
                            drop(in_request);
                            drop(of_step);
                            done.send(Instant::now()).expect("is waited for");
                        };
                        // A step is never on the thread of the one before.
                        pool[(n + token * 3) % THREADS].send(Box::new(step)).expect("works");
                        let now = ended.recv().expect("ends");
                        own.lock().unwrap().gaps.extend(latest.replace(now).map(|before| now - before));
                    }
                });
            }
            drop(pool);
        });
    });
    let own = own.into_inner().unwrap();
    assert_eq!(own.gaps.len(), THREADS * 59);
    own.agrees(&said);
}

/// Before a request ends, its gaps are shown after a while.
#[test]
fn gaps_of_a_request_that_goes_on_are_shown_by_a_flush() {
    let mut own = Own::default();
    let mut open = None;
    let said = scraped(|_| {
        let request = Request::new("chat", "m");
        let mut latest: Option<Instant> = None;
        for token in 0..100 {
            let in_request = request.enter();
            let step = if token == 0 { llm::prefill(Tokens::new(5)) } else { llm::decode(Tokens::new(1)) };
            forward(Duration::from_micros(500));
            request.token();
            drop((step, in_request));
            let now = Instant::now();
            own.gaps.extend(latest.replace(now).map(|before| now - before));
        }
        open = Some(request);
    });
    own.agrees(&said);
    assert_eq!(value(&said, "candlescope_requests_active", ""), 1.0);
}

/// An engine that batches continuously: in each step one token of every request that generates, and the prompt of one
/// that has just come.
#[test]
fn steps_for_several_requests_give_each_its_own_latency() {
    struct Sequence {
        request: Request,
        started: Instant,
        left: usize,
        latest: Option<Instant>,
    }
    let (mut own, mut ttft, mut queued) = (Own::default(), Duration::ZERO, Duration::ZERO);
    let said = scraped(|_| {
        let mut waiting: Vec<Sequence> = (0..12)
            .map(|n| {
                let (request, started) = (Request::new("chat", "m").prompt_tokens(7), Instant::now());
                Sequence { request, started, left: 5 + n % 3, latest: None }
            })
            .collect();
        let mut running: Vec<Sequence> = Vec::new();
        while !waiting.is_empty() || !running.is_empty() {
            running.extend(waiting.pop());
            let began = Instant::now();
            let step = llm::decode(Tokens::new(running.len() + 6).batch(running.len()));
            forward(Duration::from_millis(1));
            for sequence in &running {
                let passed = if sequence.latest.is_none() { 7 } else { 1 };
                llm::serves(&sequence.request, Tokens::new(passed), 1);
            }
            drop(step);
            let now = Instant::now();
            for sequence in &mut running {
                if sequence.latest.is_none() {
                    ttft += now - sequence.started;
                    queued += began - sequence.started;
                }
                own.gaps.extend(sequence.latest.replace(now).map(|before| now - before));
                sequence.left -= 1;
                if sequence.left == 0 {
                    sequence.request.outcome(Outcome::Done);
                }
            }
            running.retain(|sequence| sequence.left > 0);
        }
    });
    assert_eq!(own.gaps.len(), 4 * (4 + 5 + 6));
    own.agrees(&said);
    for (name, own) in
        [("gen_ai_server_time_to_first_token_seconds", ttft), ("candlescope_request_queue_time_seconds", queued)]
    {
        assert_eq!(value(&said, &format!("{name}_count"), "gen_ai_request_model=\"m\""), 12.0, "{name}");
        let theirs = value(&said, &format!("{name}_sum"), "");
        assert!((theirs - own.as_secs_f64()).abs() < 0.1 * own.as_secs_f64() + 0.02, "{name}: {theirs} for {own:?}");
    }
    assert_eq!(value(&said, "candlescope_requests_total", "outcome=\"done\""), 12.0);
}

#[test]
fn how_requests_ended_is_counted() {
    let said = scraped(|_| {
        let end = |outcome: Option<Outcome>| {
            let request = Request::new("chat", "m");
            outcome.into_iter().for_each(|outcome| request.outcome(outcome));
        };
        let ends = [Some(Outcome::Done), Some(Outcome::Done), Some(Outcome::Cancelled), Some(Outcome::Failed), None];
        ends.into_iter().for_each(end);
    });
    for (outcome, n) in [("done", 2.0), ("cancelled", 1.0), ("failed", 1.0), ("unstated", 1.0)] {
        let labels = format!("{{gen_ai_request_model=\"m\",outcome=\"{outcome}\"}}");
        assert_eq!(value(&said, "candlescope_requests_total", &labels), n, "{outcome}: {said}");
    }
    assert_eq!(value(&said, "candlescope_request_queue_time_seconds_count", ""), 0.0, "they had no step");
}

/// A host that passes on what its clients call a model, and spans named after what they ask.
#[test]
fn long_names_do_not_make_a_scrape_long() {
    let said = scraped(|_| {
        for n in 0..20 {
            let long = format!("{n}{}", "ä".repeat(500_000));
            let request = Request::new("chat", &long);
            let _in_request = request.enter();
            for _ in 0..2 {
                let _outer = tracing::info_span!("step", otel.name = %long).entered();
                tracing::info_span!("inner", otel.name = %long).in_scope(|| ());
            }
        }
    });
    assert!(said.len() < 2 << 20, "{} bytes", said.len());
    let longest = said.split('"').skip(1).step_by(2).map(str::len).max().expect("labels");
    assert!((200..=256).contains(&longest), "{longest}");
    assert_eq!(value(&said, "gen_ai_server_request_duration_seconds_count", ""), 20.0);
}
