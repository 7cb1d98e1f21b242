//! What sampling costs: the threads that are sampled, and the thread that polls. Prints; fails where it is far too much.
#![allow(missing_docs, reason = "a test")]
#![cfg(target_os = "linux")]

mod stack_support;

use candlescope_collectors::stacks::{SourceChoice, StackOptions};
use stack_support::*;
use std::time::Duration;

/// Share of two busy threads' time that interruptions take. A thread that does nothing but read the clock sees each as a
/// gap; longer ones are another thread's turn on the CPU. What a cache loses meanwhile is not in it.
fn interrupted() -> f64 {
    let watch = || {
        let (mut gaps, mut all) = (0, 0);
        let mut before = monotonic_ns();
        while all < 200_000_000 {
            let now = monotonic_ns();
            let gap = now - before;
            before = now;
            if gap < 150_000 {
                all += gap;
                gaps += if gap > 700 { gap } else { 0 };
            }
        }
        gaps as f64 / all as f64
    };
    std::thread::scope(|scope| {
        let threads = [scope.spawn(watch), scope.spawn(watch)];
        threads.map(|thread| thread.join().unwrap()).iter().sum::<f64>() / 2.0
    })
}

fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

#[test]
fn sampling_two_busy_threads_costs_little() {
    let _alone = alone();
    for source in [SourceChoice::Perf, SourceChoice::Signals] {
        let (mut more, mut polls) = (Vec::new(), Vec::new());
        let mut name = String::new();
        for _ in 0..7 {
            let without = interrupted();
            let recorder = Recorder::with(source).unwrap();
            let with = [interrupted(), interrupted()];
            let recorded = recorder.stop();
            let again = interrupted();
            more.push((with[0] + with[1] - without - again) / 2.0 * 100.0);
            polls.push(recorded.poll_us());
            name = recorded.source;
        }
        let (more, poll) = (median(&mut more), median(&mut polls));
        println!("{name}: two busy threads +{more:.2} %, a poll {poll:.1} µs");
        assert!(more < 5.0 && poll < 500.0);
    }
}

/// A stack of so many frames more, with 200 bytes each, below the work.
#[inline(never)]
fn deep(frames: u32, work: &dyn Fn()) -> u32 {
    let room = std::hint::black_box([frames; 50]);
    match frames {
        0 => work(),
        _ => _ = deep(frames - 1, work),
    }
    std::hint::black_box(room)[0]
}

/// CPU time of the thread that polls, all of it, divided by its samples: work of others on the machine hardly disturbs that.
#[test]
fn a_sample_of_a_deep_stack_costs_little() {
    let _alone = alone();
    for (source, off_cpu) in [(SourceChoice::Signals, false), (SourceChoice::Signals, true), (SourceChoice::Perf, true)]
    {
        let options = StackOptions::default().source(source).off_cpu(off_cpu);
        let Ok(recorder) = Recorder::start(options) else { continue };
        std::thread::scope(|scope| {
            let busy = || deep(40, &|| alpha(2_000_000_000));
            for thread in [scope.spawn(busy), scope.spawn(busy)] {
                thread.join().unwrap();
            }
        });
        let recorded = recorder.stop();
        let (ns, samples) = recorded.later;
        let (each, polls) = (ns as f64 / 1e3 / samples.max(1) as f64, recorded.polls_ns.len());
        println!("{}, off the CPU: {off_cpu}: {each:.1} µs a sample of {samples}, {polls} polls", recorded.source);
        assert!(each < 200.0);
    }
}

#[test]
fn a_poll_without_samples_costs_little() {
    let _alone = alone();
    for source in [SourceChoice::Perf, SourceChoice::Signals] {
        let recorder = Recorder::with(source).unwrap();
        std::thread::sleep(Duration::from_secs(2));
        let recorded = recorder.stop();
        let first = recorded.polls_ns[0] as f64 / 1e6;
        println!("{}: an idle poll {:.1} µs, the first one {first:.1} ms", recorded.source, recorded.poll_us());
        assert!(recorded.poll_us() < 500.0);
    }
}
