//! A scripted driver: a device whose work takes exactly the configured time, and whose `f32` milliseconds round like
//! the real driver's.

use crate::cuda::driver_calls::{CaptureMode, Context, Driver, Event, Fault, Kernel, StreamId};
use candlescope_core::HostNs;
use std::collections::{HashMap, HashSet, VecDeque};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard};

/// What a call costs on the host's clock, nanoseconds.
pub(in crate::cuda) const RECORD_NS: i64 = 1_500;
pub(in crate::cuda) const QUERY_NS: i64 = 1_600;
const READ_NS: i64 = 30;
/// When a stream is stuck.
const NEVER: i64 = i64::MAX;

struct Recorded {
    context: Context,
    /// Stream, and whether it is the poller's own.
    stream: Option<(StreamId, bool)>,
    /// On the host's clock.
    passed: i64,
    captured: bool,
}

pub(in crate::cuda) struct State {
    pub(in crate::cuda) now: i64,
    current: Option<Context>,
    stack: Vec<Context>,
    ordinals: HashMap<Context, usize>,
    destroyed: HashSet<Context>,
    events: HashMap<Event, Recorded>,
    /// When a stream's work is done; by context, stream and whether it is the poller's own.
    tails: HashMap<(Context, StreamId, bool), i64>,
    pub(in crate::cuda) capturing: HashSet<StreamId>,
    /// Records become part of a graph although the stream did not say it captures: it began in between.
    pub(in crate::cuda) captures_secretly: bool,
    pub(in crate::cuda) refuse_record: Option<Fault>,
    /// Time that the next records of the poller's own take besides, because the driver is held up.
    pub(in crate::cuda) held_up: VecDeque<i64>,
    pub(in crate::cuda) refuse_create: Option<Fault>,
    /// How often the kernel that waits was loaded; and whether it cannot be.
    pub(in crate::cuda) loaded: u64,
    pub(in crate::cuda) refuse_load: bool,
    pub(in crate::cuda) mode: Option<CaptureMode>,
    /// Queries made outside relaxed mode: each would have broken a capture.
    pub(in crate::cuda) breaches: u64,
    pub(in crate::cuda) queries: u64,
    pub(in crate::cuda) retained: HashMap<usize, i64>,
    next: usize,
    pub(in crate::cuda) made: usize,
    pub(in crate::cuda) ended: usize,
}

/// Clones are the same device.
#[derive(Clone)]
pub(in crate::cuda) struct Fake(Arc<Mutex<State>>);

pub(in crate::cuda) fn context(n: usize) -> Context {
    Context(NonZeroUsize::new(0x1000 + n).expect("not zero"))
}

impl Fake {
    /// Contexts `context(0)`, `context(1)`, … on the devices with these ordinals; the first is current.
    pub(in crate::cuda) fn new(ordinals: &[usize]) -> Self {
        Fake(Arc::new(Mutex::new(State {
            now: 1_000_000_000_000,
            current: Some(context(0)),
            stack: Vec::new(),
            ordinals: ordinals.iter().enumerate().map(|(n, o)| (context(n), *o)).collect(),
            destroyed: HashSet::new(),
            events: HashMap::new(),
            tails: HashMap::new(),
            capturing: HashSet::new(),
            captures_secretly: false,
            refuse_record: None,
            held_up: VecDeque::new(),
            refuse_create: None,
            loaded: 0,
            refuse_load: false,
            mode: Some(CaptureMode::Global),
            breaches: 0,
            queries: 0,
            retained: HashMap::new(),
            next: 0,
            made: 0,
            ended: 0,
        })))
    }

    pub(in crate::cuda) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panics while it holds this")
    }

    /// Reads the host's clock.
    pub(in crate::cuda) fn host(&self) -> HostNs {
        let mut state = self.state();
        state.now += READ_NS;
        HostNs(state.now)
    }

    pub(in crate::cuda) fn pass_ns(&self, ns: i64) {
        self.state().now += ns;
    }

    pub(in crate::cuda) fn make_current(&self, context: Option<Context>) {
        self.state().current = context;
    }

    /// Launches work of `ns` into the application's stream.
    pub(in crate::cuda) fn work(&self, context: Context, stream: StreamId, ns: i64) {
        self.work_in(context, stream, false, ns);
    }

    /// Work in front of the poller's own stream.
    pub(in crate::cuda) fn work_before_anchors(&self, context: Context, ns: i64) {
        self.work_in(context, StreamId::PER_THREAD, true, ns);
    }

    fn work_in(&self, context: Context, stream: StreamId, own: bool, ns: i64) {
        let mut state = self.state();
        let now = state.now;
        let tail = state.tails.entry((context, stream, own)).or_insert(0);
        *tail = (*tail).max(now).saturating_add(ns);
    }

    /// The application's stream hangs from now on.
    pub(in crate::cuda) fn hang(&self, context: Context, stream: StreamId) {
        self.state().tails.insert((context, stream, false), NEVER);
    }

    pub(in crate::cuda) fn destroy_context(&self, context: Context) {
        self.state().destroyed.insert(context);
    }

    fn check(state: &State, event: Event) -> Result<(), Fault> {
        let recorded = state.events.get(&event).ok_or(Fault(400))?;
        assert!(!state.destroyed.contains(&recorded.context), "asked about an event of a context that is gone");
        if recorded.captured { Err(Fault(907)) } else { Ok(()) }
    }
}

impl Driver for Fake {
    fn current(&self) -> Option<Context> {
        self.state().current
    }

    fn capturing(&self, stream: StreamId) -> Result<bool, Fault> {
        let state = self.state();
        if stream == StreamId(0) && !state.capturing.is_empty() {
            return Err(Fault(906));
        }
        Ok(state.capturing.contains(&stream))
    }

    fn record(&self, event: Event, stream: StreamId) -> Result<(), Fault> {
        let mut guard = self.state();
        let state = &mut *guard;
        if let Some(fault) = state.refuse_record {
            return Err(fault);
        }
        state.now += RECORD_NS;
        let own = !state.stack.is_empty();
        if own {
            // Before the event is in the stream: its time lies at the end of the wait.
            state.now += state.held_up.pop_front().unwrap_or(0);
        }
        let current = state.stack.last().copied().or(state.current).ok_or(Fault(201))?;
        let now = state.now;
        let tail = state.tails.entry((current, stream, own)).or_insert(0);
        let passed = (*tail).max(now);
        let secretly = state.captures_secretly && !own;
        let recorded = state.events.get_mut(&event).ok_or(Fault(400))?;
        assert_eq!(recorded.context, current, "an event is recorded in its own context");
        *recorded = Recorded { context: current, stream: Some((stream, own)), passed, captured: secretly };
        Ok(())
    }

    fn load_wait(&self) -> Result<Kernel, Fault> {
        let mut state = self.state();
        if state.mode != Some(CaptureMode::Relaxed) {
            state.breaches += 1;
        }
        state.loaded += 1;
        if state.refuse_load { Err(Fault(300)) } else { Ok(Kernel(NonZeroUsize::MIN)) }
    }

    fn launch_wait(&self, _: Kernel, stream: StreamId, ns: u64) -> Result<(), Fault> {
        let context = self.state().current.ok_or(Fault(201))?;
        self.work(context, stream, i64::try_from(ns).expect("short"));
        Ok(())
    }

    fn query(&self, event: Event) -> Result<bool, Fault> {
        let mut state = self.state();
        state.now += QUERY_NS;
        state.queries += 1;
        if state.mode != Some(CaptureMode::Relaxed) {
            state.breaches += 1;
        }
        Self::check(&state, event)?;
        let recorded = &state.events[&event];
        assert!(recorded.stream.is_some(), "an event is asked about before it is recorded");
        Ok(recorded.passed <= state.now)
    }

    fn elapsed_ms(&self, from: Event, to: Event) -> Result<Option<f32>, Fault> {
        let state = self.state();
        Self::check(&state, from)?;
        Self::check(&state, to)?;
        let (from, to) = (&state.events[&from], &state.events[&to]);
        assert_eq!(from.context, to.context, "times are taken within one context");
        if from.passed > state.now || to.passed > state.now {
            return Ok(None);
        }
        Ok(Some(((to.passed - from.passed) as f64 / 1e6) as f32))
    }

    fn create(&self) -> Result<Event, Fault> {
        let mut guard = self.state();
        let state = &mut *guard;
        if let Some(fault) = state.refuse_create {
            return Err(fault);
        }
        let context = state.stack.last().copied().or(state.current).ok_or(Fault(201))?;
        state.next += 1;
        state.made += 1;
        let event = Event(NonZeroUsize::new(state.next).ok_or(Fault(999))?);
        state.events.insert(event, Recorded { context, stream: None, passed: NEVER, captured: false });
        Ok(event)
    }

    fn destroy(&self, event: Event) {
        let mut state = self.state();
        let gone = state.events.remove(&event).expect("an event is ended once");
        assert!(!state.destroyed.contains(&gone.context), "ended an event of a context that is gone");
        state.ended += 1;
    }

    fn enter(&self, context: Context) -> Result<(), Fault> {
        let mut state = self.state();
        if state.destroyed.contains(&context) {
            return Err(Fault(709));
        }
        state.stack.push(context);
        Ok(())
    }

    fn leave(&self) {
        self.state().stack.pop().expect("left what was entered");
    }

    fn capture_mode(&self, mode: CaptureMode) -> CaptureMode {
        self.state().mode.replace(mode).expect("a mode")
    }

    fn ordinal(&self) -> Result<usize, Fault> {
        let state = self.state();
        let current = state.stack.last().copied().or(state.current).ok_or(Fault(201))?;
        state.ordinals.get(&current).copied().ok_or(Fault(201))
    }

    fn retain(&self, ordinal: usize, _: Context) -> bool {
        *self.state().retained.entry(ordinal).or_insert(0) += 1;
        true
    }

    fn release(&self, ordinal: usize) {
        *self.state().retained.entry(ordinal).or_insert(0) -= 1;
    }

    fn primary_active(&self, ordinal: usize) -> bool {
        let state = self.state();
        state.ordinals.iter().any(|(context, of)| *of == ordinal && !state.destroyed.contains(context))
    }
}
