//! What is left of a run with a schedule, a pause or a capture: requests are complete, and steps are counted by what
//! became of them.
#![allow(missing_docs, reason = "a test")]
mod common;
use candlescope_core::run::{RunManifest, Severity, StepCounts};
use candlescope_core::*;
use common::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tracing::{Dispatch, trace_span};
use tracing_subscriber::prelude::*;

const SOON: Duration = Duration::from_secs(20);
const WORKERS: usize = 2;
const REQUESTS: usize = 8;
const TOKENS: usize = 25;
const BATCH: usize = 2;
/// Steps of the script, one per token.
const STEPS: u64 = (WORKERS * REQUESTS * TOKENS) as u64;

const TEN_IN_A_HUNDRED: Schedule = Schedule { skip_first: 0, wait: 90, warmup: 0, active: 10, repeat: 0 };

/// Earliest and latest possible time of an event, in nanoseconds since the script began.
type Moment = (u64, u64);

/// When the events of a request happened, by the script's own clock.
struct Truth {
    start: Moment,
    first_step: Moment,
    first_token: Moment,
    last_token: Moment,
    end: Moment,
}

/// Calls `f` and returns the moment at which it happened.
fn timed<T>(origin: Instant, f: impl FnOnce() -> T) -> (T, Moment) {
    let now = || origin.elapsed().as_nanos() as u64;
    let before = now();
    let result = f();
    (result, (before, now()))
}

fn layer_of_a_model() {
    trace_span!("linear").in_scope(|| std::thread::sleep(Duration::from_micros(200)));
}

/// A request that waits for its turn and then runs one step per token.
fn serve(origin: Instant, model: &str) -> Truth {
    let (request, start) = timed(origin, || llm::Request::new("chat", model).prompt_tokens(7).batch(BATCH));
    std::thread::sleep(Duration::from_millis(1));
    let in_request = request.enter();
    let (step, first_step) = timed(origin, || llm::prefill(llm::Tokens::new(7 * BATCH).context(7).batch(BATCH)));
    layer_of_a_model();
    let ((), first_token) = timed(origin, || request.record_tokens(BATCH));
    drop(step);
    let mut last_token = first_token;
    for token in 1..TOKENS {
        let _step = llm::decode(llm::Tokens::new(BATCH).context(7 + token).batch(BATCH));
        layer_of_a_model();
        last_token = timed(origin, || request.record_tokens(BATCH)).1;
    }
    drop(in_request);
    // What happens after the last token must not count as a token's time.
    std::thread::sleep(Duration::from_millis(1));
    let ((), end) = timed(origin, || drop(request));
    Truth { start, first_step, first_token, last_token, end }
}

/// Runs the script on its workers. Returns the truth about the requests, by the name of their model.
fn script(dispatch: &Dispatch) -> BTreeMap<String, Truth> {
    let origin = Instant::now();
    std::thread::scope(|scope| {
        let worker = |w: usize| {
            scope.spawn(move || {
                tracing::dispatcher::with_default(dispatch, || {
                    let name = |r: usize| format!("w{w}-r{r}");
                    (0..REQUESTS).map(|r| (name(r), serve(origin, &name(r)))).collect::<Vec<_>>()
                })
            })
        };
        let workers: Vec<_> = (0..WORKERS).map(worker).collect();
        workers.into_iter().flat_map(|w| w.join().expect("ends")).collect()
    })
}

/// Checks that a time between two moments is possible by the script's clock. The profiler's clock may be off by 100
/// ppm.
fn holds(measured: Option<u64>, from: Moment, to: Moment, what: &str) {
    let measured = measured.unwrap_or_else(|| panic!("{what} is not known"));
    let (least, most) = (to.0.saturating_sub(from.1), to.1 - from.0);
    let slack = 5_000 + most / 10_000;
    assert!(measured + slack >= least && measured <= most + slack, "{what}: {measured} is not in {least}..{most}");
}

fn identity(steps: &StepCounts) {
    let sum = steps.with_record() + steps.without_record() + steps.open_at_end;
    assert_eq!(steps.begun, sum, "{steps:?}");
}

fn steps_of(m: &RunManifest) -> StepCounts {
    m.steps.expect("a run says what became of its steps")
}

/// Checks that every request that a step names has a row.
fn whole(batch: &Batch) {
    let rows: BTreeSet<u64> = batch.requests.iter().map(|r| r.request).collect();
    let named: BTreeSet<u64> = batch.steps.iter().filter_map(|s| s.request).collect();
    assert!(named.is_subset(&rows), "{named:?} are named, {rows:?} have rows");
    assert_eq!(rows.len(), batch.requests.len(), "one row each");
}

fn codes(m: &RunManifest) -> Vec<&str> {
    m.verdict.findings.iter().map(|f| f.code.as_str()).collect()
}

#[test]
fn figures_of_requests_are_the_same_with_and_without_a_schedule() {
    for schedule in [None, Some(TEN_IN_A_HUNDRED)] {
        let memory = MemoryExporter::new();
        let mut builder = Session::builder().exporter(memory.clone());
        if let Some(schedule) = schedule {
            builder = builder.schedule(schedule);
        }
        let (layer, session) = builder.start().expect("starts");
        let dispatch = Dispatch::new(tracing_subscriber::registry().with(layer));
        let truth = script(&dispatch);
        let stats = session.handle().stats();
        assert_eq!((stats.requests_open, stats.tokens_in_flight), (0, 0));
        let m = session.finish();
        let batch = memory.batch();
        assert_conserved(&m);
        assert!(m.verdict.ok, "{:?}", m.verdict);
        assert_eq!(batch.requests.len(), WORKERS * REQUESTS);
        whole(&batch);
        for r in &batch.requests {
            let truth = &truth[&*r.model];
            holds(r.ttft_ns, truth.start, truth.first_token, "time to first token");
            holds(r.last_token_ns, truth.start, truth.last_token, "time to last token");
            holds(r.queue_ns, truth.start, truth.first_step, "queue time");
            holds(Some(r.host_dur_ns), truth.start, truth.end, "duration");
            assert!(r.queue_ns < r.ttft_ns && r.ttft_ns < r.last_token_ns && r.last_token_ns < Some(r.host_dur_ns));
            let tokens = (r.prompt_tokens, r.input_tokens(), r.output_tokens, r.batch);
            assert_eq!(tokens, (Some(7), Some(14), Some((TOKENS * BATCH) as u64), Some(BATCH as u32)));
        }
        let recorded = schedule.map_or(STEPS, |_| STEPS / 10);
        let expected =
            StepCounts { begun: STEPS, recorded, scheduled_out: STEPS - recorded, schedule, ..StepCounts::default() };
        assert_eq!(steps_of(&m), expected);
        assert_eq!(m.counts["steps"], recorded);
        let on: BTreeSet<u64> = (0..STEPS).filter(|n| schedule.is_none() || n % 100 >= 90).collect();
        assert_eq!(batch.steps.iter().map(|s| s.step).collect::<BTreeSet<_>>(), on);
        // If the first step is recorded, its row gives the same queue time.
        for r in &batch.requests {
            let prefill = batch.steps.iter().find(|s| s.request == Some(r.request) && s.phase == Some(Phase::Prefill));
            if let Some(prefill) = prefill {
                assert_eq!(r.queue_ns, Some(prefill.host_start.since(r.host_start)));
            }
        }
        assert_eq!(m.options.contains_key("schedule"), schedule.is_some());
        assert_eq!(m.options["paused"], false);
        assert_eq!(m.options["ring_capacity"], 32_768);
    }
}

fn steps(n: usize) {
    (0..n).for_each(|i| {
        let _step = llm::decode(llm::Tokens::new(1).context(i));
        trace_span!("linear").in_scope(|| ());
    });
}

#[test]
fn a_step_is_counted_by_what_became_of_it() {
    let schedule = Schedule { skip_first: 0, wait: 2, warmup: 0, active: 1, repeat: 0 };
    let memory = MemoryExporter::new();
    let (layer, session) = Session::builder().schedule(schedule).exporter(memory.clone()).start().expect("starts");
    let dispatch = Dispatch::new(tracing_subscriber::registry().with(layer));
    tracing::dispatcher::with_default(&dispatch, || {
        steps(6); // 2 and 5 by the schedule
        session.handle().capture_next(3).expect("begins");
        steps(3); // 6 and 7 for the window, 8 by the schedule
        session.handle().stop();
        steps(4); // 9..13 while recording is off
        session.handle().start();
        steps(1); // 13 is left out by the schedule
        session.handle().flush(SOON).expect("flushes");
        identity(&session.handle().stats().steps);
        // 14 is to be recorded, and does not end before the session does.
        let open = llm::decode(llm::Tokens::new(1).context(1));
        let m = session.finish();
        drop(open);
        let expected = StepCounts {
            begun: 15,
            recorded: 3,
            captured: 2,
            scheduled_out: 5,
            left_plain: 0,
            perturbed: 0,
            paused: 4,
            lost: 0,
            open_at_end: 1,
            schedule: Some(schedule),
            budgeted: false,
        };
        assert_eq!(steps_of(&m), expected);
        identity(&expected);
        assert_eq!(m.counts["steps"], expected.with_record());
        assert_eq!(
            expected.to_string(),
            "recorded 5 of 15 steps (2 only because a capture asked for them, 5 left out by the schedule, \
             4 while recording was off, 1 not ended)"
        );
    });
    assert_eq!(memory.batch().steps.iter().map(|s| s.step).collect::<Vec<_>>(), [2, 5, 6, 7, 8]);
}

#[test]
fn steps_that_a_full_ring_lost_are_counted_as_lost() {
    let (batch, m) = record(tight(), |_| steps(400));
    let counts = steps_of(&m);
    assert!(counts.lost > 100, "{counts:?}");
    assert_eq!((counts.begun, counts.recorded, counts.open_at_end), (400, batch.steps.len() as u64, 0));
    identity(&counts);
}

#[test]
fn the_counts_add_up_on_several_threads_whatever_is_switched() {
    let memory = MemoryExporter::new();
    let schedule = Schedule { skip_first: 3, wait: 5, warmup: 2, active: 4, repeat: 0 };
    let (layer, session) =
        Session::builder().schedule(schedule).ring_capacity(128).exporter(memory.clone()).start().expect("starts");
    let dispatch = Dispatch::new(tracing_subscriber::registry().with(layer));
    let (stop, made) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _stops = Stop(&stop);
        for worker in 0..4 {
            let (dispatch, stop, made) = (&dispatch, &stop, &made);
            scope.spawn(move || {
                tracing::dispatcher::with_default(dispatch, || {
                    let mut rounds = 0_usize;
                    while !stop.load(Ordering::Relaxed) {
                        rounds += 1;
                        let request = llm::Request::new("chat", "m");
                        let _in_request = request.enter();
                        // The fourth worker makes so many at a time that its ring gets full.
                        let n = if worker == 3 { 200 } else { rounds % 4 };
                        steps(n);
                        made.fetch_add(n as u64, Ordering::Relaxed);
                        std::thread::sleep(Duration::from_micros(300));
                    }
                });
            });
        }
        for round in 0..60 {
            match round % 6 {
                0 => session.handle().stop(),
                1 => _ = session.handle().capture_next(7),
                3 => session.handle().start(),
                _ => {}
            }
            std::thread::sleep(Duration::from_millis(3));
            // It must also hold while recording goes on.
            identity(&session.handle().stats().steps);
        }
    });
    let m = session.finish();
    let counts = steps_of(&m);
    identity(&counts);
    assert_eq!((counts.begun, counts.open_at_end), (made.load(Ordering::Relaxed), 0));
    assert_eq!(counts.with_record(), memory.batch().steps.len() as u64);
    for (n, what) in [
        (counts.recorded, "recorded"),
        (counts.captured, "captured"),
        (counts.scheduled_out, "left out by the schedule"),
        (counts.paused, "paused"),
    ] {
        assert!(n > 0, "none {what}: {counts:?}");
    }
    whole(&memory.batch());
    assert_conserved(&m);
}

#[test]
fn requests_are_left_out_only_where_recording_was_off_all_the_while() {
    let (batch, m) = record(Session::builder(), |handle| {
        let before = llm::Request::new("chat", "began before");
        handle.stop();
        drop(before);
        drop(llm::Request::new("chat", "left out"));
        let captured = llm::Request::new("chat", "captured");
        {
            let _in_request = captured.enter();
            steps(2);
            handle.capture_next(1).expect("begins");
            steps(2);
        }
        drop(captured);
        let after = llm::Request::new("chat", "ends after");
        handle.start();
        drop(after);
    });
    let models: BTreeSet<&str> = batch.requests.iter().map(|r| &*r.model).collect();
    assert_eq!(models, ["began before", "captured", "ends after"].into());
    whole(&batch);
    assert_eq!(m.loss.requests_paused, 1);
    let said = m.verdict.findings.iter().find(|f| f.code == "requests_paused").expect("a finding");
    assert_eq!((said.severity, m.verdict.ok), (Severity::Info, true), "{said:?}");
    // Its queue time ended with its first step, which was not recorded.
    let captured = batch.requests.iter().find(|r| &*r.model == "captured").expect("has a row");
    assert!(captured.queue_ns < Some(batch.steps[0].host_start.since(captured.host_start)), "{captured:?}");
}

#[test]
fn queue_time_ends_with_the_first_step_on_whatever_thread() {
    let origin = Instant::now();
    let memory = MemoryExporter::new();
    let (layer, session) =
        Session::builder().schedule(TEN_IN_A_HUNDRED).exporter(memory.clone()).start().expect("starts");
    let dispatch = Dispatch::new(tracing_subscriber::registry().with(layer));
    let (request, start) =
        timed(origin, || tracing::dispatcher::with_default(&dispatch, || llm::Request::new("chat", "m")));
    let first = std::thread::scope(|scope| {
        let on_a_thread = |wait_ms: u64| {
            let (dispatch, request) = (&dispatch, &request);
            scope.spawn(move || {
                tracing::dispatcher::with_default(dispatch, || {
                    std::thread::sleep(Duration::from_millis(wait_ms));
                    let _in_request = request.enter();
                    timed(origin, || llm::prefill(llm::Tokens::new(1).context(1))).1
                })
            })
        };
        let threads = [on_a_thread(60), on_a_thread(3)];
        let began: Vec<Moment> = threads.into_iter().map(|t| t.join().expect("ends")).collect();
        let earliest = |at: fn(&Moment) -> u64| began.iter().map(at).min().expect("two");
        (earliest(|m| m.0), earliest(|m| m.1))
    });
    tracing::dispatcher::with_default(&dispatch, || drop(request));
    session.finish();
    let r = memory.batch().requests.remove(0);
    holds(r.queue_ns, start, first, "queue time");
    assert_eq!((r.ttft_ns, r.last_token_ns), (None, None), "it had no token");
}

#[test]
fn a_request_of_plain_spans_has_no_last_token_and_one_without_steps_no_queue() {
    let (batch, _) = record_default(|| {
        let plain = trace_span!(
            "request",
            gen_ai.request.model = "plain",
            gen_ai.usage.output_tokens = 5_u64,
            gen_ai.response.time_to_first_chunk = 0.25
        );
        plain.in_scope(|| steps(1));
        drop(plain);
        let idle = llm::Request::new("chat", "idle");
        idle.token();
        drop(idle);
    });
    let of = |model: &str| batch.requests.iter().find(|r| &*r.model == model).expect("has a row");
    let plain = of("plain");
    assert_eq!((plain.ttft_ns, plain.last_token_ns), (Some(250_000_000), None));
    assert!(plain.queue_ns.is_some());
    let idle = of("idle");
    assert_eq!((idle.queue_ns, idle.last_token_ns), (None, idle.ttft_ns), "the first token is the last");
}

#[test]
fn what_is_in_flight_is_told_though_no_step_is_recorded() {
    let never = Schedule { skip_first: 0, wait: 1, warmup: 0, active: 0, repeat: 0 };
    let (_, m) = record(Session::builder().schedule(never), |handle| {
        let (one, two) = (llm::Request::new("chat", "m"), llm::Request::new("chat", "m"));
        {
            let _in_request = one.enter();
            drop(llm::prefill(llm::Tokens::new(6).context(3).batch(2)));
            drop(llm::decode(llm::Tokens::new(2).context(4).batch(2)));
        }
        two.span().in_scope(|| drop(llm::prefill(llm::Tokens::new(10).context(10))));
        let now = || (handle.stats().requests_open, handle.stats().tokens_in_flight);
        assert_eq!(now(), (2, 18));
        drop(one);
        assert_eq!(now(), (1, 10));
        drop(two);
        assert_eq!(now(), (0, 0));
    });
    assert_eq!((m.counts["requests"], m.counts["steps"]), (2, 0));
}

#[test]
fn a_run_in_which_a_schedule_recorded_nothing_says_why() {
    let late = Schedule { skip_first: 10, wait: 1, warmup: 1, active: 5, repeat: 1 };
    let (batch, m) = record(Session::builder().schedule(late), |_| {
        let request = llm::Request::new("chat", "m");
        let _in_request = request.enter();
        steps(8);
    });
    assert_eq!((batch.steps.len(), batch.requests.len()), (0, 1));
    assert_eq!(codes(&m), ["schedule_recorded_nothing"]);
    let said = &m.verdict.findings[0];
    assert!(!m.verdict.ok && said.message().contains("8 steps") && said.message().contains("step 12"), "{said:?}");

    let (_, m) = record(Session::builder(), |handle| {
        handle.stop();
        steps(3);
    });
    assert_eq!(codes(&m), ["recording_off"]);

    let (layer, session) = Session::builder().start().expect("starts");
    let m = tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let _step = llm::decode(llm::Tokens::new(1).context(1));
        session.finish()
    });
    assert_eq!(codes(&m), ["steps_open"]);
}

#[test]
fn a_schedule_that_saw_no_model_in_its_steps_is_no_late_layer() {
    // Sampling is a step of its own here, and only such steps are recorded.
    let odd = Schedule { skip_first: 0, wait: 1, warmup: 0, active: 1, repeat: 0 };
    let script = || {
        for position in 0..20 {
            {
                let _step = llm::decode(llm::Tokens::new(1).context(position));
                trace_span!("linear").in_scope(|| ());
            }
            drop(llm::sample());
        }
    };
    let (batch, m) = record(Session::builder().schedule(odd), |_| script());
    assert!(batch.steps.len() == 20 && batch.steps.iter().all(|s| s.phase == Some(Phase::Sample)));
    assert!(m.verdict.ok && codes(&m).is_empty(), "{:?}", m.verdict);
    // If all steps are recorded and no model is seen in any, the layer was added too late.
    let (_, m) =
        record_default(|| (0..20).for_each(|position| drop(llm::decode(llm::Tokens::new(1).context(position)))));
    assert_eq!(codes(&m), ["no_model_spans"]);
}

#[test]
fn the_run_of_a_capture_counts_its_own_steps() {
    let captured = MemoryExporter::new();
    let (_, m) = record(Session::builder().schedule(TEN_IN_A_HUNDRED), |handle| {
        steps(20);
        let capture = handle.capture(captured.clone(), 5).expect("begins");
        steps(30);
        let run = capture.wait(SOON).expect("written");
        assert_eq!(steps_of(&run), StepCounts { begun: 5, captured: 5, ..StepCounts::default() });
        assert!(run.verdict.ok && run.verdict.findings.is_empty(), "{:?}", run.verdict);
    });
    let counts = steps_of(&m);
    assert_eq!((counts.begun, counts.captured, counts.scheduled_out), (50, 5, 45));
    assert_eq!(captured.batch().steps.len(), 5);
}
