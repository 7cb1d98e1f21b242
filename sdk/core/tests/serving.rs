//! Steps that serve several requests, how requests end and what energy they have, and what names cost, in real sessions.
#![allow(missing_docs, reason = "a test")]
mod common;
use candlescope_core::llm::{self, Request, Tokens};
use candlescope_core::*;
use candlescope_testkit::{SOON, wait_until};
use common::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tracing::trace_span;

fn work() {
    trace_span!("linear").in_scope(|| std::thread::sleep(Duration::from_micros(200)));
}

fn request(batch: &Batch, prompt: u64) -> &RequestRecord {
    batch.requests.iter().find(|r| r.prompt_tokens == Some(prompt)).expect("its row")
}

/// A prompt of 12 in two chunks, beside a request that generates: in the first step 8 tokens and none out, then 4 and
/// one out, then one and one out.
fn two_requests() {
    let (old, new) = (Request::new("chat", "m").prompt_tokens(3), Request::new("chat", "m").prompt_tokens(12));
    for (passed, out) in [(8, 0), (4, 1), (1, 1)] {
        let _step = llm::decode(Tokens::new(1 + passed).batch(2));
        work();
        llm::serves(&old, Tokens::new(1), 1);
        llm::serves(&new, Tokens::new(passed), out);
    }
}

#[test]
fn a_step_says_which_requests_it_serves_and_what_each_has_of_it() {
    let (batch, m) = record_default(two_requests);
    let (old, new) = (request(&batch, 3), request(&batch, 12));
    assert_eq!((old.output_tokens, new.output_tokens), (Some(3), Some(2)));
    let mut steps: Vec<_> = batch.steps.iter().collect();
    steps.sort_by_key(|step| step.step);
    for (step, (passed, out)) in steps.iter().zip([(8, 0), (4, 1), (1, 1)]) {
        assert_eq!(step.serves, [Served::new(old.request, 1, 1), Served::new(new.request, passed, out)]);
        assert_eq!((step.request, step.requests().count()), (None, 2));
    }
    // Both waited until the first step began, and the first tokens were there after the first and the second.
    for request in [old, new] {
        let waited = steps[0].host_start.since(request.host_start);
        assert!(request.queue_ns.expect("a step").abs_diff(waited) < 1_000, "{:?} for {waited}", request.queue_ns);
    }
    let ended = |step: &StepRecord, of: &RequestRecord| step.host_start.plus_ns(step.host_dur_ns).since(of.host_start);
    assert!(old.ttft_ns.unwrap() <= ended(steps[0], old));
    assert!((ended(steps[0], new)..=ended(steps[1], new)).contains(&new.ttft_ns.unwrap()));
    assert!(m.verdict.ok, "{:?}", m.verdict);
    assert_conserved(&m);
}

#[test]
fn a_request_of_steps_that_no_schedule_records_has_its_queue_time_all_the_same() {
    let schedule = Schedule { skip_first: 2, wait: 0, warmup: 0, active: 1, repeat: 0 };
    let (batch, m) = record(Session::builder().schedule(schedule), |_| two_requests());
    let new = request(&batch, 12);
    assert_eq!(batch.steps.len(), 1);
    assert_eq!(batch.steps[0].serves.last(), Some(&Served::new(new.request, 1, 1)));
    // Two steps of 200 µs were not recorded, and the first of them ended the wait.
    let before = batch.steps[0].host_start.since(new.host_start);
    let queue = new.queue_ns.expect("known without a record");
    assert!(queue + 400_000 <= before, "{queue} of {before}");
    assert_conserved(&m);
}

#[test]
fn what_a_full_ring_does_not_take_makes_the_step_incomplete() {
    let (batch, m) = record(tight(), |_| {
        let request = Request::new("chat", "m");
        let _step = llm::decode(Tokens::new(1));
        (0..300).for_each(|_| llm::serves(&request, Tokens::new(1), 1));
    });
    let [step] = &batch.steps[..] else { panic!("{:?}", batch.steps) };
    let [served] = step.serves[..] else { panic!("{:?}", step.serves) };
    assert!(served.tokens < 300, "{served:?}");
    assert_eq!(u64::from(served.tokens) + lost(step), 300);
    assert_eq!(batch.requests[0].output_tokens, Some(300), "the request's own count does not go through the ring");
    assert_conserved(&m);
}

#[test]
fn more_requests_than_are_kept_and_words_without_a_step_or_a_session() {
    let outside = Request::new("chat", "m");
    llm::serves(&outside, Tokens::new(1), 2);
    assert_eq!(outside.output_tokens(), 2, "counted without a session");
    let (batch, m) = record_default(|| {
        let requests: Vec<Request> = (0..MOST_SERVED + 5).map(|_| Request::new("chat", "m")).collect();
        llm::serves(&requests[0], Tokens::new(1), 1);
        llm::serves(&outside, Tokens::new(1), 1);
        let _step = llm::decode(Tokens::new(requests.len()));
        requests.iter().for_each(|request| llm::serves(request, Tokens::new(1), 1));
        // A request of another session, or of none, is not in this one.
        llm::serves(&outside, Tokens::new(1), 1);
    });
    assert_eq!(batch.steps[0].serves.len(), MOST_SERVED);
    assert_eq!(batch.requests.iter().map(|r| r.output_tokens.unwrap()).sum::<u64>(), MOST_SERVED as u64 + 6);
    assert_conserved(&m);
}

#[test]
fn a_request_says_how_it_ended_or_nothing() {
    let (batch, _) = record_default(|| {
        Request::new("chat", "said").outcome(Outcome::Done);
        // A client that leaves drops the future, and with it the request.
        let left = Request::new("chat", "left");
        left.outcome(Outcome::Cancelled);
        left.token();
        drop(left);
        let stayed = Request::new("chat", "stayed");
        stayed.outcome(Outcome::Cancelled);
        stayed.outcome(Outcome::Done);
        drop(stayed);
        drop(Request::new("chat", "silent"));
        let panics = || {
            let _request = Request::new("chat", "panicked");
            std::panic::resume_unwind(Box::new("on purpose"));
        };
        assert!(std::panic::catch_unwind(panics).is_err());
    });
    let outcomes: Vec<_> = batch.requests.iter().map(|r| (&*r.model, r.outcome)).collect();
    let expected = [
        ("said", Some(Outcome::Done)),
        ("left", Some(Outcome::Cancelled)),
        ("stayed", Some(Outcome::Done)),
        ("silent", None),
        ("panicked", Some(Outcome::Failed)),
    ];
    assert_eq!(outcomes, expected);
}

#[test]
fn names_are_cut_when_they_are_taken() {
    let long = "ä".repeat(10_000);
    let (batch, _) = record_default(|| {
        let _request = Request::new(&long, &long);
        let _step = tracing::info_span!("step", otel.name = %long).entered();
        trace_span!("linear", otel.name = long.as_str()).in_scope(|| ());
    });
    let texts = [&batch.requests[0].model, &batch.requests[0].operation, &batch.steps[0].path.name];
    for text in texts {
        assert!(text.len() <= 512 && text.len() > 500 && text.ends_with(CUT_MARK), "{} bytes", text.len());
    }
    assert!(batch.spans.iter().all(|span| span.path.path.len() <= 1_025));
}

/// A counter of energy that counts a joule for each reading while the GPU is busy.
#[derive(Clone, Default)]
struct Counter {
    is_busy: Arc<AtomicBool>,
    is_silent: Arc<AtomicBool>,
    joules: Arc<AtomicU64>,
    readings: Arc<AtomicU64>,
}

impl Counter {
    /// Waits until it was read so many times more.
    fn wait(&self, readings: u64) {
        let until = self.readings.load(Ordering::Relaxed) + readings;
        wait_until(|| self.readings.load(Ordering::Relaxed) >= until, "the counter is read");
    }
}

impl Collector for Counter {
    fn name(&self) -> &'static str {
        "counter"
    }

    fn period(&self) -> Duration {
        Duration::from_millis(5)
    }

    fn sample(&mut self, out: &mut Samples<'_>) -> Result<(), CollectError> {
        if !self.is_silent.load(Ordering::Relaxed) {
            let more = u64::from(self.is_busy.load(Ordering::Relaxed));
            let joules = self.joules.fetch_add(more, Ordering::Relaxed) + more;
            out.push(&"GPU-0".into(), metric::GPU_ENERGY, joules as f64, "joules");
            self.readings.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// The last sums by whom: requests, other steps, idle, unattributed.
fn energy_of(batch: &Batch) -> [f64; 4] {
    let of = [
        metric::ENERGY_OF_REQUESTS,
        metric::ENERGY_OF_OTHER_STEPS,
        metric::ENERGY_OF_IDLE,
        metric::ENERGY_UNATTRIBUTED,
    ];
    let latest =
        |of: &str| batch.samples.iter().filter(|sample| sample.metric == of).map(|sample| sample.value).next_back();
    of.map(|of| latest(of).expect("sums"))
}

#[test]
fn a_request_does_not_wait_for_ever_for_a_counter_that_is_not_read_any_more() {
    let (counter, memory) = (Counter::default(), MemoryExporter::new());
    let builder = Session::builder().collector(counter.clone()).exporter(memory.clone());
    record(builder, |_| {
        counter.wait(2);
        counter.is_silent.store(true, Ordering::Relaxed);
        // One may be under way.
        std::thread::sleep(Duration::from_millis(50));
        {
            let request = Request::new("chat", "m");
            let _in_request = request.enter();
            let _step = llm::decode(Tokens::new(1));
            work();
        }
        wait_until(|| !memory.batch().requests.is_empty(), "its record comes while the session goes on");
    });
    let request = &memory.batch().requests[0];
    assert_eq!((request.step_count, request.energy_mj), (Some(1), None));
}

#[test]
fn a_session_that_rarely_looks_knows_the_energy_of_long_ago() {
    let counter = Counter::default();
    counter.is_busy.store(true, Ordering::Relaxed);
    let builder = Session::builder().collector(counter.clone()).drain_interval(Duration::from_secs(3600));
    let (batch, _) = record(builder, |handle| {
        counter.wait(2);
        {
            let _step = llm::decode(Tokens::new(1));
            counter.wait(10);
        }
        // Steps that do not come are waited for less long.
        std::thread::sleep(Duration::from_millis(5_500));
        handle.flush(SOON).expect("in time");
    });
    let [requests, other, idle, unattributed] = energy_of(&batch);
    assert!(requests == 0.0 && other >= 8.0 && idle >= 100.0, "{:?}", energy_of(&batch));
    assert!(unattributed.abs() < 1e-9, "{unattributed} J");
}

#[test]
fn while_a_step_runs_that_no_schedule_records_nothing_is_idle_and_afterwards_it_is() {
    let counter = Counter::default();
    let schedule = Schedule { skip_first: 0, wait: 1, warmup: 0, active: 1, repeat: 0 };
    let builder = Session::builder().collector(counter.clone()).schedule(schedule);
    let busy = |readings| {
        counter.is_busy.store(true, Ordering::Relaxed);
        counter.wait(readings);
        counter.is_busy.store(false, Ordering::Relaxed);
        counter.wait(2);
        counter.joules.load(Ordering::Relaxed)
    };
    let mut afterwards = 0;
    let (batch, _) = record(builder, |handle| {
        counter.wait(2);
        let not_recorded = llm::decode(Tokens::new(1));
        let meanwhile = busy(60);
        drop(not_recorded);
        drop(llm::decode(Tokens::new(1)));
        // The drain sees that both have ended, and the next stretch begins.
        handle.flush(SOON).expect("in time");
        counter.wait(2);
        afterwards = busy(20) - meanwhile;
    });
    assert_eq!(batch.steps.len(), 1);
    let [requests, other, idle, unattributed] = energy_of(&batch);
    assert!(requests + other < 1e-9 && unattributed >= 60.0, "{:?}", energy_of(&batch));
    assert!((idle - afterwards as f64).abs() < 1e-9, "{idle} J of {afterwards}");
}
