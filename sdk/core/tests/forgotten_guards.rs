//! Guards that are forgotten, dropped too late, or dropped on another thread: what comes after them is recorded as if
//! they had been dropped in order.
#![allow(missing_docs, reason = "a test")]
mod common;
mod scripted;
use candlescope_core::*;
use common::*;
use std::mem::forget;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tracing::{dispatcher, trace_span};

fn finding<'a>(m: &'a run::RunManifest, code: &str) -> Option<&'a run::Finding> {
    m.verdict.findings.iter().find(|f| f.code == code)
}

#[test]
fn a_guard_forgotten_in_every_step_leaves_every_step_whole() {
    const STEPS: usize = 2_000;
    let told = Arc::new(Mutex::new(Vec::new()));
    let kept = told.clone();
    let builder = Session::builder().on_problem(move |problem| kept.lock().unwrap().push(problem.to_string()));
    let (batch, m) = record(builder, |_| {
        let linear = trace_span!("linear");
        for position in 1..=STEPS {
            let _step = llm::decode(llm::Tokens::new(1).context(position));
            linear.in_scope(|| ());
            forget(llm::sample());
        }
    });
    assert_conserved(&m);
    assert_eq!(batch.steps.len(), STEPS);
    assert!(batch.steps.iter().all(|s| s.path.path == "decode" && s.phase == Some(Phase::Decode) && s.intervals == 2));
    let linear: Vec<_> = batch.spans.iter().filter(|s| &*s.path.name == "linear").collect();
    assert!(linear.iter().all(|s| s.path.path == "decode/linear" && s.depth == 1), "{:?}", linear.last());
    assert_eq!((linear.len(), m.loss.too_deep, m.loss.unmatched_exits), (STEPS, 0, 0));
    // No interval began after the last one.
    assert_eq!((m.loss.forgotten_guards, m.loss.open_at_end), (STEPS as u64 - 1, STEPS as u64));
    let found = finding(&m, "guards_forgotten").expect("found");
    assert!(found.message().starts_with("1,999 intervals") && found.remedy().contains("mem::forget"), "{found:?}");
    assert_eq!((finding(&m, "orphans"), m.verdict.ok), (None, true), "{:?}", m.verdict);
    let told = told.lock().unwrap().clone();
    assert!(told.len() == 1 && told[0].contains("mem::forget"), "{told:?}");
}

#[test]
fn spans_of_a_model_that_were_forgotten_once_are_no_parents_later() {
    let (batch, m) = record_default(|| {
        // As in candle: spans are made once and entered again and again.
        let (forward, block, linear) = (trace_span!("forward"), trace_span!("block"), trace_span!("linear"));
        for n in 0..5 {
            let _forward = forward.enter();
            for _ in 0..2 {
                let _block = block.enter();
                if n == 1 {
                    forget(linear.enter());
                } else {
                    linear.in_scope(|| ());
                }
            }
        }
    });
    assert_conserved(&m);
    assert_eq!((batch.steps.len(), m.loss.forgotten_guards), (5, 2));
    for step in batch.steps.iter().filter(|s| s.step != 1) {
        let mut inside: Vec<_> = batch.spans.iter().filter(|s| s.step == Some(step.step)).collect();
        inside.sort_by_key(|s| s.seq);
        let paths: Vec<_> = inside.iter().map(|s| s.path.path.as_str()).collect();
        let whole =
            ["forward", "forward/block[0]", "forward/block[0]/linear", "forward/block[1]", "forward/block[1]/linear"];
        assert_eq!(paths, whole, "step {}", step.step);
        assert_eq!(inside.iter().map(|s| s.depth).collect::<Vec<_>>(), [0, 1, 2, 1, 2]);
    }
}

#[test]
fn the_guard_of_a_step_forgotten_inside_a_request_ends_with_the_request() {
    let (batch, m) = record_default(|| {
        for n in 0..300 {
            let request = llm::Request::new("chat", "m");
            let _in_request = request.enter();
            drop(llm::prefill(llm::Tokens::new(3).context(3)));
            if n % 2 == 0 {
                forget(llm::decode(llm::Tokens::new(1).context(4)));
            }
        }
    });
    assert_conserved(&m);
    // For `tracing` a span is open while one below it is open: a request with a forgotten step never ends.
    assert_eq!((batch.requests.len(), m.loss.requests_open_at_end), (150, 150));
    assert_eq!(batch.steps.len(), 300, "{:?}", m.loss);
    let requests: std::collections::BTreeSet<_> = batch.steps.iter().map(|s| s.request).collect();
    assert_eq!(requests.len(), 300, "each step belongs to its own request");
    assert!(batch.steps.iter().all(|s| s.path.path == "prefill"));
    assert_eq!((m.loss.forgotten_guards, m.loss.too_deep), (150, 0));
}

#[test]
fn one_that_is_only_late_is_recorded_and_not_called_forgotten() {
    let (batch, m) = record_default(|| {
        let (step, child, next) = (trace_span!("step"), trace_span!("child"), trace_span!("next"));
        let guard = step.enter();
        let late = child.enter();
        drop(guard);
        next.in_scope(|| child.in_scope(|| ()));
        drop(late);
        // The request is left before its step, which goes on and is complete.
        let request = llm::Request::new("chat", "m");
        let in_request = request.enter();
        let decode = llm::decode(llm::Tokens::new(1).context(1));
        drop(in_request);
        child.in_scope(|| annotate(Annotation::new().flops(5)));
        drop(decode);
    });
    assert_conserved(&m);
    let mut paths = paths(&batch);
    paths.sort_unstable();
    assert_eq!(paths, ["(lost)/child", "decode", "decode/child", "next", "next/child", "request", "step"]);
    assert_eq!((m.loss.forgotten_guards, m.loss.open_at_end, m.loss.unmatched_exits), (0, 0, 0));
    assert_eq!(batch.steps.iter().map(|s| s.flops).max(), Some(Some(5)));
}

#[test]
fn a_request_inside_another_one_goes_on_when_that_one_is_left() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let kept = told.clone();
    let builder = Session::builder().on_problem(move |problem| kept.lock().unwrap().push(problem.to_string()));
    let (batch, m) = record(builder, |session| {
        let [outer, inner, third] = [(); 3].map(|()| llm::Request::new("chat", "m"));
        let in_outer = outer.enter();
        let in_inner = inner.enter();
        drop(in_outer);
        drop(third.enter());
        session.flush(std::time::Duration::from_secs(10)).expect("a round of the drain");
        drop(llm::decode(llm::Tokens::new(1).context(1)));
        drop(in_inner);
        drop((outer, inner, third));
    });
    assert_conserved(&m);
    assert_eq!((batch.steps.len(), batch.steps[0].request), (1, Some(2)), "the decode is the second request's");
    assert_eq!((m.loss.forgotten_guards, finding(&m, "guards_forgotten")), (0, None));
    assert!(told.lock().unwrap().is_empty(), "{told:?}");
}

#[test]
fn a_step_that_is_left_after_the_next_request_began_is_a_step() {
    let (batch, m) = record_default(|| {
        let requests = [(); 2].map(|()| llm::Request::new("chat", "m"));
        let linear = trace_span!("linear");
        let first = requests[0].enter();
        let decode = llm::decode(llm::Tokens::new(1).context(1));
        linear.in_scope(|| ());
        drop(first);
        let second = requests[1].enter();
        drop(llm::prefill(llm::Tokens::new(3).context(3)));
        drop(decode);
        drop(llm::decode(llm::Tokens::new(1).context(4)));
        drop(second);
    });
    assert_conserved(&m);
    let mut steps: Vec<_> = batch.steps.iter().map(|s| (s.request, s.path.path.as_str(), s.intervals)).collect();
    steps.sort();
    assert_eq!(steps, [(Some(1), "decode", 2), (Some(2), "decode", 1), (Some(2), "prefill", 1)]);
    let paths: std::collections::BTreeSet<_> = batch.spans.iter().map(|s| s.path.path.as_str()).collect();
    assert!(paths.contains("decode/linear") && !paths.iter().any(|p| p.contains("(lost)")), "{paths:?}");
    assert_eq!((m.loss.forgotten_guards, m.steps.map(|s| (s.recorded, s.open_at_end))), (0, Some((3, 0))));
}

#[test]
fn stages_that_hand_over_are_late_and_not_forgotten() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let kept = told.clone();
    let builder = Session::builder().on_problem(move |problem| kept.lock().unwrap().push(problem.to_string()));
    let (_, m) = record(builder, |session| {
        let (stage, work) = (trace_span!("stage"), trace_span!("work"));
        let mut before = stage.clone().entered();
        for _ in 0..20 {
            let next = trace_span!("stage").entered();
            drop(before);
            work.in_scope(|| ());
            session.flush(std::time::Duration::from_secs(10)).expect("a round of the drain");
            before = next;
        }
        drop(before);
    });
    assert_conserved(&m);
    assert_eq!((m.loss.forgotten_guards, finding(&m, "guards_forgotten")), (0, None));
    assert!(told.lock().unwrap().is_empty(), "{told:?}");
}

#[test]
fn a_span_left_on_another_thread_harms_neither() {
    let (batch, m) = record_default(|| {
        let dispatch = dispatcher::get_default(tracing::Dispatch::clone);
        let (step, child) = (trace_span!("step"), trace_span!("child"));
        let id = child.id().expect("enabled");
        for _ in 0..100 {
            step.in_scope(|| dispatch.enter(&id));
            std::thread::scope(|scope| {
                scope.spawn(|| dispatcher::with_default(&dispatch, || step.in_scope(|| dispatch.exit(&id))));
            });
        }
        step.in_scope(|| ());
    });
    assert_conserved(&m);
    assert_eq!((batch.steps.len(), m.loss.unmatched_exits, m.loss.forgotten_guards), (201, 100, 100), "{:?}", m.loss);
    assert!(finding(&m, "unmatched_exits").is_some(), "{:?}", m.verdict.findings);
    assert!(batch.spans.iter().all(|s| s.path.path == "step" && s.depth == 0));
}

/// Counts enters minus exits, and checks that each interval is reported only once.
struct Balance(Arc<AtomicI64>, Arc<AtomicU64>);

impl Tap for Balance {
    fn name(&self, _: u32, _: &str, _: &str) {}
    fn enter(&self, _: TapInterval) {
        self.0.fetch_add(1, Ordering::Relaxed);
        self.1.fetch_add(1, Ordering::Relaxed);
    }
    fn exit(&self, _: TapInterval) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn taps_and_kernels_see_every_interval_end() {
    let (open, seen) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicU64::new(0)));
    let device = scripted::Device::new();
    let builder = Session::builder()
        .tap(Balance(open.clone(), seen.clone()))
        .gpu(scripted::Clock(device.clone()), GpuTiming::tier(GpuTier::All))
        .kernels(scripted::Recorder(device), None);
    let (batch, m) = record(builder, |_| {
        let (step, child) = (trace_span!("step"), trace_span!("child"));
        for n in 0..100 {
            let _step = step.enter();
            let _child = child.enter();
            match n % 3 {
                0 => forget(child.enter()),
                1 => {
                    let late = child.enter();
                    drop(_child);
                    drop(_step);
                    drop(late);
                }
                _ => {}
            }
        }
    });
    assert_conserved(&m);
    assert_eq!((open.load(Ordering::Relaxed), batch.steps.len()), (0, 100));
    assert_eq!(seen.load(Ordering::Relaxed), batch.spans.len() as u64 + 34);
    assert_eq!(m.loss.forgotten_guards, 33);
}
