//! Shares of functions, and times off the CPU, of threads that are known to spend them.
#![allow(missing_docs, reason = "a test")]
#![cfg(target_os = "linux")]

mod stack_support;

use candlescope_collectors::stacks::SourceChoice;
use candlescope_core::ThreadState;
use stack_support::{Recorded, Recorder, alpha, beta, monotonic_ns, thread_cpu_ns, thread_id};
use std::time::Duration;

/// What a thread did, by its own clocks.
#[derive(Debug)]
struct Truth {
    tid: u64,
    alpha_ns: u64,
    beta_ns: u64,
    blocked_ns: u64,
}

/// 30 % in alpha, 50 % in beta, 20 % waiting for a lock.
#[inline(never)]
fn work(rounds: u64) -> Truth {
    let mut truth = Truth { tid: thread_id(), alpha_ns: 0, beta_ns: 0, blocked_ns: 0 };
    for _ in 0..rounds {
        let start = thread_cpu_ns();
        alpha(9_000_000);
        let middle = thread_cpu_ns();
        beta(15_000_000);
        let end = thread_cpu_ns();
        let asleep = monotonic_ns();
        wait_for_lock(Duration::from_millis(6));
        truth.alpha_ns += middle - start;
        truth.beta_ns += end - middle;
        truth.blocked_ns += monotonic_ns() - asleep;
    }
    truth
}

#[inline(never)]
fn wait_for_lock(time: Duration) {
    let lock = std::sync::Mutex::new(());
    let held = lock.lock().unwrap();
    let wakes = std::sync::Condvar::new();
    drop(wakes.wait_timeout(held, time).unwrap());
}

fn check(recorded: &Recorded, truth: &Truth) {
    let all = (truth.alpha_ns + truth.beta_ns + truth.blocked_ns) as f64;
    let mut shares =
        vec![("alpha", ThreadState::Running, truth.alpha_ns), ("beta", ThreadState::Running, truth.beta_ns)];
    if recorded.samples.iter().any(|s| s.state == ThreadState::Blocked) {
        shares.push(("", ThreadState::Blocked, truth.blocked_ns));
    }
    for (function, state, expected) in shares {
        let sampled = recorded.weight(truth.tid, state, (!function.is_empty()).then_some(function));
        let (expected, sampled) = (expected as f64 / all * 100.0, sampled as f64 / all * 100.0);
        println!("{} {function:>5} {state:?}: {expected:.2} %, sampled {sampled:.2} %", recorded.source);
        assert!((expected - sampled).abs() < 3.0, "{truth:?}\n{}", recorded.summary());
    }
}

fn shares(source: SourceChoice, threads: usize) {
    let recorder = match Recorder::with(source) {
        Ok(recorder) => recorder,
        Err(error) => return println!("skipped: {error}"),
    };
    let workers: Vec<_> = (0..threads).map(|_| std::thread::spawn(|| work(100))).collect();
    let truths: Vec<_> = workers.into_iter().map(|w| w.join().unwrap()).collect();
    let recorded = recorder.stop();
    println!("{:?} poll {:.1} µs", recorded.facts, recorded.poll_cpu_ns as f64 / 1e3 / recorded.polls as f64);
    println!("{}", recorded.summary());
    for truth in &truths {
        check(&recorded, truth);
    }
    assert_eq!(recorded.lost, 0);
}

#[test]
fn shares_by_perf() {
    shares(SourceChoice::Perf, 1);
}

#[test]
fn shares_by_signals() {
    shares(SourceChoice::Signals, 1);
}
