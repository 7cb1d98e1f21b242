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
        for _ in 0..150 {
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

/// The value below which a tenth lies: what others do on the machine makes times longer, never shorter.
fn tenth(mut times: Vec<u64>) -> f64 {
    times.sort_unstable();
    times[times.len() / 10] as f64
}

#[test]
fn sampling_two_busy_threads_costs_little() {
    work_ns();
    let sources = [None, Some(SourceChoice::Auto), Some(SourceChoice::Signals)];
    let mut times = sources.map(|_| Vec::new());
    let mut polls = sources.map(|_| Vec::new());
    let mut names = sources.map(|_| "nothing".to_string());
    for _ in 0..8 {
        for (i, source) in sources.into_iter().enumerate() {
            let recorder = source.map(|source| Recorder::with(source).unwrap());
            times[i].extend((0..12).map(|_| work_ns()));
            if let Some(recorded) = recorder.map(Recorder::stop) {
                names[i].clone_from(&recorded.source);
                polls[i].push(recorded.poll_us());
            }
        }
    }
    let without = tenth(times[0].clone());
    for i in 1..sources.len() {
        let more = tenth(times[i].clone()) / without - 1.0;
        let poll = polls[i].iter().sum::<f64>() / polls[i].len() as f64;
        println!(
            "{}: two busy threads {:+.2} %, a poll {poll:.1} µs: {:.2} % of a core",
            names[i],
            more * 100.0,
            poll / 100.0
        );
        assert!(more < 0.05 && poll < 500.0);
    }
}

#[test]
fn a_poll_without_samples_costs_little() {
    for source in [SourceChoice::Auto, SourceChoice::Signals] {
        let recorder = Recorder::with(source).unwrap();
        std::thread::sleep(std::time::Duration::from_secs(2));
        let recorded = recorder.stop();
        let first = recorded.polls_ns[0] as f64 / 1e6;
        println!("{}: an idle poll {:.1} µs, the first one {first:.1} ms", recorded.source, recorded.poll_us());
        assert!(recorded.poll_us() < 500.0);
    }
}
