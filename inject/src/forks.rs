//! Processes that are forked from the one that records. They have its memory and none of its threads, and what these
//! held is held there for ever: nothing of them is recorded, which the run says.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

static FORKED: AtomicBool = AtomicBool::new(false);
static IS_COUNTED: AtomicBool = AtomicBool::new(false);
/// How many of them made ranges or started the driver, in memory that all of them share.
static UNRECORDED: OnceLock<&'static AtomicU32> = OnceLock::new();

/// This process was forked just now. Called between the fork and what the program does then: it sets a flag.
pub(crate) fn is_forked() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Whether this process was forked from one that records, or is about to.
#[inline]
pub(crate) fn forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Where they are counted.
#[cfg_attr(not(unix), allow(dead_code, reason = "nothing forks"))]
pub(crate) fn count_in(shared: &'static AtomicU32) {
    let _ = UNRECORDED.set(shared);
}

/// This process, which was forked, does what would have been recorded. Counted once.
#[cold]
pub(crate) fn goes_unrecorded() {
    if !IS_COUNTED.swap(true, Ordering::Relaxed)
        && let Some(shared) = UNRECORDED.get()
    {
        shared.fetch_add(1, Ordering::Relaxed);
    }
}

/// How many there were so far.
pub(crate) fn unrecorded() -> u64 {
    UNRECORDED.get().map_or(0, |shared| shared.load(Ordering::Relaxed).into())
}
