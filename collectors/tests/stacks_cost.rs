//! What sampling costs: the threads that are sampled, and the thread that polls. Prints; fails where it is far too much.
#![allow(missing_docs, reason = "a test")]
#![cfg(target_os = "linux")]

mod stack_support;

use candlescope_collectors::stacks::SourceChoice;
use stack_support::*;
use std::hint::black_box;
use std::sync::Barrier;

/// CPU time of a fixed amount of work, that of a small matrix product, on two threads at once.
fn work_ns() -> u64 {
    const SIDE: usize = 128;
    let start = Barrier::new(2);
    let work = || {
        let (a, b) = (vec![1.0_f32; SIDE * SIDE], vec![2.0_f32; SIDE * SIDE]);
        let mut c = vec![0.0_f32; SIDE * SIDE];
        start.wait();
        let begun = thread_cpu_ns();
        for _ in 0..600 {
            product(&a, &b, &mut c, SIDE);
        }
        black_box(&c);
        thread_cpu_ns() - begun
    };
    std::thread::scope(|scope| {
        let threads = [scope.spawn(work), scope.spawn(work)];
        threads.map(|thread| thread.join().unwrap()).iter().sum()
    })
}

#[inline(never)]
fn product(a: &[f32], b: &[f32], c: &mut [f32], side: usize) {
    for (row, out) in a.chunks_exact(side).zip(c.chunks_exact_mut(side)) {
        for (x, b_row) in row.iter().zip(b.chunks_exact(side)) {
            for (y, b) in out.iter_mut().zip(b_row) {
                *y += x * b;
            }
        }
    }
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

#[test]
fn sampling_two_busy_threads_costs_little() {
    work_ns();
    for source in [SourceChoice::Auto, SourceChoice::Signals] {
        let (mut ratios, mut poll_us, mut poll_share, mut first_ms) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut name = String::new();
        let mut samples = 0;
        for _ in 0..9 {
            let without = work_ns();
            let recorder = Recorder::with(source).unwrap();
            let (with, begun) = (work_ns(), monotonic_ns());
            let after = work_ns();
            let wall = monotonic_ns() - begun;
            let recorded = recorder.stop();
            let again = work_ns();
            name.clone_from(&recorded.source);
            samples += recorded.samples.len();
            ratios.push((with + after) as f64 / (without + again) as f64 - 1.0);
            poll_us.push(recorded.poll_us());
            poll_share.push(recorded.poll_us() * 1e3 / 10e6);
            first_ms.push(recorded.polls_ns[0] as f64 / 1e6);
            let _ = wall;
        }
        let (ratio, poll) = (median(ratios), median(poll_us));
        println!(
            "{name}: two busy threads {:+.2} %, a poll {poll:.1} µs ({:.2} % of a core), the first {:.1} ms, {samples} samples",
            ratio * 100.0,
            median(poll_share) * 100.0,
            median(first_ms)
        );
        assert!(ratio < 0.05 && poll < 500.0);
    }
}

#[test]
fn a_poll_without_samples_costs_little() {
    for source in [SourceChoice::Auto, SourceChoice::Signals] {
        let recorder = Recorder::with(source).unwrap();
        std::thread::sleep(std::time::Duration::from_secs(2));
        let recorded = recorder.stop();
        let mut polls = recorded.polls_ns[20..].to_vec();
        polls.sort_unstable();
        println!(
            "{}: mean {:.1} µs, median {:.1}, p90 {:.1}, max {:.1}, first {:.1}",
            recorded.source,
            recorded.poll_us(),
            polls[polls.len() / 2] as f64 / 1e3,
            polls[polls.len() * 9 / 10] as f64 / 1e3,
            polls[polls.len() - 1] as f64 / 1e3,
            recorded.polls_ns[0] as f64 / 1e3
        );
    }
}
