//! The hot path: what one thread keeps, and what happens on it at enter and exit.
//!
//! No allocation once a thread's state exists, no lock but the thread's own `RefCell`, no system call, no panic.

use super::cache::{Meta, MetaCache, meta_flag};
use crate::annotate::Annotation;
use crate::clock::Ticks;
use crate::names;
use crate::raw::{NO_PHASE, NO_STEP, Raw, RawInterval, flag};
use crate::shared::{NewThread, Shared, ThreadCounts};
use crate::tap::TapInterval;
use crate::vocabulary::Phase;
use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

/// Nested intervals supported; deeper ones are counted and left out.
const MAX_DEPTH: usize = 256;

/// Ring slots that only steps may use, so that a flood of layers does not lose the step they belong to.
const RESERVED_FOR_STEPS: usize = 64;

/// A step with more intervals than this is resolved in parts, so that memory stays bounded when a program wraps its whole
/// run in one span.
const SPLIT_AFTER: u32 = 65_536;

thread_local! {
    /// One state for each live session whose layer this thread meets; nearly always one.
    static STATES: RefCell<Vec<ThreadState>> = const { RefCell::new(Vec::new()) };
    /// Set on the profiler's own threads.
    static MUTED: Cell<bool> = const { Cell::new(false) };
}

/// Keeps spans of the calling thread out of every session: for the profiler's own threads.
pub(crate) fn mute_this_thread() {
    MUTED.with(|m| m.set(true));
}

/// Runs `f` on this thread's state for the session, making it first if need be. `None` while the thread is being torn down
/// or when called from within itself.
#[inline]
pub(crate) fn with_state<R>(shared: &Arc<Shared>, f: impl FnOnce(&mut ThreadState) -> R) -> Option<R> {
    STATES
        .try_with(|states| {
            let mut states = states.try_borrow_mut().ok()?;
            if let Some(first) = states.first_mut()
                && first.session == shared.session
            {
                return Some(f(first));
            }
            Some(f(find_or_register(&mut states, shared)))
        })
        .ok()
        .flatten()
}

#[cold]
fn find_or_register<'a>(states: &'a mut Vec<ThreadState>, shared: &Arc<Shared>) -> &'a mut ThreadState {
    // States of sessions that ended go away here.
    states.retain(|s| s.session == shared.session || !s.abandoned());
    let at = match states.iter().position(|s| s.session == shared.session) {
        Some(at) => at,
        None => {
            states.push(ThreadState::register(shared));
            states.len() - 1
        }
    };
    states.swap(0, at);
    &mut states[0]
}

/// See [`crate::annotate`].
#[inline]
pub(crate) fn annotate_current(annotation: &Annotation) {
    let _ = STATES.try_with(|states| {
        if let Ok(mut states) = states.try_borrow_mut() {
            for state in states.iter_mut() {
                state.annotate(annotation);
            }
        }
    });
}

/// See [`crate::is_recording`].
#[inline]
pub(crate) fn is_recording() -> bool {
    STATES
        .try_with(|states| states.try_borrow().is_ok_and(|s| s.iter().any(|s| s.top_recorded().is_some())))
        .unwrap_or(false)
}

/// One open interval.
#[derive(Debug, Clone, Copy)]
struct Frame {
    span: u64,
    start: Ticks,
    /// Own `seq`; for frames that are not recorded or transparent, the one their children take as parent.
    seq: u64,
    parent: u64,
    step: u64,
    name: u32,
    request: u32,
    phase: u8,
    flags: u8,
    recorded: bool,
    /// Of an excluded target: children see through it.
    transparent: bool,
    annotated: bool,
    has_fields: bool,
}

/// What one thread keeps for one session.
pub(crate) struct ThreadState {
    session: u64,
    muted: bool,
    pub(crate) cache: MetaCache,
    stack: Vec<Frame>,
    annotations: Vec<Annotation>,
    /// Enters beyond [`MAX_DEPTH`] that have not been left yet.
    overflow: u32,
    next_seq: u64,
    /// Intervals of the current step written since it began or was last split.
    since_split: u32,
    emitted: u64,
    ring: rtrb::Producer<Raw>,
    counts: Arc<ThreadCounts>,
}

impl ThreadState {
    fn register(shared: &Arc<Shared>) -> Self {
        let (state, new) = Self::detached(shared);
        if !state.muted {
            shared.new_threads.lock().unwrap_or_else(PoisonError::into_inner).push(new);
        }
        state
    }

    /// A state that no drain knows of: for measuring the hot path's own cost.
    pub(crate) fn detached(shared: &Arc<Shared>) -> (Self, NewThread) {
        let muted = MUTED.with(Cell::get);
        let index = shared.next_thread();
        let (ring, consumer) = rtrb::RingBuffer::new(if muted { 1 } else { shared.ring_capacity });
        let counts = Arc::new(ThreadCounts::default());
        let state = Self {
            session: shared.session,
            muted,
            cache: MetaCache::new(),
            stack: Vec::with_capacity(MAX_DEPTH),
            annotations: vec![Annotation::new(); MAX_DEPTH],
            overflow: 0,
            next_seq: Shared::first_seq(index),
            since_split: 0,
            emitted: 0,
            ring,
            counts: counts.clone(),
        };
        let info = Arc::new(names::current_thread(index));
        (state, NewThread { info, ring: consumer, counts })
    }

    /// Enters and leaves `n` intervals inside one step: what [`crate::Handle::per_interval_ns`] is measured with.
    pub(crate) fn rehearse(&mut self, shared: &Shared, n: u32) {
        let meta = Meta::OTHER;
        self.enter(shared, 1, meta);
        for _ in 0..n {
            self.enter(shared, 2, meta);
            let now = shared.ticks.now();
            self.exit(shared, 2, now, || None);
        }
        let now = shared.ticks.now();
        self.exit(shared, 1, now, || None);
    }

    fn abandoned(&self) -> bool {
        self.ring.is_abandoned()
    }

    fn top_recorded(&self) -> Option<usize> {
        let at = self.stack.iter().rposition(|f| !f.transparent)?;
        self.stack[at].recorded.then_some(at)
    }

    #[inline]
    fn annotate(&mut self, annotation: &Annotation) {
        if let Some(at) = self.top_recorded() {
            let frame = &mut self.stack[at];
            if frame.annotated {
                self.annotations[at].merge(annotation);
            } else {
                frame.annotated = true;
                self.annotations[at] = *annotation;
            }
        }
    }

    /// A span was entered. The clock is read last, so that what happens here does not count as the span's time.
    #[inline]
    pub(crate) fn enter(&mut self, shared: &Shared, span: u64, meta: Meta) {
        if self.muted {
            return;
        }
        if self.stack.len() >= MAX_DEPTH {
            self.overflow += 1;
            return;
        }
        let mut frame = Frame {
            span,
            start: Ticks(0),
            seq: 0,
            parent: 0,
            step: NO_STEP,
            name: meta.name,
            request: 0,
            phase: NO_PHASE,
            flags: 0,
            recorded: false,
            transparent: meta.flags & meta_flag::IGNORED != 0,
            annotated: false,
            has_fields: meta.flags & meta_flag::FIELDS != 0,
        };
        let mut opens_step = true;
        if let Some(parent) = self.stack.last() {
            frame.parent = parent.seq;
            frame.request = parent.request;
            frame.phase = parent.phase;
            if parent.step != NO_STEP && (meta.phase == NO_PHASE || parent.phase != NO_PHASE) {
                opens_step = false;
                frame.step = parent.step;
                frame.recorded = parent.recorded;
            }
        }
        if meta.phase != NO_PHASE {
            frame.phase = meta.phase;
        }
        if frame.transparent {
            frame.seq = frame.parent;
            self.stack.push(frame);
            return;
        }
        if meta.flags & meta_flag::REQUEST != 0 {
            frame.request = meta.request;
            frame.step = NO_STEP;
            frame.phase = NO_PHASE;
            frame.recorded = shared.control.recording();
        } else if opens_step {
            let decision = shared.control.begin_step();
            frame.step = decision.number;
            frame.recorded = decision.record;
            frame.flags = flag::STEP_ROOT;
            self.since_split = 0;
        }
        if frame.recorded {
            self.next_seq += 1;
            frame.seq = self.next_seq;
            if !shared.taps.is_empty() {
                self.tap(shared, &frame, true);
            }
            frame.start = shared.ticks.now();
        } else {
            frame.seq = 0;
        }
        self.stack.push(frame);
    }

    /// A span was left at `now`, which the caller read first. `fields` gives the values of the span's fields, if it has any.
    #[inline]
    pub(crate) fn exit(&mut self, shared: &Shared, span: u64, now: Ticks, fields: impl FnOnce() -> Option<Annotation>) {
        if self.muted {
            return;
        }
        if self.overflow > 0 {
            // Spans are left in reverse order in all but odd code, so the ones too deep to be kept go first.
            self.overflow -= 1;
            if self.stack.last().is_some_and(|f| f.recorded) {
                self.count_emitted();
                add(&self.counts.too_deep);
            }
            return;
        }
        let (frame, depth) = match self.stack.last() {
            Some(top) if top.span == span => {
                let at = self.stack.len() - 1;
                let frame = *top;
                self.stack.truncate(at);
                (frame, at)
            }
            _ => match self.remove_out_of_order(span) {
                Some(found) => found,
                None => return,
            },
        };
        if !frame.recorded || frame.transparent {
            return;
        }
        // Where the frame stood before it was taken off, also for those taken out of the middle.
        let mut annotation = frame.annotated.then(|| self.annotations[self.stack.len()]);
        if frame.has_fields
            && let Some(from_fields) = fields()
        {
            match &mut annotation {
                Some(a) => a.merge(&from_fields),
                None => annotation = Some(from_fields),
            }
        }
        if !shared.taps.is_empty() {
            self.tap(shared, &frame, false);
        }
        let raw = RawInterval {
            start: frame.start,
            end: now,
            seq: frame.seq,
            parent: frame.parent,
            step: frame.step,
            name: frame.name,
            request: frame.request,
            depth: depth as u16,
            phase: frame.phase,
            flags: frame.flags,
        };
        self.write(raw, annotation);
    }

    /// Spans left in another order than the reverse one: the frame comes out of the middle of the stack.
    #[cold]
    fn remove_out_of_order(&mut self, span: u64) -> Option<(Frame, usize)> {
        let Some(at) = self.stack.iter().rposition(|f| f.span == span) else {
            add(&self.counts.unmatched);
            return None;
        };
        let frame = self.stack.remove(at);
        // Annotations move down with their frames; the removed one's is kept where `exit` looks for it.
        let removed = self.annotations[at];
        self.annotations.copy_within(at + 1..=self.stack.len(), at);
        self.annotations[self.stack.len()] = removed;
        if frame.flags & flag::STEP_ROOT != 0 {
            for later in self.stack[at..].iter_mut().filter(|f| f.step == frame.step) {
                later.flags |= flag::DETACHED;
            }
        }
        Some((frame, at))
    }

    #[inline]
    fn write(&mut self, raw: RawInterval, annotation: Option<Annotation>) {
        let is_root = raw.flags & flag::STEP_ROOT != 0;
        let needed = 1 + usize::from(annotation.is_some()) + if is_root { 0 } else { RESERVED_FOR_STEPS };
        if self.room_for(needed) {
            if let Some(annotation) = annotation {
                let _ = self.ring.push(Raw::Annotation(annotation));
            }
            let _ = self.ring.push(Raw::Interval(raw));
        } else {
            // Overload policy: the newest record goes, because what is in the ring may already be half read.
            add(&self.counts.ring_full);
        }
        self.count_emitted();
        self.since_split += 1;
        if self.since_split >= SPLIT_AFTER {
            self.announce_open();
        }
    }

    #[inline]
    fn room_for(&self, n: usize) -> bool {
        self.ring.cached_slots() >= n || self.ring.slots() >= n
    }

    #[inline]
    fn count_emitted(&mut self) {
        self.emitted += 1;
        // Release: whoever reads this count also finds the records behind it in the ring.
        self.counts.emitted.store(self.emitted, std::sync::atomic::Ordering::Release);
        self.counts.open.store(self.stack.len() as u64, Relaxed);
    }

    /// Tells the drain which intervals are open, so that it can place what it has buffered so far.
    #[cold]
    fn announce_open(&mut self) {
        self.since_split = 0;
        let Some(step) = self.stack.iter().rev().find(|f| f.recorded).map(|f| f.step) else {
            return;
        };
        let open = || self.stack.iter().enumerate().filter(|(_, f)| f.recorded && !f.transparent && f.step == step);
        let n = open().count();
        if n == 0 || !self.room_for(n) {
            return;
        }
        for (i, (depth, frame)) in open().enumerate() {
            let last = if i + 1 == n { flag::LAST_OPEN } else { 0 };
            let raw = RawInterval {
                start: frame.start,
                end: frame.start,
                seq: frame.seq,
                parent: frame.parent,
                step: frame.step,
                name: frame.name,
                request: frame.request,
                depth: depth as u16,
                phase: frame.phase,
                flags: frame.flags | last,
            };
            let _ = self.ring.push(Raw::Open(raw));
        }
    }

    #[cold]
    fn tap(&self, shared: &Shared, frame: &Frame, enter: bool) {
        let interval = TapInterval {
            name: frame.name,
            span_id: shared.span_id(frame.seq),
            phase: Phase::from_index(frame.phase),
            is_step: frame.flags & flag::STEP_ROOT != 0,
            depth: self.stack.len() as u16,
        };
        for tap in &shared.taps {
            if enter { tap.enter(interval) } else { tap.exit(interval) }
        }
    }
}

/// Adds one to a counter that only this thread writes.
#[inline]
fn add(counter: &std::sync::atomic::AtomicU64) {
    counter.store(counter.load(Relaxed) + 1, Relaxed);
}
