//! How many ranges are open on a thread, of all domains.

use std::cell::Cell;

thread_local! {
    static OPEN: Cell<u32> = const { Cell::new(0) };
}

/// None in a thread that is ending, too.
#[inline]
pub(crate) fn count() -> u32 {
    OPEN.try_with(Cell::get).unwrap_or(0)
}

/// One more.
#[inline]
pub(crate) fn begins() {
    let _ = OPEN.try_with(|open| open.set(open.get() + 1));
}

/// One less.
#[inline]
pub(crate) fn ends() {
    let _ = OPEN.try_with(|open| open.set(open.get().saturating_sub(1)));
}
