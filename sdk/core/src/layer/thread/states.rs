//! The states that a thread has, one for each session: found, made at the first call, removed when the session has ended.

use super::super::cache::{Meta, MetaCache};
use super::super::frame::Frame;
use super::super::marker::Marker;
use super::{BeforeStep, MAX_DEPTH, ThreadState, UnrecordedThread};
use crate::annotation::Annotation;
use crate::names;
use crate::shared::{NO_THREAD_FROM, NewThread, SessionState, ThreadCounts};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

thread_local! {
    /// One state for each live session whose layer was called on this thread; nearly always one.
    pub(super) static STATES: RefCell<Vec<ThreadState>> = const { RefCell::new(Vec::new()) };
    /// Set on the profiler's own threads.
    static MUTED: Cell<bool> = const { Cell::new(false) };
}

/// Bytes that a thread's state takes in addition to its ring.
const STATE: u64 = (MAX_DEPTH
    * (size_of::<Frame>() + size_of::<Annotation>() + size_of::<BeforeStep>() + size_of::<u8>())
    + MetaCache::BYTES) as u64;

/// Keeps spans of the calling thread out of every session; for the profiler's own threads.
pub(crate) fn mute_this_thread() {
    MUTED.with(|m| m.set(true));
}

/// Runs `f` on this thread's state for the session, and makes the state first if there is none. `session` is the
/// session's number, or 0 if its layer has stepped back. `None` if the layer has stepped back, while the thread is
/// being torn down, or when called from within itself.
#[inline]
pub(crate) fn with_state<R>(
    session: u64,
    shared: &Arc<SessionState>,
    f: impl FnOnce(&mut ThreadState) -> R,
) -> Option<R> {
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
pub(crate) fn foresee(shared: &Arc<SessionState>, span: u64, epoch: u32, meta: Meta) {
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
pub(crate) fn current_request(shared: &SessionState) -> u32 {
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
    shared: &Arc<SessionState>,
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

impl ThreadState {
    fn register(shared: &Arc<SessionState>) -> Self {
        let index = shared.next_thread();
        // A session that has ended takes nothing from threads that come later.
        let muted = MUTED.with(Cell::get) || shared.is_forked() || shared.control.is_closed();
        // Numbers of intervals hold no more threads: those that come later would have the numbers of others.
        let numbered = index < NO_THREAD_FROM;
        let room = if muted || !numbered { None } else { shared.ring_room.take(shared.ring_capacity, STATE) };
        let aside = match room {
            _ if muted => Some(UnrecordedThread::Muted),
            Some(_) => None,
            None => Some(UnrecordedThread::NoRing { depth: 0, recorded: false }),
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
            before: vec![BeforeStep::default(); depth].into_boxed_slice(),
            overflow: 0,
            next_seq: SessionState::first_seq(index),
            since_split: 0,
            emitted: 0,
            ring,
            counts: counts.clone(),
            gpu: shared.gpu.as_ref().filter(|_| aside.is_none()).map(|gpu| Box::new(Marker::new(gpu, index))),
            perturbed: None,
            in_perturbed: false,
            is_own_step: false,
        };
        if !muted {
            let info = Arc::new(names::current_thread(index));
            shared.announce_thread(NewThread { info, ring: consumer, counts, share });
        }
        state
    }
}
