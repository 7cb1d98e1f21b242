//! How many calls go on, counted from a certain moment on. Pure.

use crate::sync::atomic::{AtomicU64, Ordering};

/// A call that was counted: since which moment, by number; zero if it was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Began(u32);

impl Began {
    pub(super) const NONE: Began = Began(0);
}

/// Number of moments so far in the upper half; in the lower one the calls that have begun since the last one and have
/// not ended.
#[derive(Debug)]
pub(super) struct InFlight(AtomicU64);

fn moment(state: u64) -> u32 {
    (state >> 32) as u32
}

impl InFlight {
    pub(super) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Counts from now on. What goes on already will not be missed when it ends.
    pub(super) fn begin_anew(&self) {
        let anew = |state: u64| Some(u64::from(moment(state).wrapping_add(1).max(1)) << 32);
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, anew);
    }

    /// A call begins on a thread that is inside the call `around`, if any: a call inside a counted one is not counted.
    pub(super) fn begin(&self, around: Began) -> Began {
        if around != Began::NONE && around.0 == moment(self.0.load(Ordering::Acquire)) {
            return around;
        }
        Began(moment(self.0.fetch_add(1, Ordering::AcqRel)))
    }

    /// A call ends. Returns how many go on, or `None` if it was not counted since the last moment.
    pub(super) fn end(&self, began: Began) -> Option<u32> {
        let one_less = |state: u64| {
            let counted = began != Began::NONE && moment(state) == began.0 && state as u32 > 0;
            counted.then(|| state - 1)
        };
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less).ok().map(|before| before as u32 - 1)
    }

    /// Calls that go on.
    pub(super) fn count(&self) -> u32 {
        self.0.load(Ordering::Acquire) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_of_this_moment_count() {
        let calls = InFlight::new();
        calls.begin_anew();
        let old = calls.begin(Began::NONE);
        assert_eq!((calls.count(), calls.begin(old)), (1, old), "inside another one");
        calls.begin_anew();
        assert_eq!((calls.count(), calls.end(old)), (0, None));
        let (one, two) = (calls.begin(old), calls.begin(Began::NONE));
        assert_eq!((calls.end(one), calls.end(two), calls.end(two)), (Some(1), Some(0), None));
        assert_eq!(calls.end(Began::NONE), None);
    }
}
