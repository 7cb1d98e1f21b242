//! The state of open requests while their steps run, recorded or not. The application's threads write it without a
//! lock; it is read when the request ends.

use crate::clock::Ticks;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// The most requests that are followed at once; 32 bytes each.
///
/// Overload policy: if a request finds no free slot, its queue time is unknown, and it counts as having a recorded
/// step, so that it gets its row. Nothing else is lost.
const SLOTS: usize = 4_096;

/// Slots that a request may take, starting at the one that its number maps to.
const REACH: usize = 8;

/// No step has begun yet.
const NONE: u64 = u64::MAX;

struct Slot {
    /// Number of the request, 0 for a free slot.
    number: AtomicU32,
    /// Whether anything with the request's number is recorded.
    recorded: AtomicBool,
    /// Whether a step of it is part of an experiment.
    perturbed: AtomicBool,
    /// Ticks at the start of the first step.
    first_step: AtomicU64,
    /// Ticks at the start of the first step that is a phase.
    first_phase: AtomicU64,
    /// Tokens in its context after the latest step that states them, over all sequences.
    context: AtomicU64,
}

impl Slot {
    #[inline]
    fn first(&self, is_phase: bool) -> &AtomicU64 {
        if is_phase { &self.first_phase } else { &self.first_step }
    }
}

/// The open requests of a session, found by their numbers.
pub(crate) struct OpenRequests {
    slots: Box<[Slot]>,
}

/// What is known of a request when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EndedRequest {
    /// Start of its first phase, or of its first step if it has no phase.
    pub(crate) first_step: Option<Ticks>,
    pub(crate) recorded: bool,
    /// Whether steps of it were part of an experiment.
    pub(crate) perturbed: bool,
}

impl OpenRequests {
    pub(crate) fn new() -> Self {
        let slot = |_| Slot {
            number: AtomicU32::new(0),
            recorded: AtomicBool::new(false),
            perturbed: AtomicBool::new(false),
            first_step: AtomicU64::new(NONE),
            first_phase: AtomicU64::new(NONE),
            context: AtomicU64::new(0),
        };
        Self { slots: (0..SLOTS).map(slot).collect() }
    }

    /// The slots that a request may have. Consecutive numbers map to distant slots, so that threads do not write to the
    /// same cache line.
    #[inline]
    fn reach(&self, number: u32) -> impl Iterator<Item = &Slot> {
        let home = number.wrapping_mul(0x9e37_79b9) >> (u32::BITS - SLOTS.ilog2());
        (0..REACH).map(move |i| &self.slots[(home as usize + i) % SLOTS])
    }

    #[inline]
    fn find(&self, number: u32) -> Option<&Slot> {
        self.reach(number).find(|slot| slot.number.load(Relaxed) == number)
    }

    /// Called when a request begins.
    pub(crate) fn open(&self, number: u32) {
        // `close` cleared the slot before it released the number, so the slot is clean.
        let _ = self.reach(number).find(|slot| slot.number.compare_exchange(0, number, Acquire, Relaxed).is_ok());
    }

    /// Called when a request ends: none of its spans is open on any thread.
    pub(crate) fn close(&self, number: u32) -> EndedRequest {
        let Some(slot) = self.find(number) else {
            return EndedRequest { first_step: None, recorded: true, perturbed: false };
        };
        // A step that is no phase may be the application's: a poll of a handler that waits for its turn.
        let (step, phase) = (slot.first_step.swap(NONE, Relaxed), slot.first_phase.swap(NONE, Relaxed));
        let first = if phase == NONE { step } else { phase };
        let recorded = slot.recorded.swap(false, Relaxed);
        let perturbed = slot.perturbed.swap(false, Relaxed);
        slot.context.store(0, Relaxed);
        slot.number.store(0, Release);
        EndedRequest { first_step: (first != NONE).then_some(Ticks(first)), recorded, perturbed }
    }

    /// Called when a step of the request begins. Returns whether the caller must report the step's start, because it is
    /// the request's first, or the first that is a phase.
    #[inline]
    pub(crate) fn step(&self, number: u32, recorded: bool, is_phase: bool) -> bool {
        let Some(slot) = self.find(number) else { return false };
        if recorded && !slot.recorded.load(Relaxed) {
            slot.recorded.store(true, Relaxed);
        }
        slot.first(is_phase).load(Relaxed) == NONE
    }

    /// Something with the request's number is recorded that is not a step.
    pub(crate) fn mark_recorded(&self, number: u32) {
        if let Some(slot) = self.find(number) {
            slot.recorded.store(true, Relaxed);
        }
    }

    /// A step of the request is part of an experiment.
    pub(crate) fn mark_perturbed(&self, number: u32) {
        if let Some(slot) = self.find(number) {
            slot.perturbed.store(true, Relaxed);
        }
    }

    /// Notes when the first step, or the first that is a phase, began. If several threads report one, the earliest
    /// counts.
    pub(crate) fn first_step(&self, number: u32, start: Ticks, is_phase: bool) {
        if let Some(slot) = self.find(number) {
            slot.first(is_phase).fetch_min(start.0, Relaxed);
        }
    }

    /// Notes the context after a step of the request, in tokens over all its sequences.
    #[inline]
    pub(crate) fn context(&self, number: u32, tokens: u64) {
        if let Some(slot) = self.find(number) {
            slot.context.store(tokens, Relaxed);
        }
    }

    /// Context of all open requests together, in tokens.
    pub(crate) fn tokens_in_flight(&self) -> u64 {
        let open = self.slots.iter().filter(|slot| slot.number.load(Relaxed) != 0);
        open.fold(0, |sum, slot| sum.saturating_add(slot.context.load(Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_step_counts_and_a_slot_forgets_its_request() {
        let requests = OpenRequests::new();
        requests.open(7);
        assert!(requests.step(7, false, false), "nobody has told a start");
        requests.first_step(7, Ticks(90), false);
        requests.first_step(7, Ticks(80), false);
        assert!(!requests.step(7, true, false));
        requests.mark_perturbed(7);
        requests.context(7, 12);
        assert_eq!(requests.tokens_in_flight(), 12);
        assert_eq!(requests.close(7), EndedRequest { first_step: Some(Ticks(80)), recorded: true, perturbed: true });
        requests.open(7);
        assert_eq!(requests.tokens_in_flight(), 0);
        assert_eq!(requests.close(7), EndedRequest { first_step: None, recorded: false, perturbed: false });
    }

    /// A handler is polled at 10 and waits for its turn; its prefill begins at 70.
    #[test]
    fn a_phase_counts_before_what_is_none() {
        let requests = OpenRequests::new();
        requests.open(7);
        requests.first_step(7, Ticks(10), false);
        assert!(requests.step(7, true, true), "no phase yet");
        requests.first_step(7, Ticks(70), true);
        assert!(!requests.step(7, true, true));
        assert_eq!(requests.close(7), EndedRequest { first_step: Some(Ticks(70)), recorded: true, perturbed: false });
    }

    #[test]
    fn one_that_found_no_room_is_taken_for_recorded_and_harms_nobody() {
        let requests = OpenRequests::new();
        (1..=20_000).for_each(|number| requests.open(number));
        let mut known = 0;
        for number in 1..=20_000 {
            requests.step(number, false, true);
            requests.first_step(number, Ticks(u64::from(number)), true);
            let ended = requests.close(number);
            match ended.first_step {
                Some(ticks) => {
                    assert_eq!((ticks, ended.recorded), (Ticks(u64::from(number)), false));
                    known += 1;
                }
                None => assert!(ended.recorded),
            }
        }
        assert!(known > SLOTS * 9 / 10 && known <= SLOTS, "{known}");
        // All slots are free again, so a moderate number of requests finds room.
        (1..=1_000).for_each(|number| requests.open(number));
        assert!((1..=1_000).all(|number| requests.step(number, true, true)));
    }
}
