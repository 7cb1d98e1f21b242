//! Captures: a run of some steps, taken from a session that goes on.
#![allow(missing_docs, reason = "a test")]
mod common;
use candlescope_core::run::{RunManifest, Severity};
use candlescope_core::*;
use candlescope_testkit::wait_until;
use common::*;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tracing::trace_span;
use tracing_subscriber::prelude::*;

const SOON: Duration = Duration::from_secs(20);

fn step(position: usize) {
    let inner = trace_span!("inner");
    let _step = llm::decode(llm::Tokens::new(1).context(position));
    inner.in_scope(|| ());
}

fn steps_of(batch: &Batch) -> BTreeSet<u64> {
    batch.steps.iter().map(|s| s.step).collect()
}

#[test]
fn a_capture_has_its_steps_and_the_session_all_of_them() {
    let captured = MemoryExporter::new();
    let mut own = None;
    let (batch, m) = record(Session::builder(), |handle| {
        (1..=5).for_each(step);
        handle.set_model("name", "tiny");
        let capture = handle.capture(captured.clone(), 3).expect("begins");
        assert_eq!(capture.steps(), 5..8);
        (6..=20).for_each(step);
        own = capture.wait(SOON);
        assert_eq!(capture.wait(Duration::ZERO), None, "only once");
    });
    assert_eq!(steps_of(&batch), (0..20).collect());
    assert_conserved(&m);
    let (run, captured) = (own.expect("written"), captured.batch());
    assert_eq!(steps_of(&captured), (5..8).collect());
    assert_eq!(captured.spans.len(), 6);
    // They are the same rows as in the session.
    assert!(captured.spans.iter().all(|s| batch.spans.contains(s)));
    assert_eq!((run.counts["spans"], run.counts["steps"]), (6, 3));
    assert!(run.complete && run.verdict.ok && run.verdict.findings.is_empty(), "{:?}", run.verdict);
    assert_eq!(run.model["name"], "tiny");
    assert_ne!(run.run_id, m.run_id);
    assert!(run.started_ns <= captured.steps[0].host_start.0);
    assert_conserved(&run);
    assert_eq!(m.exporters.len(), 1, "it is no exporter of the session: {:?}", m.exporters);
}

#[test]
fn a_paused_session_records_nothing_but_the_capture() {
    let captured = MemoryExporter::new();
    let (batch, m) = record(Session::builder().paused(true), |handle| {
        (1..=4).for_each(step);
        let capture = handle.capture(captured.clone(), 2).expect("begins");
        (5..=9).for_each(step);
        capture.wait(SOON).expect("written");
    });
    assert_eq!(steps_of(&captured.batch()), [4, 5].into());
    // Captured steps go to the session's exporters too.
    assert_eq!(steps_of(&batch), [4, 5].into());
    assert!(m.verdict.ok, "{:?}", m.verdict);
}

#[test]
fn one_capture_at_a_time_and_the_next_when_it_is_written() {
    let (first, second) = (MemoryExporter::new(), MemoryExporter::new());
    record(Session::builder(), |handle| {
        assert!(matches!(handle.capture(MemoryExporter::new(), 0), Err(CaptureError::NoSteps)));
        let capture = handle.capture(first.clone(), 4).expect("begins");
        step(1);
        let refused = handle.capture(second.clone(), 1).expect_err("one at a time");
        assert!(matches!(refused, CaptureError::Busy(CaptureBusy { remaining: 3 })), "{refused}");
        assert_eq!(handle.capture_next(1), Err(CaptureBusy { remaining: 3 }));
        (2..=4).for_each(step);
        capture.wait(SOON).expect("written");
        let capture = handle.capture(second.clone(), 1).expect("begins");
        step(5);
        let run = capture.wait(SOON).expect("written");
        assert!(run.run_id.ends_with("-capture-2"), "{}", run.run_id);
    });
    assert_eq!(steps_of(&first.batch()), (0..4).collect());
    assert_eq!(steps_of(&second.batch()), [4].into());
}

#[test]
fn steps_of_many_threads_are_captured_exactly() {
    let captured = MemoryExporter::new();
    let memory = MemoryExporter::new();
    let (layer, session) = Session::builder().exporter(memory.clone()).start().expect("starts");
    let dispatch = tracing::Dispatch::new(tracing_subscriber::registry().with(layer));
    let stop = AtomicBool::new(false);
    let run = std::thread::scope(|scope| {
        let stops = Stop(&stop);
        for _ in 0..3 {
            scope.spawn(|| {
                tracing::dispatcher::with_default(&dispatch, || {
                    let request = llm::Request::new("text_completion", "tiny");
                    let _in_request = request.enter();
                    let mut position = 0;
                    while !stop.load(Ordering::Relaxed) {
                        position += 1;
                        step(position);
                        std::thread::sleep(Duration::from_micros(200));
                    }
                });
            });
        }
        wait_until(|| session.handle().stats().steps.begun > 3, "the threads are at work");
        let capture = session.handle().capture(captured.clone(), 50).expect("begins");
        let expected: BTreeSet<u64> = capture.steps().collect();
        let run = capture.wait(SOON).expect("written");
        drop(stops);
        assert_eq!(steps_of(&captured.batch()), expected);
        run
    });
    assert_eq!(run.counts["steps"], 50);
    assert_eq!(run.counts["spans"], 100);
    // Requests that go on are not in the run, and it says so.
    assert_eq!(run.loss.requests_open_at_end, 3);
    let said = run.verdict.findings.iter().find(|f| f.code == "requests_open").expect("a finding");
    assert_eq!((said.severity, said.message().starts_with("3 requests went on")), (Severity::Info, true), "{said:?}");
    let m = session.finish();
    assert_eq!(m.counts["requests"], 3);
    assert_conserved(&m);
}

#[test]
fn requests_that_end_in_the_capture_are_in_it() {
    let captured = MemoryExporter::new();
    record(Session::builder(), |handle| {
        let capture = handle.capture(captured.clone(), 4).expect("begins");
        for _ in 0..2 {
            let request = llm::Request::new("text_completion", "tiny");
            let _in_request = request.enter();
            step(1);
            step(2);
        }
        let run = capture.wait(SOON).expect("written");
        assert!(run.counts["requests"] >= 1, "{:?}", run.counts);
        assert_eq!(run.counts["requests"] + run.loss.requests_open_at_end, 2);
    });
    // The run is complete in itself: its steps are outermost, although a request was around them.
    let seqs: BTreeSet<u64> = captured.batch().spans.iter().map(|s| s.seq).collect();
    let spans = captured.batch().spans;
    assert!(spans.iter().all(|s| s.parent_seq.is_none_or(|parent| seqs.contains(&parent))));
    assert_eq!(spans.iter().filter(|s| s.parent_seq.is_none()).count(), 4);
}

/// A step of more intervals than the ring of [`tight`] holds.
fn flood() {
    let (step, inner) = (trace_span!(target: "candle", "flood"), trace_span!("inner"));
    let _step = step.enter();
    (0..1_000).for_each(|_| inner.in_scope(|| ()));
}

#[test]
fn what_is_lost_before_and_after_the_captured_steps_is_not_theirs() {
    let captured = MemoryExporter::new();
    let (batch, m) = record(tight(), |handle| {
        flood();
        let capture = handle.capture(captured.clone(), 3).expect("begins");
        (1..=3).for_each(step);
        flood();
        handle.flush(SOON).expect("flushes");
        let run = capture.wait(SOON).expect("written");
        assert!(run.verdict.ok && run.verdict.findings.is_empty(), "{:?}", run.verdict);
        assert_eq!((run.loss.lost(), run.loss.emitted), (0, 6));
        assert_conserved(&run);
    });
    let lost: Vec<u64> = batch.steps.iter().map(lost).collect();
    assert!(lost[0] > 0 && lost[1..4] == [0; 3] && lost[4] > 0, "{lost:?}");
    assert_eq!(lost.iter().sum::<u64>(), m.loss.ring_full);
    assert!(!m.verdict.ok);
}

#[test]
fn what_the_captured_steps_lost_is_said_exactly() {
    let captured = MemoryExporter::new();
    record(tight(), |handle| {
        let capture = handle.capture(captured.clone(), 2).expect("begins");
        step(1);
        flood();
        flood();
        handle.flush(SOON).expect("flushes");
        let run = capture.wait(SOON).expect("written");
        let steps = captured.batch().steps;
        assert_eq!(steps.iter().map(made).collect::<Vec<_>>(), [2, 1_001]);
        assert_eq!(run.loss.ring_full, lost(&steps[1]));
        assert!(!run.verdict.ok && run.verdict.findings.iter().any(|f| f.code == "ring_full"), "{:?}", run.verdict);
        assert_conserved(&run);
    });
}

#[test]
fn a_capture_that_lost_whole_steps_says_so() {
    let captured = MemoryExporter::new();
    let (_, m) = record(tight(), |handle| {
        let capture = handle.capture(captured.clone(), 100).expect("begins");
        flood();
        // There are more steps than the slots reserved for steps.
        (1..=99).for_each(step);
        capture.end();
        handle.flush(SOON).expect("flushes");
        let run = capture.wait(SOON).expect("written");
        let steps = captured.batch().steps.len() as u64;
        assert!((10..90).contains(&steps) && run.counts["steps"] == steps, "{steps}");
        // What was in the lost steps is not known, but it cannot be more than this.
        assert_eq!(run.loss.emitted, 1_001 + 99 * 2);
        assert!(!run.verdict.ok, "{:?}", run.verdict);
        let said = run.verdict.findings.iter().find(|f| f.code == "capture_cut_short").expect("a finding");
        assert!(said.remedy().contains("dropped"), "{said:?}");
    });
    assert_conserved(&m);
}

#[test]
fn a_capture_that_waits_for_steps_can_be_ended() {
    let captured = MemoryExporter::new();
    let (_, m) = record(Session::builder(), |handle| {
        let capture = handle.capture(captured.clone(), 10).expect("begins");
        step(1);
        assert_eq!(capture.wait(Duration::from_millis(100)), None);
        capture.end();
        let run = capture.wait(SOON).expect("written");
        assert_eq!(run.counts["steps"], 1);
        let findings: Vec<&str> = run.verdict.findings.iter().map(|f| f.code.as_str()).collect();
        assert!(findings.contains(&"capture_cut_short"), "{findings:?}");
        // The window is closed too.
        assert_eq!(handle.stats().capture_remaining, 0);
        let empty = handle.capture(MemoryExporter::new(), 1).expect("room for another");
        empty.end();
        let run = empty.wait(SOON).expect("written");
        let findings: Vec<&str> = run.verdict.findings.iter().map(|f| f.code.as_str()).collect();
        assert_eq!(
            (run.verdict.ok, findings),
            (false, vec!["capture_cut_short"]),
            "that, and not that spans are missing"
        );
    });
    assert_conserved(&m);
}

#[test]
fn a_step_that_goes_on_does_not_hold_up_the_end_of_a_capture() {
    let captured = MemoryExporter::new();
    record(Session::builder(), |handle| {
        let capture = handle.capture(captured.clone(), 10).expect("begins");
        step(1);
        let long = llm::decode(llm::Tokens::new(1).context(2));
        capture.end();
        let run = capture.wait(SOON).expect("written without it");
        drop(long);
        assert_eq!((run.counts["steps"], run.steps.unwrap().open_at_end), (1, 1), "{:?}", run.steps);
        let said = run.verdict.findings.iter().find(|f| f.code == "capture_cut_short").expect("a finding");
        assert!(said.message().contains("1 of the 10 steps"), "{said:?}");
    });
}

/// One thread is in the middle of a step, another goes on with steps, and all of them are recorded.
#[test]
fn steps_that_had_begun_are_in_a_capture_that_is_ended_and_later_ones_are_not() {
    let captured = MemoryExporter::new();
    let memory = MemoryExporter::new();
    let (layer, session) = Session::builder().exporter(memory.clone()).start().expect("starts");
    let dispatch = tracing::Dispatch::new(tracing_subscriber::registry().with(layer));
    let capture = session.handle().capture(captured.clone(), 100).expect("begins");
    tracing::dispatcher::with_default(&dispatch, || {
        step(1);
        let long = llm::decode(llm::Tokens::new(1).context(2));
        capture.end();
        capture.end();
        std::thread::scope(|scope| {
            scope.spawn(|| tracing::dispatcher::with_default(&dispatch, || (3..=20).for_each(step)));
        });
        drop(long);
        (21..=23).for_each(step);
    });
    let run = capture.wait(SOON).expect("written");
    assert_eq!(steps_of(&captured.batch()), [0, 1].into());
    let counts = run.steps.unwrap();
    assert_eq!((counts.begun, counts.captured, counts.open_at_end), (2, 2, 0), "{counts:?}");
    // The next one has the numbers that this one had been promised.
    let next = MemoryExporter::new();
    let capture = session.handle().capture(next.clone(), 3).expect("the window is free");
    tracing::dispatcher::with_default(&dispatch, || (1..=3).for_each(step));
    capture.wait(SOON).expect("written");
    assert_eq!(steps_of(&next.batch()), (23..26).collect());
    // The session's own exporter has a thread of its own, and is behind the capture's where others compute beside.
    assert_conserved(&session.finish());
    assert_eq!(steps_of(&memory.batch()).len(), 26);
}

#[test]
fn a_session_that_ends_writes_the_capture_as_it_is() {
    let captured = MemoryExporter::new();
    let mut capture = None;
    record(Session::builder(), |handle| {
        capture = Some(handle.capture(captured.clone(), 1_000).expect("begins"));
        (1..=3).for_each(step);
    });
    let run = capture.expect("begun").wait(Duration::ZERO).expect("written before the session was over");
    assert_eq!(run.counts["steps"], 3);
    assert!(run.complete);
    assert_eq!(captured.batch().steps.len(), 3);
}

#[test]
fn a_capture_after_the_end_is_refused() {
    let (layer, session) = Session::builder().start().expect("starts");
    let handle = session.handle().clone();
    drop(layer);
    session.finish();
    assert!(matches!(handle.capture(MemoryExporter::new(), 1), Err(CaptureError::Ended)));
}

/// An exporter that cannot start, or that fails later.
struct Bad {
    at_start: bool,
}

impl Exporter for Bad {
    fn name(&self) -> &'static str {
        "bad"
    }
    fn start(&mut self, _: &RunManifest) -> Result<(), ExportError> {
        if self.at_start { Err(ExportError::fatal("cannot write /nowhere")) } else { Ok(()) }
    }
    fn export(&mut self, _: &Batch, _: &Ledger) -> Result<(), ExportError> {
        Err(ExportError::fatal("the disk is full"))
    }
}

#[test]
fn a_failing_destination_harms_the_capture_alone() {
    let (batch, m) = record(Session::builder(), |handle| {
        let refused = handle.capture(Bad { at_start: true }, 1).expect_err("cannot start");
        assert!(refused.to_string().contains("/nowhere"), "{refused}");
        let capture = handle.capture(Bad { at_start: false }, 2).expect("the failed one left room");
        (1..=4).for_each(step);
        let run = capture.wait(SOON).expect("an account");
        assert!(!run.verdict.ok);
        assert!(run.exporters[0].conserved(), "{:?}", run.exporters);
        assert_eq!(run.exporters[0].dropped_total(RecordKind::Step), 2);
    });
    assert_eq!(batch.steps.len(), 4);
    assert!(m.verdict.ok, "{:?}", m.verdict);
}
