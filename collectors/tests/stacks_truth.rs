//! Shares of functions, and times off the CPU, of threads that are known to spend them.
#![allow(missing_docs, reason = "a test")]
#![allow(unsafe_code, reason = "a filter of system calls")]
#![cfg(target_os = "linux")]

mod stack_support;

use candlescope_collectors::stacks::{SourceChoice, StackOptions, StackSampler};
use candlescope_core::ThreadState;
use candlescope_core::stacks::{StackSink, StackSource, ThreadChange, ThreadEvent};
use stack_support::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

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
    let mut random = 1_u64;
    for _ in 0..rounds {
        // A rhythm of its own would beat against the kernel's tick.
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let round = 15_000_000 + (random >> 33) % 30_000_000;
        let start = thread_cpu_ns();
        alpha(round * 3 / 10);
        let middle = thread_cpu_ns();
        beta(round * 5 / 10);
        let end = thread_cpu_ns();
        let asleep = monotonic_ns();
        wait_for_lock(Duration::from_nanos(round * 2 / 10));
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

/// Points that a share may be away: three, and what chance does to few samples.
fn check(recorded: &Recorded, truth: &Truth) {
    let running = recorded.samples.iter().filter(|s| s.tid == truth.tid && s.state == ThreadState::Running).count();
    let tolerance = f64::max(3.0, 3.0 * 100.0 * (0.25 * 0.6 / running.max(1) as f64).sqrt());
    let all = (truth.alpha_ns + truth.beta_ns + truth.blocked_ns) as f64;
    let mut shares =
        vec![("alpha", ThreadState::Running, truth.alpha_ns), ("beta", ThreadState::Running, truth.beta_ns)];
    if recorded.tells_switches(truth.tid) {
        shares.push(("", ThreadState::Blocked, truth.blocked_ns));
    }
    for (function, state, expected) in shares {
        let sampled = recorded.weight(truth.tid, state, (!function.is_empty()).then_some(function)) as f64;
        let blind = recorded.is_blind_to("the kernel: time there has no samples") && state == ThreadState::Running;
        // Interrupts and calls are not sampled then: shares of the program's own time remain.
        let own = recorded.weight(truth.tid, ThreadState::Running, None) as f64;
        let all_sampled = if blind { own / (truth.alpha_ns + truth.beta_ns) as f64 * all } else { all };
        let (expected, sampled) = (expected as f64 / all * 100.0, sampled / all_sampled * 100.0);
        println!(
            "{} {function:>5} {state:?}: {expected:.2} %, sampled {sampled:.2} % ({running} samples)",
            recorded.source
        );
        assert!((expected - sampled).abs() < tolerance, "{truth:?}\n{}", recorded.summary());
    }
}

fn shares(source: SourceChoice, threads: usize, rounds: u64) -> Recorded {
    let recorder = Recorder::with(source).unwrap();
    let workers: Vec<_> = (0..threads).map(|_| std::thread::spawn(move || work(rounds))).collect();
    let truths: Vec<_> = workers.into_iter().map(|w| w.join().unwrap()).collect();
    let recorded = recorder.stop();
    println!("{:?} poll {:.1} µs", recorded.facts, recorded.poll_us());
    for truth in &truths {
        check(&recorded, truth);
    }
    assert_eq!(recorded.lost, 0);
    recorded
}

#[test]
fn shares_by_perf() {
    let _alone = alone();
    if Recorder::with(SourceChoice::Perf).map(Recorder::stop).is_err() {
        return println!("skipped: no perf events here");
    }
    let recorded = shares(SourceChoice::Perf, 1, 100);
    let waits = recorded.samples.iter().filter(|s| s.state == ThreadState::Blocked && recorded.has(s, "wait_for_lock"));
    let blind = recorded.is_blind_to("where waiting threads wait: their time has no stacks");
    assert!(blind || waits.count() > 20, "{}", recorded.summary());
}

#[test]
fn shares_by_signals() {
    let _alone = alone();
    shares(SourceChoice::Signals, 1, 100);
}

#[test]
fn shares_of_several_threads() {
    let _alone = alone();
    for source in [SourceChoice::Perf, SourceChoice::Signals] {
        shares(source, 3, 30);
    }
}

#[test]
#[ignore = "takes a minute"]
fn shares_of_longer_runs() {
    let _alone = alone();
    for source in [SourceChoice::Perf, SourceChoice::Signals] {
        shares(source, 1, 340);
        shares(source, 2, 340);
    }
}

/// Two threads on one CPU: each is ready, and off it, about half of the time.
#[test]
fn a_thread_that_another_one_displaces_is_preempted() {
    let _alone = alone();
    let recorder = Recorder::with(SourceChoice::Perf).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let spinner = std::thread::spawn({
        let done = Arc::clone(&done);
        move || {
            pin(1);
            while !done.load(Ordering::Relaxed) {
                beta(1_000_000);
            }
        }
    });
    let worker = std::thread::spawn(|| {
        pin(1);
        let (start, cpu) = (monotonic_ns(), thread_cpu_ns());
        alpha(1_000_000_000);
        (thread_id(), monotonic_ns() - start - (thread_cpu_ns() - cpu), monotonic_ns() - start)
    });
    let (tid, displaced_ns, all_ns) = worker.join().unwrap();
    done.store(true, Ordering::Relaxed);
    spinner.join().unwrap();
    let recorded = recorder.stop();
    if !recorded.tells_switches(tid) {
        return println!("skipped: no switches here");
    }
    let preempted = recorded.weight(tid, ThreadState::Preempted, None);
    let share = |ns: u64| ns as f64 / all_ns as f64 * 100.0;
    println!("preempted {:.2} % of the time, sampled {:.2} %", share(displaced_ns), share(preempted));
    assert!((share(displaced_ns) - share(preempted)).abs() < 3.0, "{}", recorded.summary());
    assert!(share(displaced_ns) > 20.0);
}

/// On and off, in turn; page faults of touched memory, all of them.
#[test]
fn events_tell_switches_and_page_faults() {
    let _alone = alone();
    const PAGES: usize = 40_000;
    let recorder = Recorder::with(SourceChoice::Perf).unwrap();
    let worker = std::thread::spawn(|| {
        std::thread::sleep(Duration::from_millis(300));
        let mut memory = vec![0_u8; PAGES * 4096];
        for page in memory.chunks_mut(4096) {
            page[0] = std::hint::black_box(1);
        }
        std::thread::sleep(Duration::from_millis(300));
        thread_id()
    });
    let tid = worker.join().unwrap();
    let recorded = recorder.stop();
    if !recorded.tells_switches(tid) {
        return println!("skipped: no switches here");
    }
    let mut faults = 0;
    let mut on = None;
    for event in recorded.events.iter().filter(|event| event.tid == tid) {
        match &event.change {
            ThreadChange::PageFaults(count) => faults += u64::from(*count),
            ThreadChange::On => {
                assert_ne!(on, Some(true), "on twice");
                on = Some(true);
            }
            ThreadChange::Off { .. } => {
                assert_ne!(on, Some(false), "off twice");
                on = Some(false);
            }
            ThreadChange::Attached { running, .. } => on = *running,
            _ => {}
        }
    }
    println!("{faults} page faults in {} events", recorded.events.len());
    // Large pages, where the machine gives them, are fewer.
    assert!(faults > PAGES as u64 / 512 && faults < PAGES as u64 + 2_000, "{faults}");
    assert_eq!(recorded.lost, 0);
}

/// Nobody polls for a second.
#[test]
fn what_does_not_fit_is_counted() {
    let _alone = alone();
    for source in [SourceChoice::Perf, SourceChoice::Signals] {
        let sampler = std::thread::Builder::new().name("cs-stacks".into()).spawn(move || poll_too_late(source));
        sampler.unwrap().join().unwrap();
    }
}

fn poll_too_late(source: SourceChoice) {
    let mut sampler = StackSampler::new(StackOptions::default().source(source));
    sampler.start().unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let until_done = Arc::clone(&done);
    // Without a name it would have that of the thread that starts it.
    let worker = std::thread::Builder::new().name("worker".into()).spawn(move || {
        while !until_done.load(Ordering::Relaxed) {
            alpha(1_000_000);
        }
        thread_id()
    });
    let mut sink = StackSink::default();
    std::thread::sleep(Duration::from_millis(100));
    sampler.poll(&mut sink).unwrap();
    std::thread::sleep(Duration::from_millis(1_500));
    sampler.poll(&mut sink).unwrap();
    let by_perf = sampler.name() == "perf";
    done.store(true, Ordering::Relaxed);
    let tid = worker.unwrap().join().unwrap();
    sampler.stop(&mut sink);
    println!("perf {by_perf}: {} samples, lost {}", sink.samples.len(), sink.lost);
    assert!(sink.lost > 50, "{} of {}", sink.lost, sink.samples.len());
    let told = sink.events.iter().any(|e| e.tid == tid && e.change == ThreadChange::Lost);
    // Switches of a thread that others displace may not fit either.
    assert!(told || !by_perf, "{:?}", sink.events);
}

#[test]
fn new_names_are_told_and_threads_of_our_own_are_left_out() {
    let _alone = alone();
    for source in [SourceChoice::Perf, SourceChoice::Signals] {
        let recorder = Recorder::with(source).unwrap();
        let start = |name: &'static std::ffi::CStr| {
            let thread = std::thread::spawn(move || {
                alpha(50_000_000);
                // SAFETY: the name ends with a zero.
                unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
                alpha(700_000_000);
                thread_id()
            });
            thread.join().unwrap()
        };
        let (renamed, ours) = (start(c"a new name"), start(c"cs-of-ours"));
        let recorded = recorder.stop();
        let names = |tid| {
            let name = |event: &ThreadEvent| match &event.change {
                ThreadChange::Attached { name, .. } if event.tid == tid => Some(name.to_string()),
                _ => None,
            };
            recorded.events.iter().filter_map(name).collect::<Vec<_>>()
        };
        println!("{}: {:?} {:?}", recorded.source, names(renamed), names(ours));
        assert_eq!(names(renamed).last().map(String::as_str), Some("a new name"));
        assert!(names(ours).iter().all(|name| !name.starts_with("cs-")));
        assert!(recorded.weight(ours, ThreadState::Running, None) < 400_000_000, "{}", recorded.summary());
        assert!(recorded.weight(renamed, ThreadState::Running, None) > 650_000_000, "{}", recorded.summary());
    }
}

/// Its time is the kernel's.
#[inline(never)]
fn read_of_kernel() {
    let end = Instant::now() + Duration::from_millis(1500);
    while Instant::now() < end {
        std::hint::black_box(std::fs::read("/proc/cpuinfo").unwrap());
    }
}

#[test]
fn time_in_the_kernel_is_marked_and_belongs_to_who_called_it() {
    let _alone = alone();
    for source in [SourceChoice::Perf, SourceChoice::Signals] {
        let recorder = Recorder::with(source).unwrap();
        let tid = std::thread::spawn(|| {
            read_of_kernel();
            thread_id()
        });
        let tid = tid.join().unwrap();
        let recorded = recorder.stop();
        let of = |kernel| {
            let of = |s: &&_| recorded.has(s, "read_of_kernel") && kernel_of(s) == kernel;
            let of = recorded.samples.iter().filter(|s| s.tid == tid && s.state == ThreadState::Running).filter(of);
            of.map(|s| s.weight_ns).sum::<u64>() as f64
        };
        let share = of(Some(true)) / (of(Some(true)) + of(Some(false)));
        println!("{}: {:.1} % in the kernel", recorded.source, share * 100.0);
        assert!(share > 0.8, "{}", recorded.summary());
    }
}

fn kernel_of(sample: &candlescope_core::stacks::RawStackSample) -> Option<bool> {
    sample.kernel
}

/// Refuses a system call from now on, in this process.
fn refuse(calls: &[libc::c_long]) {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
    let rules = calls.iter().map(|call| (*call, Vec::new())).collect();
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter =
        SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(libc::EPERM as u32), arch).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter_all_threads(&program).unwrap();
}

/// Parts that a child plays.
#[test]
fn player() {
    let Some(part) = part() else { return };
    match part.as_str() {
        "ordinary user" => {
            become_ordinary();
            let recorded = shares(SourceChoice::Auto, 1, 60);
            assert!(recorded.samples.iter().all(|sample| sample.weight_ns > 0));
            if let Ok(recorder) = Recorder::with(SourceChoice::Perf) {
                let truth = std::thread::spawn(|| work(60)).join().unwrap();
                let recorded = recorder.stop();
                check(&recorded, &truth);
            }
        }
        "no perf" => {
            refuse(&[libc::SYS_perf_event_open]);
            let error = Recorder::with(SourceChoice::Perf).map(drop).unwrap_err();
            assert!(error.to_string().contains("--cap-add PERFMON"), "{error}");
            let probe = candlescope_collectors::stacks::probe();
            assert_eq!((probe.source(), probe.switches), (Some("signals"), false));
            let recorded = shares(SourceChoice::Auto, 1, 60);
            assert_eq!(recorded.source, "signals");
            assert!(recorded.events.iter().all(|e| !matches!(e.change, ThreadChange::Attached { switches: true, .. })));
        }
        "no perf, and no reading of own memory" => {
            refuse(&[libc::SYS_perf_event_open, libc::SYS_process_vm_readv]);
            shares(SourceChoice::Auto, 2, 60);
        }
        "no switches" => {
            let options = StackOptions::default().source(SourceChoice::Perf).off_cpu(false);
            let recorder = Recorder::start(options).unwrap();
            let truth = std::thread::spawn(|| work(30)).join().unwrap();
            let recorded = recorder.stop();
            check(&recorded, &truth);
            assert!(recorded.samples.iter().all(|s| s.state == ThreadState::Running));
        }
        _ => panic!("{part}"),
    }
}

#[test]
fn an_ordinary_user_has_stacks() {
    let _alone = alone();
    play_well("player", "ordinary user");
}

#[test]
fn where_perf_is_refused_there_are_signals() {
    let _alone = alone();
    play_well("player", "no perf");
}

#[test]
fn a_sandbox_that_forbids_reading_own_memory_leaves_a_pipe() {
    let _alone = alone();
    play_well("player", "no perf, and no reading of own memory");
}

#[test]
fn switches_may_be_left_out() {
    let _alone = alone();
    play_well("player", "no switches");
}
