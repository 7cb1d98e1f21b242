//! Rates of sampled steps against a program that counts for itself: two and three workers in bursts, which idle, join
//! and leave, one long step; in the report and in `/metrics`. And how many requests have a first token.
#![allow(missing_docs, reason = "a test")]

use candlescope::sdk::StepAction;
use candlescope::{Annotation, Schedule, annotate, llm};
use candlescope_core::stretches::{Stretch, length, merged};
use candlescope_figures::Analysis;
use candlescope_figures::PhaseRow;
use candlescope_reader::Run;
use candlescope_testkit::services::{free_addresses, get};
use std::time::{Duration, Instant};
use tracing_subscriber::prelude::*;

/// Bytes that a step states.
const BYTES: u64 = 1_000_000;

/// A decoding step as the program itself saw it.
#[derive(Clone, Copy)]
struct Own {
    stretch: Stretch,
    tokens: u64,
}

/// One worker: from `joins` to `leaves` it answers requests of some steps each and idles between them.
struct Worker {
    joins: Duration,
    leaves: Duration,
    /// Idles this many microseconds at most.
    idle_us: u64,
    /// Has one step of half a second.
    long: bool,
}

const fn worker(joins_ms: u64, leaves_ms: u64, idle_us: u64, long: bool) -> Worker {
    Worker { joins: Duration::from_millis(joins_ms), leaves: Duration::from_millis(leaves_ms), idle_us, long }
}

impl Worker {
    fn work(&self, begin: Instant, seed: u64) -> Vec<Own> {
        let mut random = seed;
        let mut below = |n: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % n
        };
        let (mut own, mut long) = (Vec::new(), self.long);
        std::thread::sleep(self.joins);
        while begin.elapsed() < self.leaves {
            let request = llm::Request::new("chat", "m").prompt_tokens(4);
            let in_request = request.enter();
            {
                let _step = llm::prefill(llm::Tokens::new(4).context(4));
                std::thread::sleep(Duration::from_micros(500 + below(500)));
                request.token();
            }
            for n in 0..8 + below(16) {
                let batch = 1 + below(3) as usize;
                let start = begin.elapsed().as_nanos() as i64;
                {
                    let _step = llm::decode(llm::Tokens::new(batch).context(5 + n as usize).batch(batch));
                    annotate(Annotation::new().bytes(BYTES));
                    let us = if long && own.len() == 300 { 500_000 } else { 200 + below(800) };
                    long &= us < 500_000;
                    std::thread::sleep(Duration::from_micros(us));
                }
                request.token();
                own.push(Own { stretch: (start, begin.elapsed().as_nanos() as i64), tokens: batch as u64 });
            }
            drop(in_request);
            drop(request);
            std::thread::sleep(Duration::from_micros(below(self.idle_us)));
        }
        own
    }
}

struct Figures {
    tokens_per_s: f64,
    gbytes: f64,
    at_once: f64,
}

/// Runs the workers; returns what the program counted, the report's row of decoding steps, and what was served.
fn record(schedule: Option<Schedule>, probe: Option<u64>, workers: &[Worker]) -> (Figures, PhaseRow, Figures) {
    let [address] = free_addresses();
    let dir = tempfile::tempdir().expect("a directory");
    let run = dir.path().join("run");
    let mut builder = candlescope::builder().prometheus(address.to_string()).parquet(&run);
    if let Some(schedule) = schedule {
        builder = builder.schedule(schedule);
    }
    if let Some(probe) = probe {
        builder = builder.overhead_probe(probe);
    }
    let (layer, scope) = builder.layer().expect("starts");
    let dispatch = tracing::Dispatch::new(tracing_subscriber::registry().with(layer));
    let begin = Instant::now();
    let own: Vec<Own> = std::thread::scope(|threads| {
        let work = |(seed, worker): (usize, &Worker)| {
            tracing::dispatcher::with_default(&dispatch, || worker.work(begin, seed as u64 * 77 + 5))
        };
        let threads: Vec<_> = workers.iter().enumerate().map(|each| threads.spawn(move || work(each))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("works")).collect()
    });
    // Twice, because the account is read while the last records are still on their way.
    (0..2).for_each(|_| scope.flush(Duration::from_secs(5)).expect("flushes"));
    let page = get(address, "/metrics").expect("metrics");
    let served = |series: &str| {
        let line =
            page.lines().find_map(|line| line.strip_prefix(series)).unwrap_or_else(|| panic!("{series}: {page}"));
        line.trim().parse::<f64>().expect("a number")
    };
    let live = Figures {
        tokens_per_s: served("candlescope_tokens_per_second{phase=\"decode\"}"),
        gbytes: f64::NAN,
        at_once: served("candlescope_step_concurrency{phase=\"decode\"}"),
    };
    let manifest = scope.finish().expect("was on");
    assert_eq!(manifest.loss.lost(), 0, "{:?}", manifest.loss);
    let open_ns = length(&merged(own.iter().map(|own| own.stretch))) as f64;
    let sum = |of: fn(&Own) -> u64| own.iter().map(of).sum::<u64>() as f64 / open_ns;
    let truth = Figures {
        tokens_per_s: sum(|own| own.tokens) * 1e9,
        gbytes: sum(|_| BYTES),
        at_once: sum(|own| own.stretch.1.abs_diff(own.stretch.0)),
    };
    let analysis = Analysis::of(&Run::open(&run).expect("opens"));
    let decode = analysis.phases.rows.iter().find(|row| row.name == "decode").expect("a row").clone();
    assert!(decode.is_phase);
    (truth, decode, live)
}

/// Asserts that what is printed equals the program's own count within the interval that is stated with it. The interval
/// is one of 95 %, so it is doubled: a right figure is outside that once in ten thousand times.
fn assert_right(what: &str, (truth, decode, live): (Figures, PhaseRow, Figures)) {
    let errors = decode.rate_errors.unwrap_or_else(|| panic!("{what}: sampled: {decode:?}"));
    let error = errors.tokens.unwrap_or_else(|| panic!("{what}: an interval: {decode:?}"));
    assert!(error < 0.2, "{what}: {error} is no statement");
    for (name, printed, truth) in [
        ("tokens/s", decode.tokens_per_s, truth.tokens_per_s),
        ("GB/s", decode.gbytes, truth.gbytes),
        ("at once", decode.steps_at_once, truth.at_once),
        ("live tokens/s", Some(live.tokens_per_s), truth.tokens_per_s),
        ("live at once", Some(live.at_once), truth.at_once),
    ] {
        let off = printed.unwrap_or(f64::NAN) / truth - 1.0;
        println!("{what}: {name} {printed:?}, {truth} by the program: {:+.1} % ±{:.1} %", off * 100.0, error * 100.0);
        assert!(off.abs() <= 2.0 * error + 0.005, "{what}: {name} is {printed:?}, the program counts {truth}");
    }
}

fn schedule(active: u64, cycle: u64) -> Schedule {
    Schedule { skip_first: 0, wait: cycle - active, warmup: 0, active, repeat: 0 }
}

#[test]
fn two_workers_in_bursts() {
    let workers = [worker(0, 6_000, 8_000, false), worker(0, 6_000, 8_000, false)];
    assert_right("6 in 20", record(Some(schedule(6, 20)), None, &workers));
}

#[test]
fn workers_that_join_and_leave_with_a_long_step() {
    let workers =
        [worker(0, 7_000, 6_000, false), worker(1_000, 4_500, 6_000, true), worker(3_000, 6_000, 30_000, false)];
    assert_right("10 in 50", record(Some(schedule(10, 50)), None, &workers));
}

#[test]
fn rows_of_one_step() {
    let workers = [worker(0, 6_000, 8_000, false), worker(0, 6_000, 20_000, false)];
    assert_right("1 in 8", record(Some(schedule(1, 8)), None, &workers));
}

#[test]
fn steps_left_plain() {
    let workers = [worker(0, 4_000, 8_000, false), worker(500, 4_000, 8_000, false)];
    assert_right("probe", record(None, Some(5), &workers));
}

/// Requests of twenty steps each under a schedule of twenty, which records the same two of each, and under one of
/// seventeen, which does not.
#[test]
fn a_schedule_that_keeps_step_with_requests_is_told() {
    let told = |schedule| {
        let dir = tempfile::tempdir().expect("a directory");
        let run = dir.path().join("run");
        let (layer, scope) = candlescope::builder().parquet(&run).schedule(schedule).layer().expect("starts");
        let dispatch = tracing::Dispatch::new(tracing_subscriber::registry().with(layer));
        tracing::dispatcher::with_default(&dispatch, || {
            for _ in 0..40 {
                let request = llm::Request::new("chat", "m").prompt_tokens(4);
                let _in_request = request.enter();
                drop(llm::prefill(llm::Tokens::new(4).context(4)));
                request.token();
                for n in 0..19 {
                    drop(llm::decode(llm::Tokens::new(1).context(5 + n)));
                    request.token();
                }
            }
        });
        scope.finish().expect("was on");
        let analysis = Analysis::of(&Run::open(&run).expect("opens"));
        let found = analysis.verdict.findings.iter().find(|finding| finding.code == "schedule_in_step");
        found.map(|finding| finding.message())
    };
    let message = told(schedule(2, 20)).expect("the same two steps of each");
    assert!(
        message.contains("all 80 recorded decoding steps of 40 requests are between 90.0 % and 95.0 %"),
        "{message}"
    );
    assert_eq!(told(schedule(2, 17)), None);
    assert_eq!(told(Schedule { skip_first: 0, wait: 0, warmup: 0, active: 1, repeat: 0 }), None, "all steps");
}

/// Steps of many small intervals, of which recording takes a part that can be seen: the report says of recorded steps by
/// how much they are longer, as the program's own clock has it.
#[test]
fn recorded_steps_are_longer() {
    const STEPS: u64 = 4_000;
    let schedule = schedule(10, 50);
    let dir = tempfile::tempdir().expect("a directory");
    let run = dir.path().join("run");
    let (layer, scope) = candlescope::builder().parquet(&run).schedule(schedule).layer().expect("starts");
    let dispatch = tracing::Dispatch::new(tracing_subscriber::registry().with(layer));
    let mut own: [Vec<f64>; 2] = Default::default();
    tracing::dispatcher::with_default(&dispatch, || {
        for n in 0..STEPS {
            let begin = Instant::now();
            {
                let _step = llm::decode(llm::Tokens::new(1).context(5));
                for _ in 0..300 {
                    let _part = tracing::info_span!(target: "candle_nn", "part").entered();
                }
                let work = Instant::now();
                while work.elapsed() < Duration::from_micros(20) {}
            }
            own[usize::from(schedule.action(n) == StepAction::Record)].push(begin.elapsed().as_nanos() as f64);
        }
    });
    scope.finish().expect("was on");
    let analysis = Analysis::of(&Run::open(&run).expect("opens"));
    let decode = analysis.phases.rows.iter().find(|row| row.name == "decode").expect("a row");
    let longer = decode.rate_errors.and_then(|errors| errors.longer).expect("pairs");
    let [plain, recorded] = own.map(|times| candlescope_figures::stats::percentile_of(&times, 0.5).expect("steps"));
    let truth = recorded / plain - 1.0;
    println!("{longer:?}, {truth} by the program");
    assert!((70..=80).contains(&longer.pairs), "{longer:?}");
    assert!(truth > 0.02 && longer.interval.0 > 0.0, "recording 300 intervals takes time: {longer:?}, {truth}");
    let (low, high) = longer.interval;
    let around = (high - low).max(0.1 * truth);
    assert!((low - around..=high + around).contains(&truth), "{longer:?}, the program's own clock says {truth}");
}

/// Without steps left out nothing is estimated.
#[test]
fn all_steps_recorded() {
    let (truth, decode, live) = record(None, None, &[worker(0, 2_000, 8_000, false), worker(0, 2_000, 8_000, false)]);
    assert!(decode.rate_errors.is_none());
    for (printed, truth) in [
        (decode.tokens_per_s, truth.tokens_per_s),
        (Some(live.tokens_per_s), truth.tokens_per_s),
        (decode.steps_at_once, truth.at_once),
    ] {
        assert!(printed.is_some_and(|printed| (printed / truth - 1.0).abs() < 0.03), "{printed:?} for {truth}");
    }
}

/// Requests whose client left before the first token: they have no time to it, in the report as in `/metrics`, whatever
/// is recorded of their steps.
#[test]
fn requests_without_a_token() {
    for schedule in [None, Some(schedule(3, 7))] {
        let [address] = free_addresses();
        let dir = tempfile::tempdir().expect("a directory");
        let run = dir.path().join("run");
        let mut builder = candlescope::builder().prometheus(address.to_string()).parquet(&run);
        if let Some(schedule) = schedule {
            builder = builder.schedule(schedule);
        }
        let (layer, scope) = builder.layer().expect("starts");
        let answer = |model: &str, tokens: usize| {
            let request = llm::Request::new("chat", model).prompt_tokens(4);
            let _in_request = request.enter();
            drop(llm::prefill(llm::Tokens::new(4).context(4)));
            for n in 0..tokens {
                request.token();
                drop(llm::decode(llm::Tokens::new(1).context(5 + n)));
            }
        };
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            (0..12).for_each(|n| answer("m", if n % 3 == 0 { 0 } else { 4 }));
            // A model that generates nothing: its requests end when they end.
            (0..2).for_each(|_| answer("encoder", 0));
        });
        (0..2).for_each(|_| scope.flush(Duration::from_secs(5)).expect("flushes"));
        let page = get(address, "/metrics").expect("metrics");
        scope.finish();
        let latency = Analysis::of(&Run::open(&run).expect("opens")).latency;
        let n = |of: &Option<candlescope_figures::Distribution>| of.as_ref().map_or(0, |of| of.n);
        assert_eq!((n(&latency.ttft), n(&latency.e2e), n(&latency.tpot)), (8, 8 + 2, 8), "{schedule:?}");
        assert_eq!(n(&latency.queue), 14, "all began");
        let without = latency.requests.iter().filter(|request| request.output_tokens == Some(0));
        assert_eq!(without.filter(|request| request.ttft_ns.is_none()).count(), 6);
        let count = "gen_ai_server_time_to_first_token_seconds_count{gen_ai_request_model=\"m\"} 8";
        assert!(page.lines().any(|line| line == count), "{page}");
    }
}
