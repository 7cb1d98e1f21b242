//! What a thread knows of what it did inside of ranges that stay open: where the program's loop is, and what repeats there.

use crate::patterns::{FOUND, Patterns, with_patterns};
use std::cell::{Cell, RefCell};
use std::time::Instant;

/// Nothing has happened since.
pub(crate) const NONE: u32 = u32::MAX;

/// What a thread knows.
pub(crate) struct LoopState {
    /// Ranges that are open around the step that is open; 0 if none is.
    pub(crate) base: Cell<u32>,
    pub(crate) as_repeated: Cell<bool>,
    /// The fewest ranges that were open around what began since the last result, and between the two results before it.
    pub(crate) fewest: Cell<u32>,
    pub(crate) level: Cell<u32>,
    /// As many as were open around the last one that repeated.
    pub(crate) usual: Cell<u32>,
    /// Something happened outside of all ranges, and nothing inside since; and whether anything inside had a result
    /// since.
    pub(crate) comes_in: Cell<bool>,
    pub(crate) has_results: Cell<bool>,
    /// The fewest ranges that were open around what began in the latest second, and in the one before.
    pub(crate) second: Cell<u64>,
    pub(crate) fewest_now: Cell<u32>,
    pub(crate) fewest_before: Cell<u32>,
    /// When that was, or when the step that is open began, by `OwnSteps::time`.
    pub(crate) since: Cell<u64>,
    /// It wanted a result, at this time, and when the step began.
    pub(crate) fetched: Cell<Option<Instant>>,
    pub(crate) began: Cell<Option<Instant>>,
    /// The window that this is about, how often a step was begun there in vain, and whether one had room.
    pub(crate) window: Cell<u64>,
    pub(crate) tries: Cell<u32>,
    pub(crate) had_room: Cell<bool>,
}

impl LoopState {
    const fn new() -> Self {
        Self {
            base: Cell::new(0),
            as_repeated: Cell::new(false),
            fewest: Cell::new(0),
            level: Cell::new(0),
            usual: Cell::new(0),
            comes_in: Cell::new(true),
            has_results: Cell::new(false),
            second: Cell::new(0),
            fewest_now: Cell::new(0),
            fewest_before: Cell::new(0),
            since: Cell::new(0),
            fetched: Cell::new(None),
            began: Cell::new(None),
            window: Cell::new(0),
            tries: Cell::new(0),
            had_room: Cell::new(false),
        }
    }
}

thread_local! {
    pub(crate) static INSIDE: LoopState = const { LoopState::new() };
    pub(crate) static PATTERNS_INSIDE: RefCell<Patterns> = const { RefCell::new(Patterns::new(&FOUND)) };
}

/// This is launched inside of ranges.
#[inline]
pub(crate) fn launches(what: u64, is_graph: bool) {
    let _ = with_patterns(&PATTERNS_INSIDE, |patterns| patterns.launches(what, is_graph));
}

/// Something begins outside of all ranges, at this second.
#[inline]
pub(crate) fn outermost(second: u64) {
    let _ = INSIDE.try_with(|inside| {
        inside.fewest.set(0);
        inside.comes_in.set(true);
        inside.since.set(second);
    });
}

/// This thread wants a result.
#[inline]
pub(crate) fn fetched(now: Instant) {
    let _ = INSIDE.try_with(|inside| {
        inside.fetched.set(Some(now));
        // Outside of all ranges since the last one: where the loop is inside this time is not known yet.
        let fewest = inside.fewest.replace(NONE);
        inside.level.set(if fewest == 0 { inside.usual.get() } else { fewest });
    });
    let _ = with_patterns(&PATTERNS_INSIDE, Patterns::wants);
}
