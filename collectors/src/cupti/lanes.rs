//! What application threads leave for the recorder when calls are followed by callbacks: one bounded ring per thread.
//!
//! The thread's open intervals and its ring are in one thread-local. A callback runs on the thread that makes the call,
//! between two changes of that stack, so the top of the stack is the launching interval.

use super::calls::Domain;
use super::in_flight::{CountedCall, NestedCalls};
use candlescope_core::SpanId;
use candlescope_core::gpu::{GraphNode, OUTSIDE_WINDOW};
use quanta::Clock;
use rtrb::{Consumer, Producer, RingBuffer};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A call as its callbacks saw it. Times are raw readings of [`clock`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Launch {
    pub(super) correlation: u32,
    pub(super) cbid: u32,
    pub(super) domain: Domain,
    /// Zero outside all intervals.
    pub(super) span: u64,
    /// Zero if the beginning was not seen.
    pub(super) start: u64,
    pub(super) end: u64,
}

/// An interval that a thread is inside.
#[derive(Debug, Clone, Copy)]
struct OpenSpan {
    span: u64,
    /// Whether its step is in no window, so that what it launches is not its own.
    outside_window: bool,
}

/// One thread's stack of intervals and its end of the ring.
struct Lane {
    open: Vec<OpenSpan>,
    ring: Option<Producer<Launch>>,
    /// When it made a node of a graph last, by [`clock`].
    made_node: u64,
}

thread_local! {
    /// The followed call that this thread is inside.
    static INSIDE: Cell<CountedCall> = const { Cell::new(CountedCall::NONE) };
    /// The call on contexts and the copy that it is inside.
    static NESTED: [Cell<NestedCalls>; 2] = const { [const { Cell::new(NestedCalls::NONE) }; 2] };
    static LANE: RefCell<Lane> = const { RefCell::new(Lane { open: Vec::new(), ring: None, made_node: 0 }) };
}

/// The readers' ends of all threads' rings. Locked when a thread makes its first call, and by the recorder.
static RINGS: Mutex<Vec<Consumer<Launch>>> = Mutex::new(Vec::new());
static CAPACITY: AtomicUsize = AtomicUsize::new(0);
static LOST: AtomicU64 = AtomicU64::new(0);
/// When recording of calls began last, and when it ended, by [`clock`]: it goes on while the end is not before the
/// beginning.
static BEGAN: AtomicU64 = AtomicU64::new(u64::MAX);
static ENDED: AtomicU64 = AtomicU64::new(0);
/// When CUPTI was attached for the first time, by [`clock`].
static ATTACHED: AtomicU64 = AtomicU64::new(u64::MAX);
/// Nodes of graphs that were made, until the drain takes them. Locked where a graph is captured or made.
static NODES: Mutex<Vec<GraphNode>> = Mutex::new(Vec::new());
/// Nodes that wait at most.
///
/// Overload policy: those beyond are not kept, and what they run has the interval of the graph's launch.
const MOST_NODES: usize = 1 << 20;
static CLOCK: LazyLock<Clock> = LazyLock::new(Clock::new);

/// The clock of [`Launch`]. Making it takes a while the first time.
pub(super) fn clock() -> &'static Clock {
    &CLOCK
}

/// Exchanges what is known of the followed call that this thread is inside.
#[inline]
pub(super) fn inside(now: CountedCall) -> CountedCall {
    INSIDE.try_with(|call| call.replace(now)).unwrap_or(CountedCall::NONE)
}

/// The same for calls that make or end contexts, of which the driver makes some inside others.
pub(super) fn on_contexts(now: NestedCalls) -> NestedCalls {
    NESTED.try_with(|[call, _]| call.replace(now)).unwrap_or(NestedCalls::NONE)
}

/// The same for copies.
#[inline]
pub(super) fn copying(now: NestedCalls) -> NestedCalls {
    NESTED.try_with(|[_, copy]| copy.replace(now)).unwrap_or(NestedCalls::NONE)
}

/// How long CUPTI has to have been in the process before it is detached for the first time. By then it is known whether
/// other threads make and end contexts: those that were inside such a call before have left it.
const AT_FIRST: Duration = Duration::from_secs(1);

/// CUPTI has been attached; the first time counts.
pub(super) fn attached(now: u64) {
    let _ = ATTACHED.compare_exchange(u64::MAX, now, Ordering::Relaxed, Ordering::Relaxed);
}

/// Whether CUPTI was attached for the first time long enough ago.
pub(super) fn has_been_attached(now: u64) -> bool {
    let since = ATTACHED.load(Ordering::Relaxed);
    since <= now && u128::from(CLOCK.delta_as_nanos(since, now)) >= AT_FIRST.as_nanos()
}

/// Sets how many calls a thread's ring holds, for threads that have none yet, and forgets what an earlier recorder
/// left.
pub(super) fn configure(capacity: usize) {
    CAPACITY.store(capacity, Ordering::Relaxed);
    clock();
    drain(|_| {});
    lost();
}

/// Recording begins. A start time that a call stored before this moment is not valid.
pub(super) fn begin() {
    ENDED.store(u64::MAX, Ordering::Relaxed);
    BEGAN.store(clock().raw(), Ordering::Relaxed);
}

/// Recording ends: of calls, those that have begun before count.
pub(super) fn end() {
    ENDED.store(clock().raw(), Ordering::Relaxed);
}

/// The recording that goes on, by when it began.
#[inline]
pub(super) fn window() -> Option<u64> {
    is_recording().then(|| BEGAN.load(Ordering::Relaxed))
}

/// Whether calls that begin now are recorded.
#[inline]
pub(super) fn is_recording() -> bool {
    ENDED.load(Ordering::Relaxed) == u64::MAX
}

/// When a call that ends now began: zero if that is not known, `None` if the call is not recorded.
#[inline]
pub(super) fn recorded(start: Option<u64>, now: u64) -> Option<u64> {
    let (began, ended) = (BEGAN.load(Ordering::Relaxed), ENDED.load(Ordering::Relaxed));
    match start.filter(|start| (began..=now).contains(start)) {
        Some(start) => (start <= ended).then_some(start),
        None => (ended == u64::MAX).then_some(0),
    }
}

/// An interval begins on this thread. Does nothing in a thread that is ending.
#[inline]
pub(super) fn push(span: SpanId) {
    with_lane(|lane| lane.open.push(OpenSpan { span: span.0, outside_window: span == OUTSIDE_WINDOW }));
}

/// An interval of a step that is in no window begins on this thread.
#[inline]
pub(super) fn push_outside_window(span: SpanId) {
    with_lane(|lane| lane.open.push(OpenSpan { span: span.0, outside_window: true }));
}

/// A node of a graph was made by this thread.
#[cold]
pub(super) fn node_made(node: u64, original: Option<u64>) {
    let now = clock().raw();
    let innermost = |lane: &mut Lane| {
        lane.made_node = now;
        lane.open.last().map(|open| SpanId(open.span))
    };
    let open = with_lane(innermost).flatten();
    let mut nodes = NODES.lock().unwrap_or_else(PoisonError::into_inner);
    if nodes.len() < MOST_NODES {
        nodes.push(GraphNode { node, original, span: open.filter(|span| *span != OUTSIDE_WINDOW) });
    }
}

/// Moves the nodes made since this was last called to `into`.
pub(super) fn take_nodes(into: &mut Vec<GraphNode>) {
    let nodes = std::mem::take(&mut *NODES.lock().unwrap_or_else(PoisonError::into_inner));
    into.extend(nodes);
}

/// The innermost interval of this thread ends.
#[inline]
pub(super) fn pop() {
    with_lane(|lane| lane.open.pop());
}

/// Whether what this thread launches now has no interval, or one of a step in no window.
#[inline]
pub(super) fn is_outside() -> bool {
    with_lane(|lane| lane.open.last().is_none_or(|open| open.outside_window)).unwrap_or(false)
}

/// A call of this thread is over. Never waits; allocates for a thread's first call only. One that was captured into a
/// graph launched nothing, and is not kept: its record would be waited for.
///
/// Overload policy: a full ring drops the newest call and counts it, and what it launched is recorded without an
/// interval.
#[inline]
pub(super) fn launched(domain: Domain, cbid: u32, correlation: u32, start: u64, end: u64) {
    let kept = with_lane(|lane| {
        if start > 0 && lane.made_node >= start {
            return true;
        }
        let span = lane.open.last().map_or(0, |open| if open.outside_window { OUTSIDE_WINDOW.0 } else { open.span });
        let ring = lane.ring.get_or_insert_with(new_ring);
        ring.push(Launch { correlation, cbid, domain, span, start, end }).is_ok()
    });
    if kept != Some(true) {
        LOST.fetch_add(1, Ordering::Relaxed);
    }
}

#[cold]
fn new_ring() -> Producer<Launch> {
    let (producer, consumer) = RingBuffer::new(CAPACITY.load(Ordering::Relaxed).max(1));
    lock_rings().push(consumer);
    producer
}

/// `None` while a thread is ending, or in a recursive call, which does not happen.
#[inline]
fn with_lane<T>(act: impl FnOnce(&mut Lane) -> T) -> Option<T> {
    LANE.try_with(|lane| lane.try_borrow_mut().ok().map(|mut lane| act(&mut lane))).ok().flatten()
}

/// Hands on every call that is over, and drops the rings of ended threads. Called by one thread at a time, the
/// recorder's.
pub(super) fn drain(mut out: impl FnMut(Launch)) {
    // Read without the lock: a thread that makes its first call must not wait for the reader.
    let mut rings = std::mem::take(&mut *lock_rings());
    rings.retain_mut(|ring| {
        // Checked first, so that everything that a thread wrote before it ended is read below.
        let ended = ring.is_abandoned();
        // Only what is there now: a busy thread could keep this one reading for ever.
        for _ in 0..ring.slots() {
            match ring.pop() {
                Ok(launch) => out(launch),
                Err(_) => break,
            }
        }
        !ended
    });
    lock_rings().append(&mut rings);
}

fn lock_rings() -> MutexGuard<'static, Vec<Consumer<Launch>>> {
    RINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls that found their ring full since the last call of this function.
pub(super) fn lost() -> u64 {
    LOST.swap(0, Ordering::Relaxed)
}

/// As if CUPTI had been attached for the first time then.
#[cfg(test)]
pub(super) fn attached_at(at: u64) {
    ATTACHED.store(at, Ordering::Relaxed);
}

/// The rings belong to the process: one test at a time.
#[cfg(test)]
pub(super) fn tests_own() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_carry_the_innermost_interval_of_their_thread() {
        let _only = tests_own();
        configure(8);
        let launch = |correlation| launched(Domain::Driver, 307, correlation, 1, 2);
        std::thread::scope(|scope| {
            let nested = scope.spawn(|| {
                launch(100);
                push(SpanId(1));
                launch(101);
                push(SpanId(2));
                launch(102);
                pop();
                launch(103);
                pop();
                launch(104);
                pop();
                push_outside_window(SpanId(3));
                launch(105);
                pop();
                launch(106);
            });
            let busy = scope.spawn(|| {
                push(SpanId(9));
                (200..212).for_each(launch);
                pop();
            });
            // The end of a scope does not wait for the threads' destructors, in which their rings are dropped.
            [nested, busy].into_iter().for_each(|thread| thread.join().expect("a thread"));
        });
        let mut seen = Vec::new();
        drain(|launch| seen.push((launch.correlation, launch.span)));
        seen.sort_unstable();
        let mut expected = vec![(100, 0), (101, 1), (102, 2), (103, 1), (104, 0), (105, OUTSIDE_WINDOW.0), (106, 0)];
        expected.extend((200..208).map(|n| (n, 9)));
        assert_eq!(seen, expected);
        assert_eq!((lost(), lost()), (4, 0), "the ring holds eight");
        // The thread of a test before this one may still be ending.
        let until = std::time::Instant::now() + Duration::from_secs(10);
        while !lock_rings().is_empty() && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
            drain(|_| {});
        }
        assert!(lock_rings().is_empty(), "both threads are gone");

        launch(300);
        let mut seen = Vec::new();
        drain(|launch| seen.push(launch));
        assert_eq!(seen, [Launch { correlation: 300, cbid: 307, domain: Domain::Driver, span: 0, start: 1, end: 2 }]);
        assert_eq!(lock_rings().len(), 1, "this thread goes on");
        let (a, b) = (clock().raw(), clock().raw());
        assert!(a <= b);
    }

    #[test]
    fn nodes_carry_the_innermost_interval_in_a_window_or_not() {
        let _only = tests_own();
        take_nodes(&mut Vec::new());
        node_made(1, None);
        push(SpanId(7));
        node_made(2, None);
        push(OUTSIDE_WINDOW);
        node_made(3, Some(2));
        pop();
        pop();
        push_outside_window(SpanId(8));
        node_made(4, None);
        pop();
        let mut nodes = Vec::new();
        take_nodes(&mut nodes);
        let told: Vec<_> = nodes.iter().map(|n| (n.node, n.original, n.span.map(|s| s.0))).collect();
        assert_eq!(told, [(1, None, None), (2, None, Some(7)), (3, Some(2), None), (4, None, Some(8))]);
        take_nodes(&mut nodes);
        assert_eq!(nodes.len(), 4, "once");
    }

    #[test]
    fn calls_that_were_captured_are_not_waited_for() {
        let _only = tests_own();
        configure(8);
        let (before, after) =
            (clock().raw(), |correlation| launched(Domain::Driver, 307, correlation, clock().raw(), clock().raw()));
        node_made(1, None);
        launched(Domain::Driver, 307, 1, before, clock().raw());
        std::thread::sleep(Duration::from_micros(10));
        after(2);
        let mut seen = Vec::new();
        drain(|launch| seen.push(launch.correlation));
        assert_eq!(seen, [2], "the node of the call before is none of this one");
    }
}
