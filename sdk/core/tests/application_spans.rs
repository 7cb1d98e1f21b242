//! Spans of the application around and beside a model's phases.
#![allow(missing_docs, reason = "a test")]

mod common;

use candlescope_core::run::{Code, RunManifest};
use candlescope_core::{Batch, Phase, Schedule, Session, llm};
use common::{assert_conserved, record, record_default, sorted};
use tracing::{Span, info_span, trace_span};

/// A span of candle's.
fn linear() -> Span {
    trace_span!(target: "candle_nn::linear", "linear")
}

fn handler() -> Span {
    info_span!(target: "service::routes", "handler")
}

fn decode(context: usize) {
    let _step = llm::decode(llm::Tokens::new(1).context(context));
    linear().in_scope(|| ());
}

fn steps(batch: &Batch) -> Vec<(u64, &str)> {
    let mut steps: Vec<_> = batch.steps.iter().map(|step| (step.step, step.path.path.as_str())).collect();
    steps.sort_unstable();
    steps
}

fn says(m: &RunManifest) -> bool {
    m.verdict.findings.iter().any(|finding| finding.code == Code::SpansOutsidePhases)
}

#[test]
fn once_phases_are_marked_only_phases_and_the_model_are_steps() {
    let (batch, m) = record_default(|| {
        // Loading, and a first poll: nobody knows yet that phases will come.
        handler().in_scope(|| ());
        decode(1);
        for n in 2..5 {
            // A poll that waits, then one that works.
            handler().in_scope(|| trace_span!(target: "service::queue", "permit").in_scope(|| ()));
            handler().in_scope(|| decode(n));
        }
        // A model's pass that is not marked, within a handler.
        handler().in_scope(|| linear().in_scope(|| ()));
    });
    let expected = [(0, "handler"), (1, "decode"), (2, "decode"), (3, "decode"), (4, "decode"), (5, "linear")];
    assert_eq!(steps(&batch), expected);
    let decodes: Vec<_> = batch.steps.iter().filter(|step| step.phase == Some(Phase::Decode)).collect();
    let application: Vec<bool> = batch.steps.iter().map(|step| step.is_application()).collect();
    assert_eq!(application.iter().filter(|is| **is).count(), 1, "the first one: {batch:?}");
    assert!(decodes.iter().all(|step| step.intervals == 2));
    let spans = sorted(&batch);
    assert!(spans.iter().filter(|s| s.path.path == "decode").all(|s| s.parent_seq.is_none()));
    assert_eq!(m.steps.expect("told").begun, 6);
    assert_conserved(&m);
    let finding = m.verdict.findings.iter().find(|finding| finding.code == Code::SpansOutsidePhases).expect("said");
    let message = finding.message();
    assert!(m.verdict.ok && message.contains("11") && message.contains("handler (service::routes)"), "{message}");
}

/// Requests that come before the first phase, such as health checks, are told too: reports leave them out.
#[test]
fn spans_before_the_first_phase_are_told() {
    let (batch, m) = record_default(|| {
        (0..3).for_each(|_| handler().in_scope(|| ()));
        decode(1);
    });
    assert_eq!(batch.steps.iter().filter(|step| step.is_application()).count(), 3);
    let finding = m.verdict.findings.iter().find(|finding| finding.code == Code::SpansOutsidePhases).expect("said");
    let message = finding.message();
    assert!(message.starts_with("3 times") && message.contains("handler (service::routes)"), "{message}");
}

#[test]
fn without_phases_the_outermost_spans_are_steps() {
    let (batch, m) = record_default(|| {
        for _ in 0..2 {
            handler().in_scope(|| linear().in_scope(|| ()));
            linear().in_scope(|| ());
        }
    });
    assert_eq!(steps(&batch), [(0, "handler"), (1, "linear"), (2, "handler"), (3, "linear")]);
    assert!(!says(&m));
}

/// A span that states its work is the model's wherever it is made.
#[test]
fn layers_of_ones_own_that_state_their_work_are_steps_outside_phases() {
    let (batch, m) = record_default(|| {
        decode(1);
        trace_span!("pooler", flops = 12_u64).in_scope(|| ());
    });
    assert_eq!(steps(&batch), [(0, "decode"), (1, "pooler")]);
    assert!(!says(&m));
}

/// A schedule counts passes, not polls.
#[test]
fn polls_take_no_numbers_of_a_schedule() {
    let every_second = Schedule { skip_first: 0, wait: 1, warmup: 0, active: 1, repeat: 0 };
    let (batch, m) = record(Session::builder().schedule(every_second), |_| {
        for n in 0..10 {
            decode(n);
            (0..3).for_each(|_| handler().in_scope(|| ()));
        }
    });
    assert_eq!(steps(&batch), [1, 3, 5, 7, 9].map(|n| (n, "decode")));
    assert_eq!(m.steps.expect("told").begun, 10);
}

/// Each unrecorded step that follows a recorded one, or is open when one begins, is told with its time.
#[test]
fn unrecorded_steps_are_told_where_rates_need_them() {
    let schedule = Schedule { skip_first: 0, wait: 4, warmup: 0, active: 2, repeat: 0 };
    let (batch, m) = record(Session::builder().schedule(schedule), |_| {
        let outer = llm::Request::new("chat", "m");
        std::thread::scope(|threads| {
            let dispatch = tracing::dispatcher::get_default(Clone::clone);
            let (open, go) = std::sync::mpsc::channel();
            let (end, wait) = std::sync::mpsc::channel::<()>();
            let outer = &outer;
            threads.spawn(move || {
                tracing::dispatcher::with_default(&dispatch, || {
                    let _in_request = outer.enter();
                    let _long = llm::prefill(llm::Tokens::new(3).context(3));
                    open.send(()).expect("waits");
                    let _ = wait.recv();
                });
            });
            go.recv().expect("began");
            // 0 is the long prefill; 4 and 5 are recorded.
            (1..8).for_each(decode);
            drop(end);
        });
        decode(9);
        (9..14).for_each(decode);
    });
    assert_eq!(steps(&batch), [(4, "decode"), (5, "decode"), (10, "decode"), (11, "decode")]);
    let mut told: Vec<_> = batch.steps.iter().flat_map(|step| step.unrecorded.as_deref().expect("told")).collect();
    told.sort_by_key(|step| step.step);
    let told: Vec<_> = told.iter().map(|step| (step.step, step.group(), step.request)).collect();
    assert_eq!(told, [(0, "prefill", Some(1)), (6, "decode", None), (12, "decode", None)]);
    let of = |n: u64| batch.steps.iter().find(|step| step.step == n).expect("recorded");
    let long = batch.steps.iter().flat_map(|step| step.unrecorded.as_deref().expect("told"));
    let long = long.into_iter().find(|step| step.step == 0).expect("told");
    assert!(long.host_start <= of(4).host_start && long.host_end() >= of(5).host_start);
    assert_conserved(&m);
}

#[test]
fn steps_that_are_paused_or_left_out_far_away_are_not_told() {
    let (batch, _) = record(Session::builder().paused(true), |handle| {
        (0..5).for_each(decode);
        handle.start();
        (0..3).for_each(decode);
        handle.stop();
        (0..5).for_each(decode);
    });
    let told: Vec<u64> = batch.steps.iter().flat_map(|s| s.unrecorded.iter().flatten()).map(|s| s.step).collect();
    assert_eq!((batch.steps.len(), told), (3, vec![8]));
}
