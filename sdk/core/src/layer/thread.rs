//! The hot path: the state of one thread, and what happens on it at enter and exit.
//!
//! No allocation once a thread's state exists, no lock but the thread's own `RefCell`, no system call, no panic.

mod aside;
pub(crate) mod outlived;
mod serving;

use super::cache::{Meta, MetaCache, meta_flag};
use super::frame::{Frame, Kind, Placement, left_out, place};
use super::marker::Marker;
use crate::annotation::Annotation;
use crate::clock::Ticks;
use crate::control::{StepDecision, StepFate};
use crate::gpu::OUTSIDE_WINDOW;
use crate::names;
use crate::raw::{NO_PHASE, NO_STEP, Raw, RawInterval, UnrecordedStep, flag};
use crate::shared::{NewThread, Shared, ThreadCounts};
use crate::tap::TapInterval;
use crate::vocabulary::Phase;
pub(crate) use serving::serve;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The deepest nesting of intervals that is supported; deeper ones are counted and left out.
const MAX_DEPTH: usize = 256;

/// Ring slots that only steps may use, so that many intervals inside a step do not crowd out the step itself.
const RESERVED_FOR_STEPS: usize = 64;

/// A step with more intervals than this is resolved in parts, so that memory stays bounded if a program puts one span
/// around its whole run.
const SPLIT_AFTER: u32 = 65_536;

thread_local! {
    /// One state for each live session whose layer was called on this thread; nearly always one.
    static STATES: RefCell<Vec<ThreadState>> = const { RefCell::new(Vec::new()) };
    /// Set on the profiler's own threads.
    static MUTED: Cell<bool> = const { Cell::new(false) };
}

/// Bytes that a thread's state takes in addition to its ring.
const STATE: u64 = (MAX_DEPTH * (size_of::<Frame>() + size_of::<Annotation>() + size_of::<u64>() + size_of::<u8>())
    + MetaCache::BYTES) as u64;

/// Keeps spans of the calling thread out of every session; for the profiler's own threads.
pub(crate) fn mute_this_thread() {
    MUTED.with(|m| m.set(true));
}

/// Runs `f` on this thread's state for the session, and makes the state first if there is none. `session` is the
/// session's number, or 0 if its layer has stepped back. `None` if the layer has stepped back, while the thread is
/// being torn down, or when called from within itself.
#[inline]
pub(crate) fn with_state<R>(session: u64, shared: &Arc<Shared>, f: impl FnOnce(&mut ThreadState) -> R) -> Option<R> {
    STATES
        .try_with(|states| {
            let mut states = states.try_borrow_mut().ok()?;
            if let Some(first) = states.first_mut()
                && first.session == session
            {
                return Some(f(first));
            }
            Some(f(find_or_register(&mut states, session, shared)?))
        })
        .ok()
        .flatten()
}

/// Puts what is known of a span into this thread's cache before the span is entered, if the thread has a state for the
/// session.
#[inline]
pub(crate) fn foresee(shared: &Arc<Shared>, span: u64, epoch: u32, meta: Meta) {
    let _ = STATES.try_with(|states| {
        if let Ok(mut states) = states.try_borrow_mut()
            && let Some(first) = states.first_mut()
            && first.session == shared.session
            && !first.is_aside()
        {
            first.cache.put(span, epoch, meta);
        }
    });
}

/// The request that this thread works for now; 0 for none.
#[inline]
pub(crate) fn current_request(shared: &Shared) -> u32 {
    let of = |states: &RefCell<Vec<ThreadState>>| {
        let states = states.try_borrow().ok()?;
        let state = states.iter().find(|s| s.session == shared.session)?;
        state.open().last().map(|frame| frame.request)
    };
    STATES.try_with(of).ok().flatten().unwrap_or(0)
}

#[cold]
fn find_or_register<'a>(
    states: &'a mut Vec<ThreadState>,
    session: u64,
    shared: &Arc<Shared>,
) -> Option<&'a mut ThreadState> {
    if session == 0 {
        return None;
    }
    // States of sessions that have ended are removed here.
    states.retain(|s| s.session == shared.session || !s.abandoned());
    let at = match states.iter().position(|s| s.session == shared.session) {
        Some(at) => at,
        None => {
            states.push(ThreadState::register(shared));
            states.len() - 1
        }
    };
    states.swap(0, at);
    states.first_mut()
}

/// See [`crate::annotate()`].
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

/// One thread's state for one session.
pub(crate) struct ThreadState {
    session: u64,
    /// Set if nothing is recorded on this thread; the fields below are empty then.
    aside: Option<Aside>,
    pub(crate) cache: MetaCache,
    /// The open intervals are the first `depth` of these. They are written and read field by field and in place: a
    /// frame copied through the stack is read back in wide loads before its narrow stores have completed, which costs
    /// more than everything else here except the clock.
    frames: Box<[Frame]>,
    depth: usize,
    /// `late_frames` is how many of them have outlived their step or request, `detached` how many of those are
    /// detached: detached ones are nobody's parents. The numbers are kept here, because looking at every frame would
    /// read what has just been written.
    late_frames: usize,
    detached: usize,
    /// One for each frame: whether its step or its request has ended before it; see [`outlived`]. 0 for unused frames.
    late: Box<[u8]>,
    /// One for each frame; valid if the frame says so.
    annotations: Box<[Annotation]>,
    /// One for each frame; used for steps: how many intervals had found the ring full when the step began, without
    /// those of steps inside it that have ended.
    lost_before: Box<[u64]>,
    /// Enters beyond [`MAX_DEPTH`] whose exits have not come yet.
    overflow: u32,
    next_seq: u64,
    /// Intervals of the current step written since it began or since its last part was announced.
    since_split: u32,
    emitted: u64,
    ring: rtrb::Producer<Raw>,
    counts: Arc<ThreadCounts>,
    gpu: Option<Box<Marker>>,
}

/// The state of a thread that records nothing.
#[derive(Debug, Clone, Copy)]
enum Aside {
    /// A thread of the profiler, or one that came after the session had ended, or in a forked child, where the session
    /// belongs to the parent.
    Muted,
    /// A thread that came when there was no room for a ring: what it would have recorded is counted. Each of its
    /// outermost intervals counts as a step.
    NoRing {
        depth: u32,
        /// Whether the step that is open would have been recorded.
        recorded: bool,
    },
}

impl ThreadState {
    fn register(shared: &Arc<Shared>) -> Self {
        let index = shared.next_thread();
        // A session that has ended takes nothing from threads that come later.
        let muted = MUTED.with(Cell::get) || shared.is_forked() || shared.control.is_closed();
        let room = if muted { None } else { shared.ring_room.take(shared.ring_capacity, STATE) };
        let aside = match room {
            _ if muted => Some(Aside::Muted),
            Some(_) => None,
            None => Some(Aside::NoRing { depth: 0, recorded: false }),
        };
        let (records, share) = room.map_or((0, None), |(records, share)| (records, Some(share)));
        let (ring, consumer) = rtrb::RingBuffer::new(records);
        let depth = if aside.is_none() { MAX_DEPTH } else { 0 };
        let counts = Arc::new(ThreadCounts::default());
        let state = Self {
            session: shared.session,
            aside,
            cache: if aside.is_none() { MetaCache::new() } else { MetaCache::none() },
            frames: vec![Frame::default(); depth].into_boxed_slice(),
            depth: 0,
            late_frames: 0,
            detached: 0,
            late: vec![0; depth].into_boxed_slice(),
            annotations: vec![Annotation::new(); depth].into_boxed_slice(),
            lost_before: vec![0; depth].into_boxed_slice(),
            overflow: 0,
            next_seq: Shared::first_seq(index),
            since_split: 0,
            emitted: 0,
            ring,
            counts: counts.clone(),
            gpu: shared.gpu.as_ref().filter(|_| aside.is_none()).map(|gpu| Box::new(Marker::new(gpu, index))),
        };
        if !muted {
            let info = Arc::new(names::current_thread(index));
            shared.announce_thread(NewThread { info, ring: consumer, counts, share });
        }
        state
    }

    /// Whether nothing is recorded on this thread: only [`enter_aside`](Self::enter_aside) and
    /// [`exit_aside`](Self::exit_aside) are to be called then.
    #[inline]
    pub(crate) fn is_aside(&self) -> bool {
        self.aside.is_some()
    }

    fn abandoned(&self) -> bool {
        self.ring.is_abandoned()
    }

    #[inline]
    fn open(&self) -> &[Frame] {
        &self.frames[..self.depth]
    }

    #[inline]
    fn top_recorded(&self) -> Option<usize> {
        let at = self.open().iter().rposition(|f| !f.transparent)?;
        self.frames[at].recorded.then_some(at)
    }

    #[inline]
    fn annotate(&mut self, annotation: &Annotation) {
        if let Some(at) = self.top_recorded() {
            let frame = &mut self.frames[at];
            if frame.annotated {
                self.annotations[at].merge(annotation);
            } else {
                frame.annotated = true;
                self.annotations[at] = *annotation;
            }
        }
    }

    /// A span was entered. The clock is read last, so that the time spent here is not counted as the span's.
    #[inline]
    pub(crate) fn enter(&mut self, shared: &Shared, span: u64, meta: Meta) {
        if self.depth >= MAX_DEPTH {
            self.overflow += 1;
            return;
        }
        // `usize::MAX` if there is none.
        let mut around = self.depth.wrapping_sub(1);
        if self.late_frames != 0 {
            around = self.around_among_late(shared, meta, around);
        }
        let mut placed = place(self.frames.get(around), meta);
        if placed.kind == Kind::Step && self.is_outside_phases(shared, meta) {
            placed.kind = Kind::Transparent;
        }
        let Placement { parent, request, mut step, phase, mut recorded, nested, .. } = placed;
        let at = self.depth;
        let (mut flags, mut left_out) = (0, 0);
        let (mut in_full, mut first_of_request) = (false, false);
        match placed.kind {
            // What is inside is inside the step around it, if there is one.
            Kind::Transparent if step == NO_STEP => flags = nested,
            Kind::Transparent | Kind::Part => {}
            Kind::Request => {
                flags = nested;
                recorded = shared.control.records_above_steps();
                if recorded {
                    shared.steps_of_requests.mark_recorded(request);
                }
            }
            Kind::Step => {
                let (decision, plain) = self.begin_step(shared, meta.name, nested != 0);
                (step, in_full, recorded) = (decision.number, decision.full, decision.fate.is_recorded());
                flags = flag::STEP_ROOT | nested;
                if decision.fate == StepFate::Captured {
                    flags |= flag::CAPTURED;
                }
                if decision.kernels {
                    flags |= flag::KERNELS | flag::WINDOW_ROOT;
                }
                if decision.fate != StepFate::Closed && !recorded {
                    left_out = left_out::TIMED;
                    left_out |= if plain { left_out::PLAIN } else { 0 };
                    left_out |= if decision.ends_row { left_out::ENDS_ROW } else { 0 };
                }
                first_of_request = request != 0 && shared.steps_of_requests.step(request, recorded, phase != NO_PHASE);
                self.since_split = 0;
                self.lost_before[at] = self.counts.ring_full.load(Relaxed);
            }
        }
        let transparent = placed.kind == Kind::Transparent;
        let writes = recorded && !transparent;
        self.next_seq += u64::from(writes);
        let seq = match (transparent, writes) {
            (true, _) => parent,
            (false, true) => self.next_seq,
            (false, false) => 0,
        };
        self.frames[at] = Frame {
            span,
            start: Ticks(0),
            seq,
            parent,
            step,
            name: meta.name,
            request,
            marks: [0; 2],
            phase,
            flags,
            gpu: 0,
            recorded,
            transparent,
            annotated: false,
            has_fields: meta.flags & meta_flag::FIELDS != 0,
            left_out,
        };
        self.depth = at + 1;
        if placed.kind == Kind::Step && !recorded {
            self.leave_out(shared, at);
        }
        if writes {
            self.counts.entered.store(self.next_seq, Relaxed);
            if shared.hooked {
                self.hooks_enter(shared, at, in_full);
            }
            self.frames[at].start = shared.ticks.now();
        }
        if first_of_request {
            let known = writes || left_out != 0;
            let start = if known { self.frames[at].start } else { shared.ticks.now() };
            shared.steps_of_requests.first_step(request, start, phase != NO_PHASE);
        }
    }

    /// Whether a span that would be a step is the application's own, such as that of a handler, in a program that marks
    /// the model's phases: then it is no step, and what is inside begins what it would have begun.
    #[inline]
    fn is_outside_phases(&self, shared: &Shared, meta: Meta) -> bool {
        let is_outside = meta.flags & meta_flag::APPLICATION != 0 && shared.phases_marked.load(Relaxed);
        if is_outside {
            if shared.outside_phases.load(Relaxed) == names::OTHER {
                shared.outside_phases.store(meta.name, Relaxed);
            }
            add(&self.counts.outside_phases);
        }
        is_outside
    }

    /// Called when a step of kind `name` begins. Returns what becomes of it, and whether it itself is left plain.
    #[inline]
    fn begin_step(&self, shared: &Shared, name: u32, nested: bool) -> (StepDecision, bool) {
        let own_kernels = shared.correlator.is_some() && !self.in_kernels();
        let mut plain = false;
        let decision = shared.control.begin_step(own_kernels, || {
            plain = !nested && shared.leaves_plain(name);
            // A step inside a plain one is part of it.
            plain || self.open().iter().any(|f| f.is_left_out(left_out::PLAIN))
        });
        self.count_step(decision.fate);
        (decision, plain)
    }

    #[inline]
    fn count_step(&self, fate: StepFate) {
        match fate {
            StepFate::Recorded | StepFate::Captured => add(&self.counts.steps_due),
            StepFate::ScheduledOut => add(&self.counts.steps_scheduled_out),
            StepFate::Plain => add(&self.counts.steps_plain),
            StepFate::Paused => add(&self.counts.steps_paused),
            StepFate::Closed => {}
        }
    }

    /// A span was left. The clock is read as soon as it is known to be needed, but not before, because reading it is
    /// the most expensive operation here. `fields` gives the values of the span's fields, if it has any.
    #[inline]
    pub(crate) fn exit(&mut self, shared: &Shared, span: u64, fields: impl FnOnce() -> Option<Annotation>) {
        if self.overflow > 0 {
            // Spans are nearly always left in reverse order, so those that were too deep are left first.
            self.overflow -= 1;
            if self.open().last().is_some_and(|f| f.recorded) {
                self.count_emitted();
                add(&self.counts.too_deep);
            }
            return;
        }
        let mut depth = match self.open().last() {
            Some(top) if top.span == span => self.depth - 1,
            _ => match self.bring_to_top(shared, span) {
                Some(depth) => depth,
                None => return,
            },
        };
        let at = self.depth - 1;
        self.depth = at;
        if self.late_frames != 0 {
            depth = self.exit_among_late(at, depth);
        }
        let Frame { recorded, transparent, mut annotated, has_fields, left_out, .. } = self.frames[at];
        if !recorded || transparent {
            if left_out != 0 {
                self.left_out(shared, at);
            }
            return;
        }
        let end = shared.ticks.now();
        if has_fields && let Some(from_fields) = fields() {
            if annotated {
                self.annotations[at].merge(&from_fields);
            } else {
                self.annotations[at] = from_fields;
                annotated = true;
            }
        }
        // For a detached interval this was done when it was detached.
        if shared.hooked && !self.frames[at].is_detached() {
            self.hooks_exit(shared, at, end);
        }
        self.write(at, depth, end, annotated);
    }

    /// Writes the frame at `at` as an interval of depth `depth`.
    #[inline]
    fn write(&mut self, at: usize, depth: usize, end: Ticks, annotated: bool) {
        let frame = &self.frames[at];
        let is_root = frame.is_step();
        let annotation = &self.annotations[at];
        let (work, counts) = (annotated && !annotation.work.is_empty(), annotated && !annotation.counts.is_empty());
        // All of an interval's records or none: a record that stands alone would be taken for one of the next interval.
        let needed = 1 + usize::from(work) + usize::from(counts) + if is_root { 0 } else { RESERVED_FOR_STEPS };
        if self.room_for(needed) {
            if work {
                let _ = self.ring.push(Raw::Work(self.annotations[at].work));
            }
            if counts {
                let _ = self.ring.push(Raw::Counts(self.annotations[at].counts));
            }
            let lost = if is_root { self.lost_in_step(at) } else { 0 };
            let frame = &self.frames[at];
            let _ = self.ring.push(Raw::Interval(RawInterval { lost, ..frame.to_raw(depth, end, 0) }));
            self.count_emitted();
        } else {
            // Overload policy: the newest record is dropped, because the drain may be reading those in the ring.
            self.count_emitted();
            add(&self.counts.ring_full);
            if is_root {
                add(&self.counts.steps_lost);
            }
        }
        self.since_split += 1;
        if self.since_split >= SPLIT_AFTER {
            self.announce_open();
        }
    }

    /// Number of intervals of the step at `at`, which ends, that found the ring full. A step around it does not count
    /// them again.
    #[inline]
    fn lost_in_step(&mut self, at: usize) -> u16 {
        let lost = self.counts.ring_full.load(Relaxed).saturating_sub(self.lost_before[at]);
        if lost > 0 && self.frames[at].flags & flag::NESTED_STEP != 0 {
            let around = self.frames[..at].iter().rposition(Frame::is_step);
            if let Some(around) = around {
                self.lost_before[around] += lost;
            }
        }
        u16::try_from(lost).unwrap_or(u16::MAX)
    }

    #[inline]
    fn room_for(&self, n: usize) -> bool {
        self.ring.cached_slots() >= n || self.ring.slots() >= n
    }

    #[inline]
    fn count_emitted(&mut self) {
        self.emitted += 1;
        // Release: whoever reads this count also finds the records written before it in the ring.
        self.counts.emitted.store(self.emitted, std::sync::atomic::Ordering::Release);
    }

    /// Announces to the drain which intervals are open, so that it can resolve what it has buffered so far.
    #[cold]
    fn announce_open(&mut self) {
        self.since_split = 0;
        let frames = &self.frames[..self.depth];
        let Some(step) = frames.iter().rev().find(|f| f.recorded && !f.is_detached()).map(|f| f.step) else {
            return;
        };
        let is_of_it = |f: &Frame| f.recorded && !f.transparent && !f.is_detached() && f.step == step;
        let open = || frames.iter().enumerate().filter(|(_, f)| is_of_it(f));
        let n = open().count();
        if n == 0 || !self.room_for(n) {
            return;
        }
        for (i, (depth, frame)) in open().enumerate() {
            let last = if i + 1 == n { flag::LAST_OPEN } else { 0 };
            let announced = RawInterval { open: true, ..frame.to_raw(depth, frame.start, last) };
            let _ = self.ring.push(Raw::Interval(announced));
        }
    }

    /// Called when a step begins that is not recorded.
    fn leave_out(&mut self, shared: &Shared, at: usize) {
        let frame = &mut self.frames[at];
        if let Some(correlator) = &shared.correlator {
            frame.left_out |= left_out::OUTSIDE_WINDOW;
            correlator.push(OUTSIDE_WINDOW);
        }
        // Last, as for a recorded step: a plain one is compared with those, and a request that the step serves has
        // waited until now.
        frame.start = shared.ticks.now();
    }

    /// Called when a step ends that was not recorded.
    fn left_out(&mut self, shared: &Shared, at: usize) {
        let Frame { left_out, start, step, name, request, phase, .. } = self.frames[at];
        let plain = left_out & left_out::PLAIN != 0;
        let beside = left_out & left_out::TIMED != 0
            && (left_out & left_out::ENDS_ROW != 0 || shared.control.recorded_since(step));
        if plain || beside {
            let end = shared.ticks.now();
            // Overload policy: a step that finds no room is not used for the comparison, and rates over the recorded
            // steps beside it are a little too high.
            if self.room_for(1 + if beside { 0 } else { RESERVED_FOR_STEPS }) {
                let unrecorded = UnrecordedStep { start, end, step, name, request, phase, plain, beside };
                let _ = self.ring.push(Raw::Unrecorded(unrecorded));
            }
        }
        let outside_window = left_out & left_out::OUTSIDE_WINDOW != 0;
        if let Some(correlator) = shared.correlator.as_ref().filter(|_| outside_window) {
            correlator.pop();
        }
    }

    /// Whether the kernels of the innermost interval are recorded.
    fn in_kernels(&self) -> bool {
        let around = self.open().iter().rev().find(|f| !f.transparent && !f.is_detached());
        around.is_some_and(|f| f.flags & flag::KERNELS != 0)
    }

    /// Everything else that happens when an interval begins. The GPU's mark comes last, closest to the work.
    #[inline(never)]
    fn hooks_enter(&mut self, shared: &Shared, at: usize, in_full: bool) {
        if !shared.taps.is_empty() {
            self.tap(shared, at, true);
        }
        let (around, own) = self.frames.split_at_mut(at);
        let frame = &mut own[0];
        let parent = around.iter().rev().find(|f| !f.transparent && !f.is_detached());
        if let Some(correlator) = &shared.correlator {
            frame.flags |= parent.map_or(0, |p| p.flags & flag::KERNELS);
            if frame.flags & flag::KERNELS != 0 {
                correlator.push(shared.span_id(frame.seq));
            } else if frame.is_step() {
                frame.left_out |= left_out::OUTSIDE_WINDOW;
                correlator.push(OUTSIDE_WINDOW);
            }
        }
        if let (Some(gpu), Some(thread)) = (&shared.gpu, &mut self.gpu) {
            thread.enter(gpu, &shared.ticks, frame, parent, in_full);
        }
    }

    /// Everything else that happens when an interval ends. The GPU's mark comes first, closest to the work.
    #[inline(never)]
    fn hooks_exit(&mut self, shared: &Shared, at: usize, end: Ticks) {
        let frame = &mut self.frames[at];
        if let (Some(gpu), Some(thread)) = (&shared.gpu, &mut self.gpu) {
            thread.exit(gpu, &shared.ticks, frame, end);
        }
        if let Some(correlator) = &shared.correlator
            && (frame.flags & flag::KERNELS != 0 || frame.is_left_out(left_out::OUTSIDE_WINDOW))
        {
            correlator.pop();
        }
        if !shared.taps.is_empty() {
            self.tap(shared, at, false);
        }
    }

    fn tap(&self, shared: &Shared, at: usize, enter: bool) {
        let frame = &self.frames[at];
        let interval = TapInterval {
            name: frame.name,
            span_id: shared.span_id(frame.seq),
            phase: Phase::from_index(frame.phase),
            is_step: frame.is_step(),
            depth: at as u16,
        };
        for tap in &shared.taps {
            tap.call(&shared.notices, |tap| if enter { tap.enter(interval) } else { tap.exit(interval) });
        }
    }
}

/// Adds one to a counter that only this thread writes.
#[inline]
fn add(counter: &std::sync::atomic::AtomicU64) {
    // Release: whoever reads this count also finds everything counted before it, such as the interval that is lost
    // here.
    counter.store(counter.load(Relaxed) + 1, std::sync::atomic::Ordering::Release);
}
