//! When CUPTI leaves the process, and who may call it meanwhile: a state machine without I/O.
//!
//! NVIDIA asks that CUPTI be detached at the end of a CUDA call, on the thread that makes it. So the recorder's thread
//! requests it, and the application's next launch does it, once, on whichever thread that is. Between the request and
//! the end of the detachment no other thread may call CUPTI, and once it is detached nobody may: any call would attach
//! it again. Until a launch comes the request stays pending, which costs nothing, because only launches are slowed
//! down.

use super::contexts::{Contexts, wait_until, waits};
use super::in_flight::{CountedCall, InFlight};
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering, fence};
use std::time::Duration;

/// Where CUPTI is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum State {
    /// Not in the process. Nobody may call it.
    Detached,
    /// In the process, for the recorder's thread to call.
    Attached,
    /// To be detached by the next launch. The recorder's thread may only cancel the request.
    Requested,
    /// A launch is detaching it.
    Detaching,
}

/// What happens to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// The recorder's thread has attached it.
    Attach,
    /// The recorder's thread requests that it be detached.
    Request,
    /// The recorder's thread cancels its request.
    Cancel,
    /// A launch begins to detach it.
    Begin,
    /// That launch is done.
    End,
}

impl State {
    /// The next state; `None` where this must not happen now.
    fn after(self, event: Event) -> Option<State> {
        match (self, event) {
            (State::Detached | State::Attached, Event::Attach) => Some(State::Attached),
            (State::Attached, Event::Request) => Some(State::Requested),
            (State::Requested, Event::Cancel) => Some(State::Attached),
            (State::Requested, Event::Begin) => Some(State::Detaching),
            (State::Detaching, Event::End) => Some(State::Detached),
            _ => None,
        }
    }

    fn of(number: u8) -> State {
        match number {
            1 => State::Attached,
            2 => State::Requested,
            3 => State::Detaching,
            _ => State::Detached,
        }
    }
}

/// Why CUPTI stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StayReason {
    EndsContexts,
    LaunchesGraphs,
    SeveralContexts,
}

/// The state, for all threads. No method that a launch calls waits or allocates; a copy may wait while
/// [records of copies are turned on or off](Link::between_copies), and a call on contexts
/// [as they say](Contexts::call_begins).
#[derive(Debug)]
pub(super) struct Link {
    state: AtomicU8,
    /// The status of the last detachment.
    status: AtomicU32,
    /// Calls that have begun since the last request.
    calls: InFlight,
    /// Calls that make or end contexts.
    contexts: Contexts,
    /// Whether a context was ended while CUPTI was attached.
    contexts_end: AtomicBool,
    /// Whether a graph was made or launched while CUPTI was attached.
    graphs: AtomicBool,
    /// The context of the first followed call, by CUPTI's number; 0 before it. And whether another was seen.
    context: AtomicU32,
    several: AtomicBool,
    /// Copies that have begun since CUPTI was attached, and whether those that would begin now wait, because records of
    /// copies are being turned on or off.
    copies: InFlight,
    turning: AtomicBool,
    /// Copies that wait for that. They are inside CUPTI already.
    copies_waiting: AtomicU32,
    /// Whether a followed call has begun since CUPTI was attached.
    called: AtomicBool,
}

impl Link {
    pub(super) const fn new() -> Self {
        Self {
            state: AtomicU8::new(State::Detached as u8),
            status: AtomicU32::new(0),
            calls: InFlight::new(),
            contexts: Contexts::new(),
            contexts_end: AtomicBool::new(false),
            graphs: AtomicBool::new(false),
            context: AtomicU32::new(0),
            several: AtomicBool::new(false),
            copies: InFlight::new(),
            turning: AtomicBool::new(false),
            copies_waiting: AtomicU32::new(0),
            called: AtomicBool::new(false),
        }
    }

    #[inline]
    pub(super) fn state(&self) -> State {
        State::of(self.state.load(Ordering::Acquire))
    }

    /// Whether the next launch is to detach. Asked on the hot path: one relaxed load, because nothing else has to be
    /// ordered by it.
    #[inline]
    pub(super) fn is_requested(&self) -> bool {
        self.state.load(Ordering::Relaxed) == State::Requested as u8
    }

    /// The recorder's thread has attached it.
    pub(super) fn attached(&self) -> bool {
        self.contexts.attached();
        self.copies.begin_anew();
        self.called.store(false, Ordering::Release);
        // CUPTI numbers contexts anew.
        self.context.store(0, Ordering::Relaxed);
        self.step(Event::Attach)
    }

    /// Requests that the next launch detach, which is alone inside the driver as far as is known.
    pub(super) fn request(&self) -> bool {
        self.calls.begin_anew();
        self.step(Event::Request)
    }

    /// A followed call begins on this thread, where one that began as `around` may go on.
    #[inline]
    pub(super) fn call_begins(&self, around: CountedCall) -> CountedCall {
        if self.is_requested() { self.calls.begin(around) } else { around }
    }

    /// A followed call ends. Returns whether no other that has begun since the request goes on. A call that began
    /// before it is not counted, so it is never known to be alone.
    pub(super) fn call_ends(&self, began: CountedCall) -> bool {
        self.calls.end(began) == Some(0)
    }

    /// Calls that make or end contexts.
    pub(super) fn contexts(&self) -> &Contexts {
        &self.contexts
    }

    /// One of them begins on this thread. It [may wait](Contexts::call_begins).
    pub(super) fn context_call_begins(&self, around: CountedCall, ends: bool) -> CountedCall {
        if ends {
            self.contexts_end.store(true, Ordering::Relaxed);
        }
        self.contexts.call_begins(around)
    }

    /// That call ends.
    pub(super) fn context_call_ends(&self, began: CountedCall) {
        self.contexts.call_ends(began);
    }

    /// A followed call begins: a thread that makes calls has left those that it made before CUPTI was attached.
    #[inline]
    pub(super) fn calls(&self) {
        if !self.called.load(Ordering::Relaxed) {
            self.called.store(true, Ordering::Release);
        }
    }

    /// Waits for a followed call, at most for `limit`; whether there was one since CUPTI was attached.
    pub(super) fn wait_for_call(&self, limit: Duration) -> bool {
        wait_until(limit, || self.called.load(Ordering::Acquire))
    }

    /// A copy begins on this thread, inside another one that began as `around` if that is counted. It waits while
    /// records of copies are turned on or off, which takes microseconds.
    #[inline]
    pub(super) fn copy_begins(&self, around: CountedCall) -> CountedCall {
        let began = self.copies.begin(around);
        if began != around && self.are_turned() { self.copy_waits(began) } else { began }
    }

    /// Whether a copy that has just been counted has to wait.
    #[inline]
    fn are_turned(&self) -> bool {
        // Either this thread sees that they are being turned, or who turns them sees this copy.
        fence(Ordering::SeqCst);
        self.turning.load(Ordering::Acquire)
    }

    #[cold]
    fn copy_waits(&self, began: CountedCall) -> CountedCall {
        waits(&self.copies, &self.copies_waiting, began, TURNING, || self.are_turned()).0
    }

    /// That copy ends.
    #[inline]
    pub(super) fn copy_ends(&self, began: CountedCall) {
        if began != CountedCall::NONE {
            self.copies.end(began);
        }
    }

    /// Copies under way, with those that wait.
    pub(super) fn copies_under_way(&self) -> u32 {
        // In this order: one that goes on is counted before it stops waiting.
        let waiting = self.copies_waiting.load(Ordering::SeqCst);
        waiting.saturating_add(self.copies.count())
    }

    /// Does `act`, which turns records of copies on or off, while no copy is under way; `None` if there is no such
    /// moment within `limit`.
    ///
    /// A copy from or to pageable memory has several parts, which the calling thread adds to its record one by one, if
    /// copies are recorded at that moment. CUPTI's own thread, which a flush wakes, reads and frees the parts without
    /// looking whether more come. A copy that is recorded in part, or whose record is read too early, leaves CUPTI with
    /// memory that it has freed, and crashes the program (13.0, in 5 to 7 % of runs with windows of one step).
    pub(super) fn between_copies<T>(&self, limit: Duration, act: impl FnOnce() -> T) -> Option<T> {
        let closed = || {
            if self.copies.count() > 0 {
                return false;
            }
            self.turning.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let quiet = self.copies.count() == 0;
            if !quiet {
                self.turning.store(false, Ordering::Release);
            }
            quiet
        };
        if !wait_until(limit, closed) {
            return None;
        }
        let done = act();
        self.turning.store(false, Ordering::Release);
        Some(done)
    }

    /// A graph is made or launched.
    #[inline]
    pub(super) fn sees_graph(&self) {
        if !self.graphs.load(Ordering::Relaxed) {
            self.graphs.store(true, Ordering::Relaxed);
        }
    }

    /// As if there had been no graph.
    #[cfg(test)]
    pub(super) fn forget_graphs(&self) {
        self.graphs.store(false, Ordering::Relaxed);
    }

    /// A followed call works in the context with this number of CUPTI's. Hot path: one relaxed load where there is one
    /// context.
    #[inline]
    pub(super) fn in_context(&self, number: u32) {
        let first = self.context.load(Ordering::Relaxed);
        if first != number && number != 0 {
            self.in_another_context(first, number);
        }
    }

    #[cold]
    fn in_another_context(&self, first: u32, number: u32) {
        let first = match first {
            0 => self.context.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed).err(),
            first => Some(first),
        };
        if first.is_some_and(|first| first != number) {
            self.sees_several_contexts();
        }
    }

    /// The program works in several contexts.
    pub(super) fn sees_several_contexts(&self) {
        self.several.store(true, Ordering::Relaxed);
    }

    /// Why CUPTI stays once it is attached, if it does. A program that works in several contexts: where CUPTI leaves it
    /// waits for all of them, on the thread of a launch and with the driver locked, and a device that waits for the
    /// launch of another, as in a collective, never ends (two threads with NCCL on two H200s, CUPTI 13.0, two of two
    /// runs with windows). A program that ends contexts meanwhile: a context's end on one thread and CUPTI's on another
    /// must not meet, and how long the next one takes to reach CUPTI is not known. Or one that launches graphs: to time
    /// their nodes CUPTI changes them, and launched after it has left they fail ("unspecified launch failure" of a
    /// decode on an H200, CUPTI 13.0, in two of five runs with windows).
    pub(super) fn must_stay(&self) -> Option<StayReason> {
        if self.contexts_end.load(Ordering::Relaxed) {
            return Some(StayReason::EndsContexts);
        }
        if self.several.load(Ordering::Relaxed) {
            return Some(StayReason::SeveralContexts);
        }
        self.graphs.load(Ordering::Relaxed).then_some(StayReason::LaunchesGraphs)
    }

    /// Whether a context is being made or ended now, a copy goes on, or CUPTI must stay.
    pub(super) fn is_held(&self) -> bool {
        self.must_stay().is_some() || self.contexts.under_way() > 0 || self.copies_under_way() > 0
    }

    /// Changes the state if the event is allowed now. If several threads try, one succeeds; returns whether this one
    /// did.
    pub(super) fn step(&self, event: Event) -> bool {
        let next = |state| State::of(state).after(event).map(|state| state as u8);
        self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).is_ok()
    }

    /// Detaches with `act`, which gives a status, if that was requested and no other thread does it.
    pub(super) fn detach(&self, act: impl FnOnce() -> u32) {
        if self.step(Event::Begin) {
            self.status.store(act(), Ordering::Relaxed);
            self.step(Event::End);
        }
    }

    /// The status of a detachment that failed since this was last asked.
    pub(super) fn failed(&self) -> Option<u32> {
        Some(self.status.swap(0, Ordering::Relaxed)).filter(|status| *status != 0)
    }

    /// Cancels a request, or waits for the end of a detachment that has begun. Returns the state after that: attached
    /// or detached, or still detaching if the time is up.
    pub(super) fn settle(&self, limit: Duration) -> State {
        wait_until(limit, || {
            self.step(Event::Cancel);
            !matches!(self.state(), State::Detaching | State::Requested)
        });
        self.state()
    }
}

/// How long a copy waits at most while records of copies are turned on or off.
const TURNING: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn only_these_steps_are_taken() {
        use {Event::*, State::*};
        let allowed = [
            (Detached, Attach, Attached),
            (Attached, Attach, Attached),
            (Attached, Request, Requested),
            (Requested, Cancel, Attached),
            (Requested, Begin, Detaching),
            (Detaching, End, Detached),
        ];
        for state in [Detached, Attached, Requested, Detaching] {
            assert_eq!(State::of(state as u8), state);
            for event in [Attach, Request, Cancel, Begin, End] {
                let expected = allowed.iter().find(|step| (step.0, step.1) == (state, event)).map(|step| step.2);
                assert_eq!(state.after(event), expected, "{state:?} {event:?}");
            }
        }
    }

    #[test]
    fn nothing_is_detached_unasked() {
        let link = Link::new();
        link.detach(|| panic!("detached already"));
        assert!(link.step(Event::Attach) && !link.is_requested());
        link.detach(|| panic!("nobody asked"));
        assert!(link.step(Event::Request) && link.is_requested());
        assert_eq!(link.settle(Duration::ZERO), State::Attached, "a request can be taken back");
        link.detach(|| panic!("it was taken back"));
    }

    #[test]
    fn a_failure_is_told_once() {
        let link = Link::new();
        for status in [0, 7] {
            assert!(link.step(Event::Attach) && link.step(Event::Request));
            link.detach(|| status);
            assert_eq!((link.state(), link.failed()), (State::Detached, Some(status).filter(|s| *s != 0)));
        }
        assert_eq!(link.failed(), None);
    }

    #[test]
    fn of_many_launches_one_detaches_and_the_recorder_waits_for_it() {
        let link = Link::new();
        let (inside, done, stop) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        let rounds = 200;
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while stop.load(Ordering::Relaxed) == 0 {
                        link.detach(|| {
                            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
                            std::thread::yield_now();
                            inside.fetch_sub(1, Ordering::SeqCst);
                            done.fetch_add(1, Ordering::SeqCst);
                            0
                        });
                        std::thread::yield_now();
                    }
                });
            }
            let mut detached = 0;
            for round in 0..rounds {
                assert!(link.step(Event::Attach) && link.step(Event::Request));
                if round % 2 == 0 {
                    while link.state() != State::Detached {
                        std::thread::yield_now();
                    }
                }
                let state = link.settle(Duration::from_secs(60));
                assert_eq!(inside.load(Ordering::SeqCst), 0, "nobody is inside once it is settled: {state:?}");
                detached += usize::from(state == State::Detached);
            }
            stop.store(1, Ordering::Relaxed);
            assert_eq!(done.load(Ordering::SeqCst), detached);
            assert!(detached >= rounds / 2);
        });
    }

    #[test]
    fn a_call_that_is_not_alone_is_not_known_to_be() {
        let link = Link::new();
        let none = CountedCall::NONE;
        assert_eq!(link.call_begins(none), none, "nothing was requested");
        assert!(link.attached() && link.request());
        assert!(!link.call_ends(none), "it began before the request");
        let one = link.call_begins(none);
        let two = link.call_begins(none);
        assert_eq!(link.call_begins(two), two, "a call inside a call is not counted");
        assert!(!link.call_ends(one) && link.call_ends(two) && !link.call_ends(two));
        // Another request: what still goes on since the one before says nothing.
        let old = link.call_begins(none);
        assert_eq!(link.settle(Duration::ZERO), State::Attached);
        assert!(link.request());
        let new = link.call_begins(none);
        assert!(!link.call_ends(old) && link.call_ends(new));
    }

    #[test]
    fn contexts_hold_it() {
        let link = Link::new();
        assert!(link.attached() && !link.is_held());
        let making = link.context_call_begins(CountedCall::NONE, false);
        assert!(link.is_held() && link.must_stay().is_none());
        link.context_call_ends(making);
        assert!(!link.is_held());
        let ending = link.context_call_begins(CountedCall::NONE, true);
        link.context_call_ends(ending);
        assert!(link.is_held());
        assert_eq!(link.must_stay(), Some(StayReason::EndsContexts), "the next one may come at any moment");
    }

    #[test]
    fn several_contexts_hold_it() {
        let link = Link::new();
        assert!(link.attached());
        for number in [0, 7, 7, 0] {
            link.in_context(number);
        }
        assert!(!link.is_held() && link.must_stay().is_none(), "one context, and calls in none");
        assert!(link.request() && link.step(Event::Begin) && link.step(Event::End) && link.attached());
        link.in_context(8);
        assert!(link.must_stay().is_none(), "the same one, which CUPTI calls otherwise now");
        link.in_context(7);
        assert!(link.is_held());
        assert_eq!(link.must_stay(), Some(StayReason::SeveralContexts), "one may wait for the other at any moment");
    }

    #[test]
    fn copies_are_turned_between_two_of_them() {
        let link = Link::new();
        assert!(link.attached() && !link.wait_for_call(Duration::ZERO));
        link.calls();
        assert!(link.wait_for_call(Duration::ZERO));
        let copy = link.copy_begins(CountedCall::NONE);
        let inner = link.copy_begins(copy);
        assert_eq!((link.copies_under_way(), inner), (1, copy), "one inside the other");
        assert!(link.is_held() && link.between_copies(Duration::from_millis(1), || ()).is_none());
        link.copy_ends(copy);
        let began = std::thread::scope(|scope| {
            link.between_copies(Duration::ZERO, || {
                let waiting = scope.spawn(|| link.copy_begins(CountedCall::NONE));
                std::thread::sleep(Duration::from_millis(2));
                assert_eq!(link.copies.count(), 0, "it waits");
                waiting
            })
            .expect("no copy goes on")
            .join()
            .expect("a thread")
        });
        assert_eq!((began, link.copies_under_way()), (copy, 1));
        link.copy_ends(began);
        assert!(!link.is_held());
    }

    #[test]
    fn waiting_has_a_limit() {
        let link = Link::new();
        link.step(Event::Attach);
        link.step(Event::Request);
        link.step(Event::Begin);
        assert_eq!(link.settle(Duration::from_millis(2)), State::Detaching);
    }
}
