//! Under loom: every order of what the threads do, and every value that a relaxed load may see. The sources are the
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
    pub(crate) use loom::sync::Mutex;
    pub(crate) use loom::sync::atomic;
    pub(crate) use std::sync::PoisonError;
}

#[path = "../../../sdk/core/src/layer/cache.rs"]
mod cache;
#[path = "../../../sdk/core/src/control.rs"]
mod control;
#[path = "../../../sdk/core/src/ring_room.rs"]
mod ring_room;
#[path = "../../../sdk/core/src/gpu/window.rs"]
mod window;

/// What these files name besides.
mod names {
    pub(crate) const OTHER: u32 = 0;
}
mod raw {
    pub(crate) const NO_PHASE: u8 = u8::MAX;
    pub(crate) struct Raw([u8; 64]);
}
mod shared {
    use crate::sync::atomic::AtomicU32;
    pub(crate) struct Shared(pub(crate) AtomicU32);
    impl Shared {
        pub(crate) fn epoch(&self, _: u64) -> &AtomicU32 {
            &self.0
        }
    }
}

use cache::{Meta, MetaCache};
use loom::sync::atomic::AtomicUsize;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use loom::thread;
use ring_room::RingRoom;
use std::sync::Arc;
use window::KernelWindow;

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

/// What the recorder's thread does between two looks: switch on what is wanted, off what is used up.
fn recorder_looks(window: &KernelWindow, on: &AtomicUsize) {
    if window.is_wanted() {
        // From here on kernels are recorded.
        on.fetch_add(1, Relaxed);
        window.ready();
    }
    if window.is_closing() {
        on.fetch_sub(1, Relaxed);
        window.closed();
    }
}

fn windows_of_kernels() {
    check("a window of kernels has the steps it was asked for, and no more", 2, || {
        let window = Arc::new(KernelWindow::new(None));
        let on = Arc::new(AtomicUsize::new(0));
        let number = window.request(2).expect("none is open");
        let steps: Vec<_> = (0..2)
            .map(|_| {
                let window = window.clone();
                thread::spawn(move || usize::from(window.begin_step()) + usize::from(window.begin_step()))
            })
            .collect();
        let (recorder, switch) = (window.clone(), on.clone());
        thread::spawn(move || recorder_looks(&recorder, &switch)).join().expect("ends");
        let taken: usize = steps.into_iter().map(|s| s.join().expect("ends")).sum();
        assert!(taken <= 2 && window.taken() == taken as u64 && window.remaining() == 2 - taken as u64);
        // What is left of it is there for later steps, and then it is closed.
        recorder_looks(&window, &on);
        while window.remaining() > 0 {
            assert!(window.begin_step());
        }
        recorder_looks(&window, &on);
        window.end(number);
        assert!(!window.is_active() && on.load(Relaxed) == 0, "whoever used it up had it closed");
        assert!(window.request(1).is_some());
    });
    check("a window that is ended while steps begin is closed once", 3, || {
        let window = Arc::new(KernelWindow::new(None));
        let number = window.request(3).expect("none is open");
        window.ready();
        let step = {
            let window = window.clone();
            thread::spawn(move || u64::from(window.begin_step()) + u64::from(window.begin_step()))
        };
        let ending = window.clone();
        let end = thread::spawn(move || ending.end(number));
        let taken = step.join().expect("ends");
        end.join().expect("ends");
        assert!(window.is_closing() && window.remaining() == 0 && window.taken() == taken);
    });
    check("no step is in a window whose recorder is not on yet", 3, || {
        let window = Arc::new(KernelWindow::new(None));
        window.request(1).expect("none is open");
        window.ready();
        let steps: Vec<_> = (0..2)
            .map(|_| {
                let window = window.clone();
                thread::spawn(move || u64::from(window.begin_step()))
            })
            .collect();
        // The recorder's thread is done with the first window, and another one is wanted before it is on again.
        let recorder = window.clone();
        let recorder = thread::spawn(move || {
            if !recorder.is_closing() {
                return None;
            }
            recorder.closed();
            recorder.request(1)
        });
        let asked = recorder.join().expect("ends");
        let taken: u64 = steps.into_iter().map(|s| s.join().expect("ends")).sum();
        if asked.is_some() {
            assert!(taken == 1 && window.remaining() == 1, "{taken} steps were taken, the second into no window");
        }
    });
}

fn caches_of_spans() {
    check("a thread never takes a span for an older one of its number", 3, || {
        let shared = Arc::new(shared::Shared(loom::sync::atomic::AtomicU32::new(0)));
        let meta = |name| Meta { name, ..Meta::OTHER };
        let passed = Arc::new(AtomicUsize::new(0));
        let (theirs, told) = (shared.clone(), passed.clone());
        let mut cache = MetaCache::new();
        cache.get(&shared, 5, || Some(meta(1)));
        // The registry gives a number out again: the layer hears of it, and only then anybody has the span.
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
