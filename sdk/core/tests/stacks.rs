//! Samples of stacks find their intervals, and intervals what their thread did, from a scripted sampler.
#![allow(missing_docs, reason = "a test")]
#![cfg(target_os = "linux")]
mod common;

use candlescope_core::stacks::{
    MonotonicNs, RawStackSample, StackError, StackSink, StackSource, ThreadChange, ThreadEvent,
};
use candlescope_core::{Batch, Session, StackRecord, StackSampleRecord, ThreadState};
use common::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::trace_span;

fn now() -> u64 {
    let read = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (read.tv_sec * 1_000_000_000 + read.tv_nsec) as u64
}

fn tid() -> u64 {
    rustix::thread::gettid().as_raw_nonzero().get() as u64
}

fn pause() {
    std::thread::sleep(Duration::from_millis(2));
}

/// A sampler that delivers what a test puts here.
#[derive(Clone, Default)]
struct Script {
    coming: Arc<Mutex<StackSink>>,
    refuses: bool,
    /// Delivers what there is and panics, once it may.
    panics: Arc<AtomicBool>,
}

impl Script {
    fn event(&self, tid: u64, time: u64, change: ThreadChange) {
        self.coming.lock().unwrap().events.push(ThreadEvent { tid, time: MonotonicNs(time), change });
    }

    fn attach(&self, tid: u64, time: u64) {
        let change = ThreadChange::Attached { name: "script".into(), switches: true, page_faults: true, running: None };
        self.event(tid, time, change);
    }

    fn sample(&self, tid: u64, time: u64, state: ThreadState, stack: Option<u64>) {
        let sample =
            RawStackSample { tid, time: MonotonicNs(time), state, weight_ns: 1_000, stack, kernel: Some(false) };
        self.coming.lock().unwrap().samples.push(sample);
    }

    fn stack(&self, stack: u64, parent: Option<u64>, function: &str) {
        let mut record = StackRecord::new(stack, parent, 0, "script", 0);
        record.function = Some(function.into());
        self.coming.lock().unwrap().stacks.push(record);
    }

    fn hand_over(&self, into: &mut StackSink) {
        let coming = std::mem::take(&mut *self.coming.lock().unwrap());
        into.samples.extend(coming.samples);
        into.events.extend(coming.events);
        into.stacks.extend(coming.stacks);
        into.lost += coming.lost;
    }
}

impl StackSource for Script {
    fn name(&self) -> &'static str {
        "script"
    }
    fn start(&mut self) -> Result<(), StackError> {
        if self.refuses { Err(StackError("refused here; allow it".into())) } else { Ok(()) }
    }
    fn describe(&mut self) -> BTreeMap<String, Value> {
        // How many samples there were is known at the end only.
        let mut facts = BTreeMap::from([("stacks_source".to_string(), "script".into())]);
        let stopped = self.coming.lock().unwrap().through > MonotonicNs(0);
        facts.extend(stopped.then(|| ("stacks_threads_left_out".to_string(), 3.into())));
        facts
    }
    fn poll(&mut self, into: &mut StackSink) -> Result<(), StackError> {
        // What a test has done until now it says later: everything comes at the end.
        if self.panics.load(Ordering::Acquire) {
            self.hand_over(into);
            into.through = MonotonicNs(now());
            panic!("a sampler's own mistake");
        }
        Ok(())
    }
    fn stop(&mut self, into: &mut StackSink) {
        self.hand_over(into);
        into.through = MonotonicNs(now());
        into.samples_through = into.through;
        self.coming.lock().unwrap().through = into.through;
    }
}

fn row(batch: &Batch, tid: u64, at: usize) -> &StackSampleRecord {
    batch.stack_samples.iter().filter(|row| row.tid == tid).nth(at).expect("a sample")
}

#[test]
fn samples_find_the_innermost_interval_and_intervals_what_their_thread_did() {
    let script = Script::default();
    let said = script.clone();
    let (batch, m) = record(Session::builder().stacks(script), move |_| {
        let me = tid();
        said.attach(me, now());
        said.stack(1, None, "main");
        said.stack(2, Some(1), "candle_core::matmul");
        said.sample(me, now(), ThreadState::Running, Some(2));
        pause();
        let (step, inner) = (trace_span!("step"), trace_span!("inner"));
        let outer = step.enter();
        pause();
        said.sample(me, now(), ThreadState::Running, Some(1));
        {
            let _inner = inner.enter();
            // None until then: what is told later came since.
            said.event(me, now(), ThreadChange::PageFaults(0));
            pause();
            said.sample(me, now(), ThreadState::Running, Some(2));
            let left = now();
            said.event(me, left, ThreadChange::Off { preempted: false });
            said.sample(me, left, ThreadState::Blocked, None);
            pause();
            said.event(me, now(), ThreadChange::On);
            said.event(me, now(), ThreadChange::PageFaults(7));
            pause();
        }
        let left = now();
        said.event(me, left, ThreadChange::Off { preempted: true });
        pause();
        said.event(me, now(), ThreadChange::On);
        pause();
        drop(outer);
    });
    assert_conserved(&m);
    assert_eq!(
        (&m.environment["stacks_source"], &m.environment["stacks_threads_left_out"]),
        (&"script".into(), &3.into())
    );
    assert_eq!(m.stacks.as_ref().map(|s| (s.samples, s.unplaced, s.threads)), Some((4, 0, 1)));
    assert_eq!(batch.stacks.len(), 2);
    let me = batch.stack_samples[0].tid;
    let path = |at| row(&batch, me, at).path.as_ref().map(|path| path.path.clone());
    assert_eq!((path(0), path(1).as_deref(), path(2).as_deref()), (None, Some("step"), Some("step/inner")));
    assert_eq!((path(3).as_deref(), row(&batch, me, 3).state), (Some("step/inner"), ThreadState::Blocked));
    let (outer, inner) = (&batch.spans[0], &batch.spans[1]);
    for one in [outer, inner] {
        let [cpu, preempted, blocked] = [one.cpu_ns, one.preempted_ns, one.blocked_ns].map(|part| part.expect("known"));
        let all = cpu + preempted + blocked;
        assert!(all.abs_diff(one.host_dur_ns) < 20_000, "{all} of {}", one.host_dur_ns);
        assert!(blocked > 1_500_000, "{blocked}");
        assert_eq!(one.page_faults, Some(7));
    }
    // It had ended by then, as closely as the two clocks agree.
    assert!(inner.preempted_ns.expect("known") < 20_000, "{:?}", inner.preempted_ns);
    assert!(outer.preempted_ns.expect("known") > 1_500_000);
    assert_eq!(batch.steps[0].blocked_ns, outer.blocked_ns);
    assert_eq!(row(&batch, me, 2).seq, Some(inner.seq));
}

#[test]
fn a_pool_works_for_the_thread_that_waits_for_it() {
    let script = Script::default();
    let said = script.clone();
    let (batch, _) = record(Session::builder().stacks(script), move |_| {
        let (me, worker, other) = (tid(), 1 << 40, (1 << 40) + 1);
        for thread in [me, worker, other] {
            said.attach(thread, now());
        }
        said.stack(1, None, "<rayon_core::registry::ThreadBuilder>::run");
        said.stack(2, Some(1), "candle_core::matmul");
        said.stack(3, None, "somebody::else");
        let step = trace_span!("step");
        {
            let _step = step.enter();
            let product = trace_span!("product");
            let _product = product.enter();
            pause();
            said.event(me, now(), ThreadChange::Off { preempted: false });
            pause();
            said.sample(worker, now(), ThreadState::Running, Some(2));
            said.sample(other, now(), ThreadState::Running, Some(3));
            said.sample(worker, now(), ThreadState::Blocked, Some(1));
            pause();
            said.event(me, now(), ThreadChange::On);
            pause();
        }
        pause();
        said.sample(worker, now(), ThreadState::Running, Some(2));
    });
    let worker = 1 << 40;
    let product = row(&batch, worker, 0);
    assert!(product.pool && product.path.as_ref().is_some_and(|path| path.path == "step/product"), "{product:?}");
    assert_eq!(product.step, Some(0));
    assert_eq!(row(&batch, worker, 1).step, None, "a pool's thread that waits has nothing to do");
    assert_eq!(row(&batch, worker, 2).step, None, "no step was open");
    assert_eq!(row(&batch, worker + 1, 0).step, None, "it is no pool's");
}

#[test]
fn of_two_threads_the_pool_works_for_the_one_that_waits() {
    let script = Script::default();
    let said = script.clone();
    let (batch, _) = record(Session::builder().stacks(script), move |_| {
        let worker = 1 << 40;
        said.attach(worker, now());
        said.stack(1, None, "rayon_core::registry::main_loop");
        let barrier = Arc::new(std::sync::Barrier::new(2));
        std::thread::scope(|threads| {
            for (name, waits) in [("waits", true), ("computes", false)] {
                let (said, barrier) = (said.clone(), barrier.clone());
                let dispatch = tracing::dispatcher::get_default(Clone::clone);
                threads.spawn(move || {
                    tracing::dispatcher::with_default(&dispatch, || {
                        let me = tid();
                        said.attach(me, now());
                        let step = trace_span!("step", name);
                        let inside = trace_span!("inside");
                        let other = trace_span!("other");
                        let _step = step.enter();
                        let _inside = if waits { inside.enter() } else { other.enter() };
                        pause();
                        barrier.wait();
                        if waits {
                            said.event(me, now(), ThreadChange::Off { preempted: false });
                            pause();
                            said.sample(worker, now(), ThreadState::Running, Some(1));
                            pause();
                            said.event(me, now(), ThreadChange::On);
                        }
                        barrier.wait();
                        pause();
                    });
                });
            }
        });
    });
    let of = row(&batch, 1 << 40, 0);
    assert!(of.pool && of.path.as_ref().is_some_and(|path| path.path == "step/inside"), "{of:?}");
}

#[test]
fn a_sampler_that_loses_much_is_told() {
    let script = Script::default();
    let said = script.clone();
    let (batch, m) = record(Session::builder().stacks(script), move |_| {
        let me = tid();
        said.attach(me, now());
        said.stack(1, None, "main");
        trace_span!("step").in_scope(|| {
            pause();
            said.sample(me, now(), ThreadState::Running, Some(1));
            pause();
        });
        said.coming.lock().unwrap().lost += 9;
    });
    assert_eq!((batch.stack_samples.len(), m.stacks.as_ref().map(|stacks| stacks.lost)), (1, Some(9)));
    let found = m.verdict.findings.iter().find(|finding| finding.code == candlescope_core::run::Code::StacksLost);
    assert!(found.is_some_and(|finding| finding.message().starts_with("9 of 10 samples")), "{:?}", m.verdict);
}

#[test]
fn a_sampler_that_is_refused_leaves_a_whole_run() {
    let script = Script { refuses: true, ..Script::default() };
    let (batch, m) = record(Session::builder().stacks(script), |_| {
        trace_span!("step").in_scope(pause);
    });
    assert_conserved(&m);
    assert_eq!((batch.spans.len(), batch.spans[0].cpu_ns), (1, None));
    assert!(m.verdict.findings.iter().any(|finding| finding.code == candlescope_core::run::Code::NoStacks));
    let error = m.stacks.and_then(|stacks| stacks.error).expect("an error");
    assert!(error.contains("allow it"), "{error}");
}

#[test]
fn after_a_sampler_panicked_nobody_knows_what_threads_did() {
    let script = Script::default();
    let said = script.clone();
    let (batch, m) = record(Session::builder().stacks(script), move |_| {
        let step = || trace_span!("step").in_scope(pause);
        said.attach(tid(), now());
        pause();
        step();
        said.panics.store(true, Ordering::Release);
        std::thread::sleep(Duration::from_millis(100));
        step();
    });
    assert_conserved(&m);
    let cpu: Vec<bool> = batch.steps.iter().map(|step| step.cpu_ns.is_some()).collect();
    assert_eq!(cpu, [true, false]);
    let error = m.stacks.and_then(|stacks| stacks.error).expect("an error");
    assert!(error.contains("panicked") && error.contains("a sampler's own mistake"), "{error}");
}
