//! Under loom: every interleaving of the threads, and every value that a relaxed load may see. The sources are the
//! crates' own, with loom's types in place of the standard library's.
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    clippy::print_stdout,
    reason = "a program that uses parts of files"
)]

/// In place of `core`'s module of this name.
mod sync {
    pub(crate) use loom::sync::atomic;
    pub(crate) use loom::sync::{Mutex, MutexGuard};
    pub(crate) use std::sync::PoisonError;
}

#[path = "../../../sdk/core/src/layer/cache.rs"]
mod cache;
#[path = "../../../sdk/core/src/control/mod.rs"]
mod control;
#[path = "../../../sdk/core/src/ring_room.rs"]
mod ring_room;
#[path = "../../../schema/src/schedule.rs"]
mod schedule;

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
/// Other names that these files use.
mod names {
    pub(crate) const OTHER: u32 = 0;
}
mod raw {
    pub(crate) const NO_PHASE: u8 = u8::MAX;
    pub(crate) struct Raw([u8; 64]);
}
mod shared {
    use crate::sync::atomic::AtomicU32;
    pub(crate) struct SessionState(pub(crate) AtomicU32);
    impl SessionState {
        pub(crate) fn epoch(&self, _: u64) -> &AtomicU32 {
            &self.0
        }
    }
}

use cache::{Meta, MetaCache};
use control::{Control, KernelWindow};
use loom::sync::atomic::AtomicUsize;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use loom::thread;
use ring_room::RingRoom;
use schedule::{Schedule, StepAction};
use std::sync::Arc;

fn check(name: &str, preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let begin = std::time::Instant::now();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    let runs = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counted = runs.clone();
    builder.check(move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        model();
    });
    println!(
        "{name}: {} orders, {:.1} s",
        runs.load(std::sync::atomic::Ordering::Relaxed),
        begin.elapsed().as_secs_f64()
    );
}

/// A session with a recorder of kernels.
fn with_recorder() -> Arc<Control> {
    Arc::new(Control::new(None, false).with_kernels(None))
}

fn kernels(control: &Control) -> &KernelWindow {
    control.kernels().expect("has a recorder")
}

/// Begins steps; returns for how many the kernels are recorded.
fn begin_steps(control: &Control, n: usize) -> usize {
    (0..n).filter(|_| control.begin_step(true, || false).kernels).count()
}

/// One round of the recorder's thread: switches the recorder on if a window is wanted, and off if it is used up.
fn recorder_looks(control: &Control, on: &AtomicUsize) {
    if kernels(control).is_wanted() {
        // From here on kernels are recorded.
        on.fetch_add(1, Relaxed);
        kernels(control).ready();
    }
    if control.stop_recorder() {
        on.fetch_sub(1, Relaxed);
    }
}

fn windows_of_kernels() {
    check("a window of kernels has the steps it was asked for, and no more", 2, || {
        let control = with_recorder();
        let on = Arc::new(AtomicUsize::new(0));
        assert!(kernels(&control).ask(2));
        let steps: Vec<_> = (0..2)
            .map(|_| {
                let control = control.clone();
                thread::spawn(move || begin_steps(&control, 2))
            })
            .collect();
        let (recorder, switch) = (control.clone(), on.clone());
        thread::spawn(move || recorder_looks(&recorder, &switch)).join().expect("ends");
        let taken: usize = steps.into_iter().map(|s| s.join().expect("ends")).sum();
        let window = kernels(&control);
        assert!(taken <= 2 && window.taken() == taken as u64 && window.remaining() == 2 - taken as u64);
        // The rest of the window is for later steps, and then it is closed.
        recorder_looks(&control, &on);
        while window.remaining() > 0 {
            assert_eq!(begin_steps(&control, 1), 1);
        }
        recorder_looks(&control, &on);
        assert!(!window.is_active() && on.load(Relaxed) == 0, "whoever used it up had it closed");
        assert!(window.ask(1));
    });
    check("whoever sees a window used up sees all its steps counted", 3, || {
        let control = with_recorder();
        assert!(kernels(&control).ask(2));
        kernels(&control).ready();
        let steps: Vec<_> = (0..2)
            .map(|_| {
                let control = control.clone();
                thread::spawn(move || begin_steps(&control, 1))
            })
            .collect();
        if control.kernels_used_up() {
            assert_eq!(kernels(&control).taken(), 2);
        }
        assert_eq!(steps.into_iter().map(|s| s.join().expect("ends")).sum::<usize>(), 2);
    });
    check("no step is in a window whose recorder is not on yet", 3, || {
        let control = with_recorder();
        assert!(kernels(&control).ask(1));
        kernels(&control).ready();
        let steps: Vec<_> = (0..2)
            .map(|_| {
                let control = control.clone();
                thread::spawn(move || begin_steps(&control, 1))
            })
            .collect();
        // The recorder is switched off after the first window, and another one is wanted before it is on again.
        let recorder = control.clone();
        let recorder = thread::spawn(move || recorder.stop_recorder() && kernels(&recorder).ask(1));
        let asked = recorder.join().expect("ends");
        let taken: usize = steps.into_iter().map(|s| s.join().expect("ends")).sum();
        assert_eq!((taken, kernels(&control).taken()), (1, 1), "the second step is in no window");
        assert_eq!(kernels(&control).remaining(), u64::from(asked));
    });
    check("a capture has a recorder that is on, or none", 3, || {
        let control = with_recorder();
        let on = Arc::new(AtomicUsize::new(1));
        // The recorder is still on from a window that is used up.
        assert!(kernels(&control).ask(1));
        kernels(&control).ready();
        assert_eq!(begin_steps(&control, 1), 1);
        let (recorder, switch) = (control.clone(), on.clone());
        let recorder = thread::spawn(move || {
            if recorder.stop_recorder() {
                switch.fetch_sub(1, Relaxed);
            }
        });
        assert!(kernels(&control).ask_for_capture());
        let window = control.open_window(2, true).expect("none is open");
        let kernels_of = begin_steps(&control, 1);
        recorder.join().expect("ends");
        assert_eq!(kernels_of, on.load(Relaxed), "kernels where the recorder is on, and only there");
        control.close_window(window.end);
        control.end_capture();
        assert!(!kernels(&control).is_wanted());
        assert_eq!(control.stop_recorder(), on.load(Relaxed) == 1);
    });
}

fn caches_of_spans() {
    check("a thread never takes a span for an older one of its number", 3, || {
        let shared = Arc::new(shared::SessionState(loom::sync::atomic::AtomicU32::new(0)));
        let meta = |name| Meta { name, ..Meta::OTHER };
        let passed = Arc::new(AtomicUsize::new(0));
        let (theirs, told) = (shared.clone(), passed.clone());
        let mut cache = MetaCache::new();
        cache.get(&shared, 5, || Some(meta(1)));
        // The registry reuses a number: it tells the layer first, and only then can anybody use the span.
        let maker = thread::spawn(move || {
            theirs.epoch(5).fetch_add(1, Relaxed);
            told.store(2, Release);
        });
        if passed.load(Acquire) == 2 {
            assert_eq!(cache.get(&shared, 5, || Some(meta(2))), Some(meta(2)));
        }
        maker.join().expect("ends");
        assert_eq!(cache.get(&shared, 5, || Some(meta(2))).map(|m| m.name), Some(2));
    });
}

fn room_for_rings() {
    check("rings never take more than their room, and give all of it back", 3, || {
        // Two of the three fit.
        let room = Arc::new(RingRoom::new(2 * 256 * 64 + 100));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let room = room.clone();
                thread::spawn(move || room.take(256, 10).map(|(records, share)| (records, Some(share))))
            })
            .collect();
        let own = room.take(256, 10);
        let theirs: Vec<_> = threads.into_iter().map(|t| t.join().expect("ends")).collect();
        assert_eq!(usize::from(own.is_some()) + theirs.iter().flatten().count(), 2);
        drop((own, theirs));
        let again: Vec<_> = std::iter::from_fn(|| room.take(256, 10)).collect();
        assert_eq!(again.len(), 2);
    });
}

fn main() {
    windows_of_kernels();
    caches_of_spans();
    room_for_rings();
}
