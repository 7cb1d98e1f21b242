//! What a signal's handler writes into and the sampler reads from: one slot for each thread.

use crate::stacks::stack_walk::Registers;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Samples that wait to be read: at a thousand a second, for 16 ms.
pub(super) const PLACES: usize = 16;

/// What a handler copied.
#[derive(Debug, Clone, Copy)]
pub(super) struct CopiedSample {
    /// `CLOCK_MONOTONIC`.
    pub(super) time: u64,
    /// CPU time of the thread since its sample before, nanoseconds.
    pub(super) weight_ns: u64,
    pub(super) registers: Registers,
    /// Bytes of its stack.
    pub(super) stack: usize,
}

/// A slot's state; the bytes are in `sys.rs`, where they may be written by one side and read by the other.
///
/// A handler takes the slot by `busy`, so that there is one writer although signals of a thread that was detached may
/// still come. Slots are never freed: a late signal finds one that has another `generation`, and leaves it alone.
#[derive(Debug, Default)]
pub(super) struct SlotState {
    /// Counts the threads that had the slot.
    pub(super) generation: AtomicU32,
    pub(super) active: AtomicBool,
    pub(super) busy: AtomicBool,
    /// Samples written, and read, so far.
    pub(super) written: AtomicU32,
    pub(super) read: AtomicU32,
    /// Samples for which there was no room.
    pub(super) dropped: AtomicU64,
    /// The thread's CPU time at its last sample.
    pub(super) cpu_ns: AtomicU64,
}

impl SlotState {
    /// Called by a handler: whether the slot is its thread's, and no other handler is at it. It has to call
    /// [`leave`](Self::leave) if so.
    pub(super) fn enter(&self, generation: u32) -> bool {
        if self.busy.swap(true, Ordering::Acquire) {
            return false;
        }
        let is_its = self.generation.load(Ordering::Relaxed) == generation && self.active.load(Ordering::Relaxed);
        if !is_its {
            self.leave();
        }
        is_its
    }

    /// Called by a handler that has entered: where it may write. `None`, and one more dropped, if there is no room.
    pub(super) fn place(&self) -> Option<Place> {
        let written = self.written.load(Ordering::Relaxed);
        if written.wrapping_sub(self.read.load(Ordering::Acquire)) as usize >= PLACES {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(Place { index: written as usize % PLACES })
    }

    /// Called by a handler that has written its place.
    pub(super) fn publish(&self, _: Place) {
        self.written.fetch_add(1, Ordering::Release);
    }

    /// Called by a handler that has entered.
    pub(super) fn leave(&self) {
        self.busy.store(false, Ordering::Release);
    }

    /// The oldest sample that waits.
    pub(super) fn oldest(&self) -> Option<Place> {
        let read = self.read.load(Ordering::Relaxed);
        (self.written.load(Ordering::Acquire) != read).then_some(Place { index: read as usize % PLACES })
    }

    /// The oldest sample was read.
    pub(super) fn release(&self, _: Place) {
        self.read.fetch_add(1, Ordering::Release);
    }

    /// Makes the slot a new thread's, whose number of the generation is the answer.
    pub(super) fn begin(&self) -> u32 {
        let generation = self.generation.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        self.cpu_ns.store(0, Ordering::Relaxed);
        self.dropped.store(0, Ordering::Relaxed);
        self.active.store(true, Ordering::Release);
        generation
    }

    /// No more samples are taken, once a handler that is at it has ended.
    pub(super) fn end(&self) {
        self.active.store(false, Ordering::Release);
    }
}

/// A place in a slot that is one side's at the moment.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) index: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_slot_drops_and_counts_and_a_late_signal_finds_it_closed() {
        let slot = SlotState::default();
        let first = slot.begin();
        for _ in 0..PLACES + 3 {
            assert!(slot.enter(first));
            if let Some(place) = slot.place() {
                slot.publish(place);
            }
            slot.leave();
        }
        assert_eq!(slot.dropped.load(Ordering::Relaxed), 3);
        let oldest = slot.oldest().unwrap();
        assert_eq!(oldest.index, 0);
        slot.release(oldest);
        assert!(slot.enter(first) && slot.place().is_some_and(|place| place.index == 0));
        assert!(!slot.enter(first), "another handler is at it");
        slot.leave();
        slot.end();
        assert!(!slot.enter(first));
        let second = slot.begin();
        assert!(!slot.enter(first) && slot.enter(second));
    }
}
