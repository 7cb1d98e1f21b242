//! Under shuttle: thousands of random interleavings of the threads, for code that is too large for loom or relies on
//! the total order of `SeqCst` operations, which loom does not model. The sources are the crates' own, with shuttle's
//! types in place of the standard library's.
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    clippy::print_stdout,
    reason = "a program that uses parts of files"
)]

/// In place of the crates' modules of this name.
mod sync {
    pub(crate) use shuttle::sync::atomic;
    pub(crate) use shuttle::sync::{Mutex, MutexGuard};
    pub(crate) use std::sync::PoisonError;
}

#[path = "../../../collectors/src/cupti/buffers.rs"]
mod buffers;
#[path = "../../../sdk/core/src/control/mod.rs"]
mod control;
#[path = "../../../schema/src/schedule.rs"]
mod schedule;
#[path = "../../../collectors/src/cupti/detach.rs"]
mod detach;
#[path = "../../../collectors/src/cupti/contexts.rs"]
mod contexts;
#[path = "../../../collectors/src/cupti/in_flight.rs"]
mod in_flight;
#[path = "../../../sdk/core/src/requests.rs"]
mod requests;

/// In place of `core`'s module of this name: nothing here is held to a budget.
mod budget {
    #[derive(Debug)]
    pub(crate) struct Budget;
    impl Budget {
        pub(crate) const fn new(_: f64) -> Self {
            Self
        }
    }
}
/// What these files name besides.
mod clock {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) struct Ticks(pub(crate) u64);
}

use buffers::{FilledBuffer, Pool};
use clock::Ticks;
use control::Control;
use schedule::{Schedule, StepAction};
use detach::{Event, Link, State};
use requests::OpenRequests;
use shuttle::thread;
use std::sync::Arc;

fn check(name: &str, runs: usize, model: impl Fn() + Sync + Send + Clone + 'static) {
    let begin = std::time::Instant::now();
    shuttle::check_random(model.clone(), runs);
    // Also with few thread switches, at the worst places.
    shuttle::check_pct(model, runs, 3);
    println!("{name}: {} orders, {:.1} s", 2 * runs, begin.elapsed().as_secs_f64());
}

fn spawn_all<T: Send + 'static>(n: usize, work: impl Fn(usize) -> T + Send + Sync + Clone + 'static) -> Vec<T> {
    let all: Vec<_> = (0..n)
        .map(|i| {
            let work = work.clone();
            thread::spawn(move || work(i))
        })
        .collect();
    all.into_iter().map(|t| t.join().expect("ends")).collect()
}

fn windows_of_steps(runs: usize) {
    check("a window has exactly the steps it was asked for", runs, || {
        let control = Arc::new(Control::new(None, true).with_kernels(None));
        let kernels = control.kernels().expect("has a recorder");
        assert!(kernels.ask_for_capture());
        kernels.ready();
        let begins = control.clone();
        let opener = {
            let control = control.clone();
            thread::spawn(move || control.open_window(3, true).expect("none is open"))
        };
        let step = |control: &Control| control.begin_step(true, || false);
        let begun = spawn_all(3, move |_| (0..2).map(|_| step(&begins)).collect::<Vec<_>>());
        let window = opener.join().expect("ends");
        let mut steps: Vec<_> = begun.into_iter().flatten().collect();
        while control.remaining() > 0 {
            steps.push(step(&control));
        }
        let recorded: Vec<u64> = steps.iter().filter(|d| d.fate.is_recorded()).map(|d| d.number).collect();
        assert_eq!(recorded.iter().filter(|n| window.contains(n)).count(), 3, "{window:?} {recorded:?}");
        assert!(recorded.iter().all(|n| *n < window.end), "{window:?} {recorded:?}");
        // With all detail, and their kernels.
        assert!(steps.iter().all(|d| (d.full, d.kernels) == (d.fate.is_recorded(), d.fate.is_recorded())), "{steps:?}");
        assert!(!step(&control).fate.is_recorded() && control.kernels_used_up());
    });
    check("of two windows that are asked for at once one is opened", runs, || {
        let control = Arc::new(Control::new(None, true));
        let asks = control.clone();
        let opened = spawn_all(2, move |_| asks.open_window(2, false));
        assert_eq!(opened.iter().flatten().count(), 1, "{opened:?}");
        let end = opened.into_iter().flatten().next().expect("one").end;
        let closes = control.clone();
        let counts = spawn_all(2, move |i| match i {
            0 => usize::from(closes.begin_step(true, || false).fate.is_recorded()),
            _ => {
                closes.close_window(end);
                0
            }
        });
        assert!(counts[0] <= 1 && control.remaining() == 0);
        assert!(!control.begin_step(true, || false).fate.is_recorded());
    });
}

fn requests_and_their_steps(runs: usize) {
    check("the earliest step of a request counts, and no request sees another's", runs, || {
        let requests = Arc::new(OpenRequests::new());
        requests.open(7);
        let steps = requests.clone();
        let by = requests.clone();
        // Another request comes and goes meanwhile, in a slot that may be the one that becomes free.
        let other = thread::spawn(move || {
            by.open(8);
            by.first_step(8, Ticks(1), false);
            by.context(8, 1_000);
            by.close(8)
        });
        spawn_all(3, move |i| {
            let ticks = 90 - 10 * i as u64;
            if steps.step(7, i == 1, false) {
                steps.first_step(7, Ticks(ticks), false);
            }
            steps.context(7, 12);
        });
        assert_eq!(requests.tokens_in_flight() % 1_000, 12);
        let ended = requests.close(7);
        assert!(ended.recorded && ended.first_step.is_some_and(|t| [70, 80, 90].contains(&t.0)), "{ended:?}");
        assert_eq!(other.join().expect("ends").first_step, Some(Ticks(1)));
        assert_eq!(requests.tokens_in_flight(), 0);
        requests.open(7);
        assert_eq!(requests.close(7).first_step, None, "a slot forgets");
    });
}

fn cupti_leaves(runs: usize) {
    check("CUPTI is detached once, by one launch, and by none that was too late", runs, || {
        let link = Arc::new(Link::new());
        assert!(link.step(Event::Attach) && link.step(Event::Request));
        let launches = link.clone();
        let cancels = link.clone();
        let recorder = thread::spawn(move || cancels.step(Event::Cancel));
        let detached = spawn_all(2, move |_| {
            let mut by_me = 0;
            if launches.is_requested() {
                launches.detach(|| {
                    assert_eq!(launches.state(), State::Detaching, "nobody else may call it now");
                    by_me += 1;
                    0
                });
            }
            by_me
        });
        let cancelled = recorder.join().expect("ends");
        let detached: u32 = detached.into_iter().sum();
        assert!(detached <= 1 && !(cancelled && detached > 0));
        let expected = match (cancelled, detached) {
            (true, _) => State::Attached,
            (false, 1) => State::Detached,
            _ => State::Requested,
        };
        assert_eq!(link.state(), expected);
    });
}

fn buffers_of_cupti(runs: usize) {
    check("there are never more buffers than allowed, and none is lost", runs, || {
        let pool = Arc::new(Pool::new());
        pool.configure(64, 2, 1);
        let (reads, used) = (pool.clone(), pool.clone());
        let reader = thread::spawn(move || reads.drain().into_iter().for_each(|filled| reads.recycle(filled)));
        let taken = spawn_all(3, move |_| match used.take() {
            Some(buffer) => {
                assert!(buffer.words().iter().all(|word| *word == 0), "zeroed");
                used.put(FilledBuffer { buffer, valid: 64, is_late: false });
                1
            }
            None => 0,
        });
        reader.join().expect("ends");
        assert!(taken.iter().sum::<usize>() >= 2, "two fit whatever happens");
        pool.drain().into_iter().for_each(|filled| pool.recycle(filled));
        assert_eq!(std::iter::from_fn(|| pool.take()).count(), 2);
    });
}

fn main() {
    let runs = std::env::var("CANDLESCOPE_MODEL_RUNS").ok().and_then(|n| n.parse().ok()).unwrap_or(5_000);
    windows_of_steps(runs);
    // A table of four thousand slots is made for each run.
    requests_and_their_steps(runs / 50);
    cupti_leaves(runs);
    buffers_of_cupti(runs);
}
