//! Keeps the profiler's own threads out of the CUDA driver while CUPTI is being detached.
//!
//! While CUPTI is attached, every call of the driver runs through it. It is detached by a launch of the application, in
//! the middle of which other threads may be inside the driver. The application's cannot be held up. Ours can: they ask
//! here before they call the driver, and leave out a round while CUPTI is being detached; and the launch leaves the
//! detachment to the next one while one of them is inside.

use std::sync::atomic::{AtomicU32, Ordering};

/// The value while the gate is closed. Otherwise it is the number of threads that are inside.
const CLOSED: u32 = u32::MAX;

/// The process's gate, as it has one CUPTI.
pub(crate) static GATE: Gate = Gate::new();

/// Who may call the driver.
#[derive(Debug)]
pub(crate) struct Gate(AtomicU32);

/// A thread of ours is inside the driver.
#[derive(Debug)]
#[must_use]
pub(crate) struct InDriver<'a>(&'a Gate);

/// No thread of ours is inside the driver, and none gets in.
#[derive(Debug)]
#[must_use]
pub(crate) struct ClosedGate<'a>(&'a Gate);

#[cfg_attr(
    not(all(feature = "cuda", feature = "cupti")),
    allow(dead_code, reason = "each side is one of the features")
)]
impl Gate {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Lets a thread of ours call the driver; `None` while the gate is closed. Never waits.
    pub(crate) fn enter(&self) -> Option<InDriver<'_>> {
        let one_more = |inside: u32| (inside != CLOSED).then(|| inside.saturating_add(1).min(CLOSED - 1));
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).ok().map(|_| InDriver(self))
    }

    /// Closes the gate if no thread is inside; it opens again when the result is dropped. Never waits.
    pub(crate) fn close(&self) -> Option<ClosedGate<'_>> {
        self.0.compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Acquire).ok().map(|_| ClosedGate(self))
    }
}

impl Drop for InDriver<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for ClosedGate<'_> {
    fn drop(&mut self) {
        self.0.0.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn it_closes_only_while_nobody_is_inside() {
        let gate = Gate::new();
        let (one, two) = (gate.enter().expect("open"), gate.enter().expect("open"));
        assert!(gate.close().is_none());
        drop(one);
        assert!(gate.close().is_none());
        drop(two);
        let closed = gate.close().expect("nobody is inside");
        assert!(gate.enter().is_none() && gate.close().is_none());
        drop(closed);
        assert!(gate.enter().is_some() && gate.close().is_some());
    }

    #[test]
    fn threads_never_meet_the_detachment_inside() {
        let (gate, detaching, stop) = (Gate::new(), AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        if let Some(_inside) = gate.enter() {
                            assert!(!detaching.load(Ordering::SeqCst));
                        }
                        std::thread::yield_now();
                    }
                });
            }
            let mut closed = 0;
            while closed < 200 {
                if let Some(_closed) = gate.close() {
                    detaching.store(true, Ordering::SeqCst);
                    std::thread::yield_now();
                    detaching.store(false, Ordering::SeqCst);
                    closed += 1;
                }
                std::thread::yield_now();
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
