//! The hot path: the state of one thread, and what happens on it at enter and exit.
//!
//! No allocation once a thread's state exists, no lock but the thread's own `RefCell`, no system call, no panic.

mod aside;
mod beside;
mod hooks;
pub(crate) mod outlived;
mod perturbed;
mod serving;
mod states;
mod writing;

use super::cache::{Meta, MetaCache, meta_flag};
use super::frame::{Frame, Kind, Placement, left_out, place};
use super::marker::Marker;
use crate::annotation::Annotation;
use crate::clock::Ticks;
use crate::control::{StepDecision, StepFate};
use crate::gpu::OUTSIDE_WINDOW;
use crate::names;
use crate::perturb::OnThread;
use crate::raw::{NO_PHASE, NO_STEP, Raw, UnrecordedStep, flag};
use crate::record::SEQ_BITS;
use crate::shared::{SessionState, ThreadCounts};
pub(super) use serving::RequestHandle;
pub(crate) use states::{annotate_current, current_request, foresee, is_recording, mute_this_thread, with_state};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The deepest nesting of intervals that is supported; deeper ones are counted and left out.
const MAX_DEPTH: usize = 256;

/// Ring slots that only steps may use, so that many intervals inside a step do not crowd out the step itself.
const RESERVED_FOR_STEPS: usize = 64;

/// What was when a step began.
#[derive(Debug, Clone, Copy, Default)]
struct BeforeStep {
    /// Intervals that had found the ring full, without those of steps inside it that have ended.
    lost: u64,
    /// Of the step around it, [`ThreadState::since_split`]: it goes on when this one has ended.
    since_split: u32,
}

/// One thread's state for one session.
pub(crate) struct ThreadState {
    session: u64,
    /// Set if nothing is recorded on this thread; the fields below are empty then.
    aside: Option<UnrecordedThread>,
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
    /// One for each frame; used for steps.
    before: Box<[BeforeStep]>,
    /// Enters beyond [`MAX_DEPTH`] whose exits have not come yet.
    overflow: u32,
    next_seq: u64,
    /// Intervals of the current step, those of steps inside it left out, written since it began or since its last part was
    /// announced.
    since_split: u32,
    emitted: u64,
    ring: rtrb::Producer<Raw>,
    counts: Arc<ThreadCounts>,
    gpu: Option<Box<Marker>>,
    /// What it knows of the experiment that goes on.
    perturbed: Option<Box<OnThread>>,
    /// Whether a step of an experiment is open, so that without one nothing is asked of the intervals around.
    in_perturbed: bool,
    /// Whether the step that was begun last has its own place in a window of kernels.
    is_own_step: bool,
}

/// The state of a thread that records nothing.
#[derive(Debug, Clone, Copy)]
enum UnrecordedThread {
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
    pub(crate) fn enter(&mut self, shared: &SessionState, span: u64, meta: Meta) {
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
                self.is_own_step = meta.flags & meta_flag::STEP != 0;
                let ((decision, plain), in_experiment) = match shared.control.perturbs() || self.in_perturbed {
                    true => self.begin_perturbed(shared, meta.name, request, phase, nested != 0),
                    false => (self.begin_step(shared, meta.name, nested != 0, false), 0),
                };
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
                left_out |= in_experiment;
                first_of_request = request != 0 && shared.steps_of_requests.step(request, recorded, phase != NO_PHASE);
                self.before[at].lost = self.counts.ring_full.load(Relaxed);
                if nested == 0 {
                    self.since_split = 0;
                } else if recorded {
                    self.before[at].since_split = std::mem::take(&mut self.since_split);
                }
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
        } else if self.in_perturbed {
            self.enter_perturbed(shared, at);
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
    fn is_outside_phases(&self, shared: &SessionState, meta: Meta) -> bool {
        let is_outside = meta.flags & meta_flag::APPLICATION != 0 && shared.phases_marked.load(Relaxed);
        if is_outside {
            if shared.outside_phases.load(Relaxed) == names::OTHER {
                shared.outside_phases.store(meta.name, Relaxed);
            }
            add(&self.counts.outside_phases);
        }
        is_outside
    }

    /// Called when a step of kind `name` begins. Returns what becomes of it, and whether it itself is left plain. Inlined twice, so that outside experiments nothing is asked about
    /// them.
    #[inline(always)]
    fn begin_step(&self, shared: &SessionState, name: u32, nested: bool, perturbed: bool) -> (StepDecision, bool) {
        let own_kernels = shared.correlator.is_some() && (self.is_own_step || !self.in_kernels());
        let mut plain = false;
        let affords = || {
            let budget = shared.control.budget();
            budget.is_none_or(|budget| budget.keeps(self.next_seq >> SEQ_BITS, self.counts.steps()))
        };
        let decision = shared.control.begin_affordable_step(own_kernels, perturbed, affords, || {
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
            StepFate::Perturbed => add(&self.counts.steps_perturbed),
            StepFate::Paused => add(&self.counts.steps_paused),
            StepFate::Closed => {}
        }
    }

    /// A span was left. The clock is read as soon as it is known to be needed, but not before, because reading it is
    /// the most expensive operation here. `fields` gives the values of the span's fields, if it has any.
    #[inline]
    pub(crate) fn exit(&mut self, shared: &SessionState, span: u64, fields: impl FnOnce() -> Option<Annotation>) {
        self.exit_at(shared, span, None, fields);
    }

    /// The same, of one that ended at a time which has passed; `None` for now.
    #[inline]
    pub(crate) fn exit_at(
        &mut self,
        shared: &SessionState,
        span: u64,
        ended: Option<Ticks>,
        fields: impl FnOnce() -> Option<Annotation>,
    ) {
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
        let Frame { start, recorded, transparent, mut annotated, has_fields, left_out, .. } = self.frames[at];
        if !recorded || transparent {
            if left_out != 0 {
                self.left_out(shared, at);
            }
            return;
        }
        let end = match ended {
            None => shared.ticks.now(),
            Some(ended) => ended.max(start),
        };
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

    /// The open interval of this number is called otherwise from here on, and may say at its end what it did.
    pub(crate) fn rename(&mut self, span: u64, name: Option<Meta>, has_fields: bool) {
        let open = self.depth;
        let Some(frame) = self.frames[..open].iter_mut().rev().find(|frame| frame.span == span) else { return };
        if let Some(name) = name {
            if frame.is_step() {
                frame.flags |= flag::RENAMED;
            }
            (frame.name, frame.phase) = (name.name, name.phase);
        }
        frame.has_fields |= has_fields;
    }

    /// Called when a step begins that is not recorded.
    fn leave_out(&mut self, shared: &SessionState, at: usize) {
        let frame = &mut self.frames[at];
        if let Some(correlator) = &shared.correlator {
            frame.left_out |= left_out::OUTSIDE_WINDOW;
            correlator.push(OUTSIDE_WINDOW);
        }
        // Last, as for a recorded step: a plain one is compared with those, and a request that the step serves has
        // waited until now.
        frame.start = shared.ticks.now();
    }

    /// Called when a step ends that was not recorded, or an interval of an experiment.
    fn left_out(&mut self, shared: &SessionState, at: usize) {
        if self.frames[at].is_left_out(left_out::PERTURBED) {
            self.exit_perturbed(shared, at);
        }
        let Frame { left_out, start, step, name, request, phase, .. } = self.frames[at];
        if left_out & left_out::TIMED != 0 {
            add(&self.counts.unrecorded_ended);
        }
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
}

/// Adds one to a counter that only this thread writes.
#[inline]
fn add(counter: &std::sync::atomic::AtomicU64) {
    // Release: whoever reads this count also finds everything counted before it, such as the interval that is lost
    // here.
    counter.store(counter.load(Relaxed) + 1, std::sync::atomic::Ordering::Release);
}
