//! Many threads: a thousand alive at once, ten thousand that come and go, some that outlive the session.
#![allow(missing_docs, reason = "a test")]
mod common;
use candlescope_core::*;
use common::*;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};
use tracing::{Dispatch, dispatcher, trace_span};
use tracing_subscriber::prelude::*;

/// Intervals per step.
const INTERVALS: u64 = 3;

fn steps(n: usize) {
    let (step, inner) = (trace_span!("step"), trace_span!("inner"));
    for _ in 0..n {
        let _step = step.enter();
        (1..INTERVALS).for_each(|_| inner.in_scope(|| ()));
    }
}

/// `threads` threads that are alive at the same time. Each records `n` more steps after all have recorded one.
fn at_once(threads: usize, n: usize) {
    let dispatch = dispatcher::get_default(Dispatch::clone);
    let all = Barrier::new(threads);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let work = || {
                dispatcher::with_default(&dispatch, || {
                    steps(1);
                    all.wait();
                    steps(n);
                    all.wait();
                });
            };
            std::thread::Builder::new().stack_size(128 << 10).spawn_scoped(scope, work).expect("a thread");
        }
    });
}

fn told_by(builder: SessionBuilder) -> (SessionBuilder, Arc<Mutex<Vec<String>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let kept = told.clone();
    (builder.on_problem(move |problem| kept.lock().unwrap().push(problem.to_string())), told)
}

#[test]
fn a_thousand_threads_record_at_once() {
    let (batch, m) = record(Session::builder(), |_| at_once(1_000, 10));
    assert_conserved(&m);
    assert_eq!((m.loss.emitted, m.loss.threads_without_ring), (1_000 * 11 * INTERVALS, 0));
    assert_eq!((batch.steps.len() as u64, m.loss.lost()), (11_000, 0), "{:?}", m.loss);
    let threads: std::collections::BTreeSet<_> = batch.spans.iter().map(|s| s.thread.index).collect();
    assert_eq!(threads.len(), 1_000);
}

#[test]
fn threads_without_room_for_a_ring_are_counted_and_told() {
    let (builder, told) = told_by(Session::builder().ring_capacity(4_096).ring_memory(4 << 20));
    let (batch, m) = record(builder, |_| at_once(200, 4));
    assert_conserved(&m);
    let without = m.loss.threads_without_ring;
    assert!((100..200).contains(&without), "{:?}", m.loss);
    assert_eq!((m.loss.no_ring, m.loss.ring_full), (without * 5 * INTERVALS, 0));
    assert_eq!(batch.spans.len() as u64, (200 - without) * 5 * INTERVALS);
    let counted = m.steps.expect("counted");
    assert_eq!((counted.begun, counted.lost, counted.open_at_end), (1_000, without * 5, 0));
    let finding = m.verdict.findings.iter().find(|f| f.code == "threads_without_ring").expect("found");
    assert!(finding.remedy().contains("ring_memory") && !m.verdict.ok, "{finding:?}");
    let told = told.lock().unwrap().clone();
    assert!(told.len() == 1 && told[0].contains("ring_memory"), "{told:?}");
    assert_eq!(m.options["ring_memory"], 4 << 20);
}

#[test]
fn a_thread_without_a_ring_counts_what_would_have_been_recorded_and_nothing_else() {
    let (_, m) = record(Session::builder().ring_memory(0).paused(true), |handle| {
        steps(2);
        handle.capture_next(1).unwrap();
        steps(2);
        handle.start();
        steps(1);
        annotate(Annotation::new().flops(1));
        assert!(!is_recording());
        let open = trace_span!("open");
        let _left_open = open.enter();
    });
    assert_conserved(&m);
    assert_eq!((m.loss.emitted, m.loss.no_ring, m.loss.unmatched_exits), (7, 7, 0), "{:?}", m.loss);
    let counted = m.steps.expect("counted");
    assert_eq!((counted.begun, counted.paused, counted.lost, counted.open_at_end), (6, 3, 3, 0), "{counted:?}");
}

#[test]
fn threads_that_outlive_the_session_do_no_harm() {
    let memory = MemoryExporter::new();
    let (layer, session) = Session::builder().exporter(memory.clone()).start().expect("starts");
    let dispatch = Dispatch::new(tracing_subscriber::registry().with(layer));
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let stops = Stop(&stop);
        for _ in 0..4 {
            scope.spawn(|| {
                dispatcher::with_default(&dispatch, || {
                    while !stop.load(Ordering::Relaxed) {
                        steps(10);
                        done.fetch_add(10, Ordering::Relaxed);
                    }
                });
            });
        }
        let until = |n: u64| {
            while done.load(Ordering::Relaxed) < n {
                std::thread::yield_now();
            }
        };
        until(1_000);
        let manifest = session.finish();
        assert_conserved(&manifest);
        assert!(manifest.complete && manifest.counts["steps"] > 100, "{:?}", manifest.loss);
        let after = done.load(Ordering::Relaxed);
        until(after + 10_000);
        drop(stops);
    });
    // Nothing was recorded after the end, and a new session finds the same threads in their initial state.
    let recorded = memory.batch().steps.len();
    let (batch, m) = record(Session::builder(), |_| at_once(4, 5));
    assert_eq!((batch.steps.len(), memory.batch().steps.len()), (24, recorded));
    assert_conserved(&m);
}

#[test]
fn one_session_after_the_other_in_one_program() {
    let mut ends = Vec::new();
    for round in 1..=20_usize {
        let (batch, m) = record(Session::builder(), |_| at_once(3, round));
        assert_conserved(&m);
        assert_eq!(batch.steps.len(), 3 * (round + 1));
        ends.push(batch.spans.iter().map(|s| s.span_id.0).min());
    }
    ends.sort_unstable();
    ends.dedup();
    assert_eq!(ends.len(), 20, "ids of their own");
}

/// Resident memory of this process in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).expect("VmRSS");
    line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).expect("a number") * 1024
}

const ALONE: &str = "CANDLESCOPE_TEST_THREADS_ALONE";

/// Runs a test of this file in a process of its own, where no other test uses memory. `true` in that process.
fn alone(test: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let program = std::env::current_exe().expect("this test");
    let status = Command::new(program).args(["--exact", test, "--nocapture"]).env(ALONE, "1").status().expect("starts");
    assert!(status.success(), "{test}: {status}");
    false
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "reads /proc")]
fn ten_thousand_threads_that_come_and_go_leave_no_memory_behind() {
    if !alone("ten_thousand_threads_that_come_and_go_leave_no_memory_behind") {
        return;
    }
    let (layer, session) = Session::builder().exporter(Counts).start().expect("starts");
    let dispatch = Dispatch::new(tracing_subscriber::registry().with(layer));
    let handle = session.handle();
    // With more threads it can be seen whether memory goes on growing.
    let each = std::env::var("CANDLESCOPE_THREADS").ok().and_then(|n| n.parse::<u64>().ok()).unwrap_or(10_000) / 2;
    let mut most = [0; 2];
    let begin = Instant::now();
    for half in &mut most {
        for n in 0..each {
            let dispatch = dispatch.clone();
            let work = move || dispatcher::with_default(&dispatch, || steps(2));
            std::thread::Builder::new().spawn(work).expect("a thread").join().expect("it ends");
            if n % 100 == 0 {
                // On a busy machine the drain may be late in freeing the rings of ended threads, but this test needs
                // room for more.
                handle.flush(Duration::from_secs(30)).expect("a round of the drain");
                *half = resident().max(*half);
            }
        }
    }
    let took = begin.elapsed();
    let m = session.finish();
    assert_conserved(&m);
    assert_eq!(m.loss.emitted, 2 * each * 2 * INTERVALS);
    assert_eq!((m.counts["steps"], m.loss.lost()), (4 * each, 0), "{:?}", m.loss);
    eprintln!("{} threads in {took:?}; most resident memory in each half: {most:?} bytes", 2 * each);
    assert!(most[1] < most[0] + (8 << 20), "{most:?}");
    assert!(most[1] < 300 << 20, "{most:?}");
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "reads /proc")]
fn threads_that_come_after_the_session_cost_nothing() {
    if !alone("threads_that_come_after_the_session_cost_nothing") {
        return;
    }
    let (layer, session) = Session::builder().exporter(Counts).start().expect("starts");
    let dispatch = Dispatch::new(tracing_subscriber::registry().with(layer));
    let come_and_go = |threads: u64| {
        for _ in 0..threads {
            let dispatch = dispatch.clone();
            let work = move || dispatcher::with_default(&dispatch, || steps(2));
            std::thread::Builder::new().spawn(work).expect("a thread").join().expect("it ends");
        }
    };
    come_and_go(100);
    let m = session.finish();
    assert_eq!((m.counts["steps"], m.loss.lost()), (200, 0));
    come_and_go(1_000);
    let before = resident();
    come_and_go(10_000);
    let grown = resident().saturating_sub(before);
    eprintln!("10,000 threads after the session: {grown} bytes more resident");
    assert!(grown < 4 << 20, "{grown} bytes");
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "reads /proc")]
fn no_number_of_threads_takes_more_memory_than_was_allowed() {
    if !alone("no_number_of_threads_takes_more_memory_than_was_allowed") {
        return;
    }
    // Rings of the default size for all threads would take 2 GiB, and each ring is filled completely.
    let builder = Session::builder().exporter(Counts).ring_memory(32 << 20);
    let (layer, session) = builder.drain_interval(Duration::from_secs(3600)).start().expect("starts");
    let before = resident();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || at_once(1_000, 11_000));
    let grown = resident().saturating_sub(before);
    let m = session.finish();
    assert_conserved(&m);
    assert!(m.loss.ring_full > 0 && m.loss.threads_without_ring > 500, "{:?}", m.loss);
    eprintln!("1,000 threads, 32 MiB of rings: {grown} bytes more resident; {:?}", m.loss);
    // The rest is what the system and `tracing` keep for a thousand threads.
    assert!(grown < 96 << 20, "{grown} bytes");
}

/// Accepts everything and keeps nothing.
struct Counts;

impl Exporter for Counts {
    fn name(&self) -> &'static str {
        "counts"
    }
    fn export(&mut self, batch: &Batch, ledger: &Ledger) -> Result<(), ExportError> {
        ledger.exported_batch(batch);
        Ok(())
    }
}
