//! Calls that make or end contexts, and moments without any: a state machine without I/O.
//!
//! CUPTI turns records on and off by going through the process's contexts. Where a thread was making one at that
//! moment, CUPTI 12.9 read a context that was half made and ended the program by SIGSEGV (in one start of two, on an
//! H200 with driver 580). So records are turned [between such calls](Contexts::between), and a program that is recorded
//! from outside makes its first one when the recorder is [ready](Contexts::hold): it launches nothing before that, so
//! nothing is missed.

use super::in_flight::{CountedCall, InFlight};
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};

/// How long a call waits at most. Longer than a session takes to start; a program must not wait for one that does not:
/// the first call that has waited so long ends the [hold](Contexts::hold) for all.
const WAITING: Duration = Duration::from_secs(2);

/// How long such calls that are under way are waited for. A first context takes a fraction of a second.
pub(super) const UNDER_WAY: Duration = Duration::from_secs(2);

/// The calls, for all threads.
#[derive(Debug)]
pub(super) struct Contexts {
    /// Of those that have begun since they are followed.
    calls: InFlight,
    /// Who wants that no other begins.
    closed: AtomicU32,
    /// Calls that wait for that. They are inside CUPTI already.
    waiting: AtomicU32,
    held: AtomicBool,
    /// Whether they are followed since before CUPTI's recorder came.
    early: AtomicBool,
}

impl Contexts {
    pub(super) const fn new() -> Self {
        Self {
            calls: InFlight::new(),
            closed: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            held: AtomicBool::new(false),
            early: AtomicBool::new(false),
        }
    }

    /// They are followed from here on. What goes on already is not known.
    pub(super) fn attached(&self) {
        if !self.early.swap(false, Ordering::AcqRel) {
            self.calls.begin_anew();
        }
    }

    /// The same, in a process that has no context yet, for a recorder that comes later: until it [lets
    /// go](Self::let_go), calls that begin wait.
    pub(super) fn hold(&self) {
        self.calls.begin_anew();
        self.early.store(true, Ordering::Release);
        if !self.held.swap(true, Ordering::AcqRel) {
            self.closed.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Ends what [`hold`](Self::hold) began.
    pub(super) fn let_go(&self) {
        if self.held.swap(false, Ordering::AcqRel) {
            self.closed.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Whether the process has no context, because calls that make one wait.
    pub(super) fn are_held(&self) -> bool {
        self.held.load(Ordering::Acquire)
    }

    /// A call begins on this thread, inside another one that began as `around` if that is counted. It waits where
    /// it has to.
    pub(super) fn call_begins(&self, around: CountedCall) -> CountedCall {
        let began = self.calls.begin(around);
        if began == around || !self.are_closed() { began } else { self.call_waits(began) }
    }

    /// Whether a call that has just been counted has to wait.
    fn are_closed(&self) -> bool {
        // Either this thread sees that it has to wait, or who closes sees this call.
        fence(Ordering::SeqCst);
        self.closed.load(Ordering::SeqCst) > 0
    }

    #[cold]
    fn call_waits(&self, began: CountedCall) -> CountedCall {
        let (began, is_open) = waits(&self.calls, &self.waiting, began, WAITING, || self.are_closed());
        if !is_open {
            self.let_go();
        }
        began
    }

    /// That call ends.
    pub(super) fn call_ends(&self, began: CountedCall) {
        self.calls.end(began);
    }

    /// Calls under way, with those that wait.
    pub(super) fn under_way(&self) -> u32 {
        // In this order: one that goes on is counted before it stops waiting.
        let waiting = self.waiting.load(Ordering::SeqCst);
        waiting.saturating_add(self.calls.count())
    }

    /// Does `act` while no such call is under way, which it is told, and none begins; without such a moment within
    /// `limit`, beside one.
    pub(super) fn between<T>(&self, limit: Duration, act: impl FnOnce(bool) -> T) -> T {
        let _closed = ClosedCalls::new(&self.closed);
        let is_quiet = wait_until(limit, || self.calls.count() == 0);
        act(is_quiet)
    }
}

/// No other call begins while this lives: also where what is done meanwhile panics, the program's calls go on after it.
struct ClosedCalls<'a>(&'a AtomicU32);

impl<'a> ClosedCalls<'a> {
    fn new(closed: &'a AtomicU32) -> Self {
        closed.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        Self(closed)
    }
}

impl Drop for ClosedCalls<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// One of `calls`, counted as `began`, waits while it `has_to`, at most for `limit`, and counts among those `waiting`
/// meanwhile. Returns how it is counted then, and whether it need not wait any more.
pub(super) fn waits(
    calls: &InFlight,
    waiting: &AtomicU32,
    mut began: CountedCall,
    limit: Duration,
    has_to: impl Fn() -> bool,
) -> (CountedCall, bool) {
    waiting.fetch_add(1, Ordering::SeqCst);
    let until = Instant::now() + limit;
    let is_over = loop {
        calls.end(began);
        let is_over = wait_until(until.saturating_duration_since(Instant::now()), || !has_to());
        began = calls.begin(CountedCall::NONE);
        // Counted again it looks again: somebody else may have come first.
        if !is_over || !has_to() {
            break is_over;
        }
    };
    waiting.fetch_sub(1, Ordering::SeqCst);
    (began, is_over)
}

/// Asks again and again, and pauses in between; whether it came true within `limit`.
pub(super) fn wait_until(limit: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    loop {
        if is_so() {
            return true;
        }
        if began.elapsed() >= limit {
            return false;
        }
        // Not `sleep`, in which a thread of the program can be cancelled (`pthread_cancel`): it would unwind through
        // this.
        std::thread::park_timeout(Duration::from_micros(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::thread::sleep;

    #[test]
    fn what_acts_between_calls_waits_for_them_and_they_for_it() {
        let contexts = Contexts::new();
        contexts.attached();
        let first = contexts.call_begins(CountedCall::NONE);
        assert_eq!((contexts.under_way(), contexts.call_begins(first)), (1, first), "one inside the other");
        assert!(
            !contexts.between(Duration::from_millis(1), |is_quiet| is_quiet),
            "it is told that there was no moment"
        );
        let acting = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let acts = scope.spawn(|| {
                contexts.between(Duration::from_secs(60), |is_quiet| {
                    acting.store(true, Ordering::SeqCst);
                    sleep(Duration::from_millis(5));
                    assert_eq!(contexts.calls.count(), 0);
                    acting.store(false, Ordering::SeqCst);
                    is_quiet
                })
            });
            sleep(Duration::from_millis(2));
            assert!(!acting.load(Ordering::SeqCst), "it waits for the first");
            let second = scope.spawn(|| {
                let began = contexts.call_begins(CountedCall::NONE);
                assert!(!acting.load(Ordering::SeqCst), "the second waits for it");
                contexts.call_ends(began);
            });
            contexts.call_ends(first);
            assert!(acts.join().expect("a thread") && second.join().is_ok());
        });
        assert_eq!(contexts.under_way(), 0);
    }

    #[test]
    fn the_first_context_is_made_when_the_recorder_is_ready() {
        let contexts = Contexts::new();
        contexts.hold();
        contexts.hold();
        // The recorder's: who waits is not forgotten.
        contexts.attached();
        let made = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let began = contexts.call_begins(CountedCall::NONE);
                made.store(true, Ordering::SeqCst);
                contexts.call_ends(began);
            });
            sleep(Duration::from_millis(5));
            assert!(contexts.are_held() && contexts.between(Duration::ZERO, |is_quiet| is_quiet), "none is being made");
            assert!(!made.load(Ordering::SeqCst));
            contexts.let_go();
            contexts.let_go();
        });
        assert!(made.load(Ordering::SeqCst) && !contexts.are_held());
        contexts.call_ends(contexts.call_begins(CountedCall::NONE));
    }

    #[test]
    fn nobody_waits_for_ever() {
        let contexts = Contexts::new();
        contexts.hold();
        let began = std::time::Instant::now();
        let call = contexts.call_begins(CountedCall::NONE);
        assert!(call != CountedCall::NONE && began.elapsed() >= WAITING);
        assert!(!contexts.are_held(), "nor does the next one wait again");
        let began = std::time::Instant::now();
        contexts.call_ends(contexts.call_begins(CountedCall::NONE));
        assert!(began.elapsed() < WAITING);
        assert_eq!(contexts.under_way(), 1);
    }

    #[test]
    fn one_that_waits_is_under_way_and_one_that_panics_keeps_nobody_out() {
        let contexts = Contexts::new();
        contexts.attached();
        std::thread::scope(|scope| {
            contexts.between(Duration::ZERO, |_| {
                scope.spawn(|| contexts.call_ends(contexts.call_begins(CountedCall::NONE)));
                assert!(wait_until(Duration::from_secs(60), || contexts.waiting.load(Ordering::SeqCst) == 1));
                assert_eq!((contexts.under_way(), contexts.calls.count()), (1, 0));
            });
        });
        assert_eq!(contexts.under_way(), 0);
        let panics = || contexts.between(Duration::ZERO, |_| panic!("of a switch"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        assert_eq!(contexts.closed.load(Ordering::SeqCst), 0);
    }

    /// Who is let in has to look again: the next one may have closed meanwhile.
    #[test]
    fn no_call_goes_on_beside_one_of_many_that_act_in_turn() {
        let contexts = Contexts::new();
        contexts.attached();
        let (acting, done) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !done.load(Ordering::SeqCst) {
                        let began = contexts.call_begins(CountedCall::NONE);
                        let is_beside = acting.load(Ordering::SeqCst);
                        contexts.call_ends(began);
                        assert!(!is_beside);
                    }
                });
            }
            // For less time than a call waits at most.
            let began = Instant::now();
            while began.elapsed() < WAITING / 4 {
                contexts.between(Duration::from_secs(60), |is_quiet| {
                    acting.store(true, Ordering::SeqCst);
                    std::thread::yield_now();
                    acting.store(false, Ordering::SeqCst);
                    assert!(is_quiet);
                });
            }
            done.store(true, Ordering::SeqCst);
        });
        assert_eq!(contexts.under_way(), 0);
    }
}
