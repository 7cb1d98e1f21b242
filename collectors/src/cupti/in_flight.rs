//! How many calls go on, counted from a certain moment on. Pure.

use crate::sync::atomic::{AtomicU64, Ordering};

/// A call that was counted: since which moment, by number; zero if it was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CountedCall(u32);

impl CountedCall {
    pub(super) const NONE: CountedCall = CountedCall(0);
}

/// The call that a thread is inside, and how many of its kind are under way there: one inside another is not counted,
/// and its end is not that of the one around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NestedCalls {
    outermost: CountedCall,
    depth: u32,
}

impl NestedCalls {
    pub(super) const NONE: NestedCalls = NestedCalls { outermost: CountedCall::NONE, depth: 0 };

    /// How the outermost call is counted.
    pub(super) fn outermost(self) -> CountedCall {
        self.outermost
    }

    /// One more call begins, and is counted as `began`: as the one around it, if that is counted since the same moment.
    pub(super) fn begins(self, began: CountedCall) -> Self {
        let is_inside = self.depth > 0 && began == self.outermost;
        Self { outermost: began, depth: if is_inside { self.depth.saturating_add(1) } else { 1 } }
    }

    /// The innermost call ends. Returns what is left, and how the outermost one was counted if it ended with this.
    pub(super) fn ends(self) -> (Self, CountedCall) {
        match self.depth {
            0 | 1 => (Self::NONE, self.outermost),
            depth => (Self { depth: depth - 1, ..self }, CountedCall::NONE),
        }
    }
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
    pub(super) fn begin(&self, around: CountedCall) -> CountedCall {
        if around != CountedCall::NONE && around.0 == moment(self.0.load(Ordering::Acquire)) {
            return around;
        }
        CountedCall(moment(self.0.fetch_add(1, Ordering::AcqRel)))
    }

    /// A call ends. Returns how many go on, or `None` if it was not counted since the last moment.
    pub(super) fn end(&self, began: CountedCall) -> Option<u32> {
        let one_less = |state: u64| {
            let counted = began != CountedCall::NONE && moment(state) == began.0 && state as u32 > 0;
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
    fn a_call_ends_with_its_own_end_and_not_with_that_of_one_inside_it() {
        let calls = InFlight::new();
        calls.begin_anew();
        let begin = |nested: NestedCalls| nested.begins(calls.begin(nested.outermost()));
        let end = |nested: NestedCalls| {
            let (left, ended) = nested.ends();
            (left, calls.end(ended))
        };
        let outer = begin(NestedCalls::NONE);
        let twice = begin(outer);
        let (left, ended) = end(begin(twice));
        assert_eq!((left, ended, calls.count()), (twice, None, 1));
        let (left, ended) = end(left);
        assert_eq!((left, ended, calls.count()), (outer, None, 1));
        assert_eq!(end(left), (NestedCalls::NONE, Some(0)));
        assert_eq!(end(NestedCalls::NONE), (NestedCalls::NONE, None), "its beginning was not seen");
        // One that goes on from before is not counted, and one inside it is the outermost that is.
        let old = begin(begin(NestedCalls::NONE));
        calls.begin_anew();
        let new = begin(old);
        assert_eq!((calls.count(), end(new)), (1, (NestedCalls::NONE, Some(0))));
    }

    #[test]
    fn only_calls_of_this_moment_count() {
        let calls = InFlight::new();
        calls.begin_anew();
        let old = calls.begin(CountedCall::NONE);
        assert_eq!((calls.count(), calls.begin(old)), (1, old), "inside another one");
        calls.begin_anew();
        assert_eq!((calls.count(), calls.end(old)), (0, None));
        let (one, two) = (calls.begin(old), calls.begin(CountedCall::NONE));
        assert_eq!((calls.end(one), calls.end(two), calls.end(two)), (Some(1), Some(0), None));
        assert_eq!(calls.end(CountedCall::NONE), None);
    }
}
