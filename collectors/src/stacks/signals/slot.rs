//! What a signal's handler writes into and the sampler reads from: one slot for each thread.

use crate::stacks::stack_walk::Registers;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Samples that wait to be read: at a thousand a second, for 32 ms.
pub(super) const PLACES: usize = 32;

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
/// still come. Slots are never freed: a late signal finds one that has another owner, and leaves it alone.
///
/// The handler and the sampler are never the same thread, for the profiler's own are not sampled, so each order between
/// them is one of atomics, and no fence against the compiler alone is needed:
/// - `written` is released by the handler and acquired by the sampler, `read` the other way round: what is in a place is
///   seen by who may use it.
/// - `owner` is released when a slot begins: its handler sees the numbers that were set for it.
/// - A handler sets `busy` and then reads `owner`; who takes a slot away changes `owner` and then reads `busy`. One of the
///   two must see the other's, which only `SeqCst` promises.
#[derive(Debug, Default)]
pub(super) struct SlotState {
    /// Counts the threads that had the slot. The sampler's own.
    generation: AtomicU32,
    /// Generation whose signals are taken; 0 for none.
    owner: AtomicU32,
    busy: AtomicBool,
    /// Samples written, and read, so far.
    written: AtomicU32,
    read: AtomicU32,
    /// Samples for which there was no room.
    pub(super) dropped: AtomicU64,
    /// The thread's CPU time at its last sample.
    pub(super) cpu_ns: AtomicU64,
    /// Where the thread's stack ends, once it is known; else 0. Memory further out is not copied.
    top: AtomicU64,
}

impl SlotState {
    /// Called by a handler: whether the slot is its thread's, and no other handler is at it. It has to call
    /// [`leave`](Self::leave) if so. `generation` is what [`begin`](Self::begin) answered.
    pub(super) fn enter(&self, generation: u32) -> bool {
        if self.busy.swap(true, Ordering::SeqCst) {
            return false;
        }
        let is_its = self.owner.load(Ordering::SeqCst) == generation;
        if !is_its {
            self.leave();
        }
        is_its
    }

    /// Called by a handler that has entered: where it may write. `None`, and one more dropped, if there is no room.
    pub(super) fn place(&self) -> Option<SlotIndex> {
        let written = self.written.load(Ordering::Relaxed);
        if written.wrapping_sub(self.read.load(Ordering::Acquire)) as usize >= PLACES {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(SlotIndex { index: written as usize % PLACES })
    }

    /// Called by a handler that has written its place.
    pub(super) fn publish(&self, _: SlotIndex) {
        self.written.fetch_add(1, Ordering::Release);
    }

    /// Called by a handler that has entered.
    pub(super) fn leave(&self) {
        self.busy.store(false, Ordering::Release);
    }

    /// Bytes to copy of a stack that begins at `sp`: those up to its end, as far as that is known, and no more than `most`.
    pub(super) fn wanted(&self, sp: u64, most: usize) -> usize {
        match self.top.load(Ordering::Relaxed).checked_sub(sp) {
            Some(bytes) if bytes > 0 && bytes < most as u64 => bytes as usize,
            _ => most,
        }
    }

    /// A stack of the thread ends here. `None` where the end was not found: perhaps it is further out than was thought.
    pub(super) fn ends_at(&self, top: Option<u64>) {
        let known = self.top.load(Ordering::Relaxed);
        let top = top.map_or(0, |top| top.max(known));
        if top != known {
            self.top.store(top, Ordering::Relaxed);
        }
    }

    /// Samples that wait.
    pub(super) fn waiting(&self) -> usize {
        self.written.load(Ordering::Relaxed).wrapping_sub(self.read.load(Ordering::Relaxed)) as usize
    }

    /// Whether a handler is at it. After [`end`](Self::end), false says that none will be.
    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::SeqCst)
    }

    /// The oldest sample that waits.
    pub(super) fn oldest(&self) -> Option<SlotIndex> {
        let read = self.read.load(Ordering::Relaxed);
        (self.written.load(Ordering::Acquire) != read).then_some(SlotIndex { index: read as usize % PLACES })
    }

    /// The oldest sample was read.
    pub(super) fn release(&self, _: SlotIndex) {
        self.read.fetch_add(1, Ordering::Release);
    }

    /// Makes the slot a new thread's, whose number of the generation, never 0, is the answer. A timer's signal has room for
    /// 24 bits of it.
    pub(super) fn begin(&self) -> u32 {
        let generation = (self.generation.load(Ordering::Relaxed) + 1) & 0xFF_FFFF;
        let generation = generation.max(1);
        self.generation.store(generation, Ordering::Relaxed);
        for number in [&self.cpu_ns, &self.dropped, &self.top] {
            number.store(0, Ordering::Relaxed);
        }
        self.owner.store(generation, Ordering::SeqCst);
        generation
    }

    /// No more samples are taken, once a handler that is at it has ended.
    pub(super) fn end(&self) {
        self.owner.store(0, Ordering::SeqCst);
    }
}

/// A place in a slot that is one side's at the moment.
#[derive(Debug)]
pub(super) struct SlotIndex {
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
        assert!(slot.is_busy());
    }

    #[test]
    fn no_more_is_copied_than_up_to_the_stacks_end() {
        let slot = SlotState::default();
        slot.begin();
        assert_eq!(slot.wanted(1_000, 64), 64, "not known");
        slot.ends_at(Some(1_040));
        slot.ends_at(Some(1_020));
        assert_eq!((slot.wanted(1_000, 64), slot.wanted(900, 64)), (40, 64));
        assert_eq!((slot.wanted(1_040, 64), slot.wanted(9_000, 64)), (64, 64), "another stack");
        slot.ends_at(None);
        assert_eq!(slot.wanted(1_000, 64), 64, "it went further");
    }
}
