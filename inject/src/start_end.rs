//! Ranges that began by a start: they may end on another thread than they began on, cross others, or never end. Here
//! they are kept while they are open, by the numbers that the program got for them.

use candlescope_core::{OpenRange, RangeTime};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Ranges that may be open at once, on all threads together: 320 kB at most.
///
/// Overload policy: one that begins beyond that is counted, and not recorded. What is open is left alone, because a
/// program that never ends its ranges has none that is worth more than another.
pub(crate) const MOST: usize = 4_096;

/// Bits of a number that say the range's place.
const PLACE_BITS: u32 = MOST.trailing_zeros();

/// What is kept of a range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum KeptRange {
    /// It is part of nothing.
    Beside(OpenRange),
    /// A step, which the thread ends on which it began. It was ended by another one at this time.
    Step(Option<RangeTime>),
}

#[derive(Debug, Default)]
enum SlotContent {
    #[default]
    Nothing,
    /// Its range is about to begin.
    Reserved,
    Range(KeptRange),
}

#[derive(Debug, Default)]
struct RangeSlot {
    /// Ranges that it has had, the one that it has included: a number that was ended twice ends no other range.
    uses: u32,
    held: SlotContent,
}

const _: () = assert!(MOST * size_of::<Mutex<RangeSlot>>() <= 320 << 10, "as `MOST` says");

/// What a program ended by a number.
#[derive(Debug, PartialEq)]
pub(crate) enum EndedByNumber {
    Beside(OpenRange),
    /// The step of another thread, which will notice.
    Step,
    /// Nothing that is open.
    Unknown,
}

/// See the module's text. A range costs three locks that nobody else wants, each for a few instructions: when its place
/// is found, when it has begun, and when it ends. Nothing is allocated.
#[derive(Debug)]
pub(crate) struct StartEnd {
    places: Box<[Mutex<RangeSlot>]>,
    open: AtomicUsize,
    /// Steps that other threads ended than those they began on, so far.
    elsewhere: AtomicU64,
    /// Steps whose thread ended before they did.
    abandoned: AtomicUsize,
}

fn lock(place: &Mutex<RangeSlot>) -> MutexGuard<'_, RangeSlot> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StartEnd {
    pub(crate) fn new() -> Self {
        Self {
            places: (0..MOST).map(|_| Mutex::default()).collect(),
            open: AtomicUsize::new(0),
            elsewhere: AtomicU64::new(0),
            abandoned: AtomicUsize::new(0),
        }
    }

    /// A number for a range that is about to begin, above 0; `None` if too many are open. `from` is where its thread
    /// looks first: threads that use a place again and again are not in each other's way.
    pub(crate) fn reserve(&self, from: &mut usize) -> Option<u64> {
        if self.open.fetch_add(1, Ordering::Relaxed) < MOST {
            let first = *from % MOST;
            for at in (first..MOST).chain(0..first) {
                // Another thread is at work there.
                let Ok(mut place) = self.places[at].try_lock() else { continue };
                if matches!(place.held, SlotContent::Nothing) {
                    place.held = SlotContent::Reserved;
                    place.uses = place.uses.wrapping_add(1).max(1);
                    *from = at;
                    return Some(u64::from(place.uses) << PLACE_BITS | at as u64);
                }
            }
        }
        self.open.fetch_sub(1, Ordering::Relaxed);
        None
    }

    /// The place of a number, if it is that of its range still.
    fn place(&self, number: u64) -> Option<MutexGuard<'_, RangeSlot>> {
        let place = lock(&self.places[number as usize % MOST]);
        (u64::from(place.uses) == number >> PLACE_BITS).then_some(place)
    }

    /// The range of a reserved number has begun.
    pub(crate) fn keep(&self, number: u64, range: KeptRange) {
        if let Some(mut place) = self.place(number) {
            place.held = SlotContent::Range(range);
        }
    }

    /// The range of this number is over, or has not begun after all.
    pub(crate) fn free(&self, number: u64) {
        if let Some(mut place) = self.place(number) {
            self.vacate(&mut place);
        }
    }

    fn vacate(&self, place: &mut RangeSlot) {
        if !matches!(std::mem::take(&mut place.held), SlotContent::Nothing) {
            self.open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A step's thread ends before it does. It counts as open from here on.
    pub(crate) fn abandon(&self, number: u64) {
        self.free(number);
        self.abandoned.fetch_add(1, Ordering::Relaxed);
    }

    /// The program ends the range of this number, on any thread. A step is ended by that on which it began; this is for
    /// others.
    pub(crate) fn end(&self, number: u64, now: impl FnOnce() -> RangeTime) -> EndedByNumber {
        let Some(mut place) = self.place(number) else { return EndedByNumber::Unknown };
        match place.held {
            SlotContent::Range(KeptRange::Beside(range)) => {
                self.vacate(&mut place);
                EndedByNumber::Beside(range)
            }
            SlotContent::Range(KeptRange::Step(None)) => {
                place.held = SlotContent::Range(KeptRange::Step(Some(now())));
                // Release: who sees the count sees the time.
                self.elsewhere.fetch_add(1, Ordering::Release);
                EndedByNumber::Step
            }
            _ => EndedByNumber::Unknown,
        }
    }

    /// How many steps other threads have ended so far: where this is the same as before, nothing has to be asked.
    #[inline]
    pub(crate) fn elsewhere(&self) -> u64 {
        self.elsewhere.load(Ordering::Acquire)
    }

    /// When another thread ended the step of this number, if one did.
    pub(crate) fn ended(&self, number: u64) -> Option<RangeTime> {
        match self.place(number)?.held {
            SlotContent::Range(KeptRange::Step(ended)) => ended,
            _ => None,
        }
    }

    /// The same, and its place is free. Waits for nobody: `None` as well where another thread is at work there.
    pub(crate) fn take_ended(&self, number: u64) -> Option<RangeTime> {
        let mut place = self.places[number as usize % MOST].try_lock().ok()?;
        match place.held {
            SlotContent::Range(KeptRange::Step(Some(ended))) if u64::from(place.uses) == number >> PLACE_BITS => {
                self.vacate(&mut place);
                Some(ended)
            }
            _ => None,
        }
    }

    /// Ranges that have begun and not ended.
    pub(crate) fn open(&self) -> u64 {
        (self.open.load(Ordering::Relaxed) + self.abandoned.load(Ordering::Relaxed)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn never() -> RangeTime {
        unreachable!("no step is ended")
    }

    #[test]
    fn no_more_are_open_than_there_is_room_for_and_a_number_ends_its_own_range_only() {
        let ranges = StartEnd::new();
        let mut from = 7;
        let first = ranges.reserve(&mut from).expect("room");
        assert_eq!((from, first > 0), (7, true));
        ranges.free(first);
        let again = ranges.reserve(&mut from).expect("room");
        assert!(again != first && from == 7, "its place is used again, by another number");
        ranges.keep(again, KeptRange::Step(None));
        assert_eq!(ranges.end(first, never), EndedByNumber::Unknown, "it has ended before");
        ranges.free(first);
        assert_eq!((ranges.open(), ranges.ended(again)), (1, None));
        let more: Vec<u64> = std::iter::from_fn(|| ranges.reserve(&mut from)).collect();
        assert_eq!((more.len(), ranges.open()), (MOST - 1, MOST as u64));
        ranges.free(more[100]);
        assert!(ranges.reserve(&mut from).is_some() && ranges.reserve(&mut from).is_none());
        ranges.abandon(more[200]);
        assert_eq!(ranges.open(), MOST as u64, "nobody will end it");
        assert!(ranges.reserve(&mut from).is_some(), "but it has no place any more");
        for unknown in [0, 1, u64::MAX, MOST as u64 - 1] {
            assert_eq!(ranges.end(unknown, never), EndedByNumber::Unknown);
        }
    }
}
