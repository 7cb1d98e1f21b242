//! Intervals into the thread's ring: all records of one or none, and what is open where a step is resolved in parts.

use super::super::frame::Frame;
use super::{RESERVED_FOR_STEPS, ThreadState, add};
use crate::clock::Ticks;
use crate::raw::{Raw, RawInterval, flag};
use std::sync::atomic::Ordering::{Relaxed, Release};

/// A step with more intervals than this is resolved in parts, so that memory stays bounded if a program puts one span
/// around its whole run.
const SPLIT_AFTER: u32 = 65_536;

impl ThreadState {
    /// Writes the frame at `at` as an interval of depth `depth`.
    #[inline]
    pub(super) fn write(&mut self, at: usize, depth: usize, end: Ticks, annotated: bool) {
        let frame = &self.frames[at];
        let is_root = frame.is_step();
        let annotation = &self.annotations[at];
        let (work, counts) = (annotated && !annotation.work.is_empty(), annotated && !annotation.counts.is_empty());
        // All of an interval's records or none: a record that stands alone would be taken for one of the next interval.
        let needed = 1 + usize::from(work) + usize::from(counts) + if is_root { 0 } else { RESERVED_FOR_STEPS };
        if self.room_for(needed) {
            if work {
                let _ = self.ring.push(Raw::Work(self.annotations[at].work));
            }
            if counts {
                let _ = self.ring.push(Raw::Counts(self.annotations[at].counts));
            }
            let lost = if is_root { self.lost_in_step(at) } else { 0 };
            let frame = &self.frames[at];
            let _ = self.ring.push(Raw::Interval(RawInterval { lost, ..frame.to_raw(depth, end, 0) }));
            self.count_emitted();
        } else {
            // Overload policy: the newest record is dropped, because the drain may be reading those in the ring.
            self.count_emitted();
            add(&self.counts.ring_full);
            if is_root {
                add(&self.counts.steps_lost);
            }
        }
        self.since_split += 1;
        if self.since_split >= SPLIT_AFTER {
            self.announce_open();
        }
    }

    /// Number of intervals of the step at `at`, which ends, that found the ring full. A step around it does not count
    /// them again, and goes on where it was.
    #[inline]
    fn lost_in_step(&mut self, at: usize) -> u16 {
        let lost = self.counts.ring_full.load(Relaxed).saturating_sub(self.before[at].lost);
        if self.frames[at].flags & flag::NESTED_STEP != 0 {
            // It takes nothing of the room of the step around it.
            self.since_split = self.before[at].since_split;
            let around = if lost > 0 { self.frames[..at].iter().rposition(Frame::is_step) } else { None };
            if let Some(around) = around {
                self.before[around].lost += lost;
            }
        }
        u16::try_from(lost).unwrap_or(u16::MAX)
    }

    #[inline]
    pub(super) fn room_for(&self, n: usize) -> bool {
        self.ring.cached_slots() >= n || self.ring.slots() >= n
    }

    #[inline]
    pub(super) fn count_emitted(&mut self) {
        self.emitted += 1;
        // Release: whoever reads this count also finds the records written before it in the ring.
        self.counts.emitted.store(self.emitted, Release);
    }

    /// Announces to the drain which intervals are open, so that it can resolve what it has buffered so far.
    #[cold]
    fn announce_open(&mut self) {
        self.since_split = 0;
        let frames = &self.frames[..self.depth];
        let Some(step) = frames.iter().rev().find(|f| f.recorded && !f.is_detached()).map(|f| f.step) else {
            return;
        };
        let is_of_it = |f: &Frame| f.recorded && !f.transparent && !f.is_detached() && f.step == step;
        let open = || frames.iter().enumerate().filter(|(_, f)| is_of_it(f));
        let n = open().count();
        if n == 0 || !self.room_for(n) {
            return;
        }
        for (i, (depth, frame)) in open().enumerate() {
            let last = if i + 1 == n { flag::LAST_OPEN } else { 0 };
            let announced = RawInterval { open: true, ..frame.to_raw(depth, frame.start, last) };
            let _ = self.ring.push(Raw::Interval(announced));
        }
    }
}
