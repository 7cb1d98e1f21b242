//! Intervals of programs that make no `tracing` spans: ranges that other markers begin and end, such as NVTX's.

use super::cache::{Meta, meta_flag};
use super::open_range::OpenRange;
use super::thread;
use crate::annotation::Annotation;
use crate::clock::Ticks;
use crate::names::Role;
use crate::raw::{NO_PHASE, phase_of};
use crate::shared::SessionState;
use crate::vocabulary::Phase;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What a range means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RangeKind {
    /// An interval: the outermost one of a thread is a step, as with spans.
    Interval,
    /// A phase: always a step, unless it stands in another phase.
    Phase(Phase),
    /// The application's own: no step where phases are marked, and what is inside begins what it would have begun.
    Application,
    /// A step, of a phase or of none, also inside of a step that is in no phase; in a window of kernels it takes a
    /// place of its own.
    Step(Option<Phase>),
}

/// A name that ranges have, with what they mean. Valid in the session whose [`Ranges`] made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RangeName(Meta);

impl RangeName {
    /// Whether its ranges are phases, and so steps.
    #[inline]
    pub fn is_phase(self) -> bool {
        self.0.phase != NO_PHASE
    }

    /// The phase that they are.
    #[inline]
    pub fn phase(self) -> Option<Phase> {
        phase_of(self.0.phase)
    }
}

/// A time on the clock of the session's intervals, which all threads share. Valid in the session whose [`Ranges`] read
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RangeTime(Ticks);

/// Begins and ends intervals on the calling thread, without `tracing`. Got from
/// [`Handle::ranges`](crate::Handle::ranges).
///
/// Intervals have the same paths, steps and kernels as those of spans. Do not use both on one thread: a range ends by a
/// number of the caller's choice, which must differ from all others that are open on its thread.
#[derive(Clone)]
pub struct Ranges {
    shared: Arc<SessionState>,
}

impl std::fmt::Debug for Ranges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ranges").field("session", &self.shared.session).finish_non_exhaustive()
    }
}

/// Set in the numbers of ranges, which the registry's ids do not reach.
const OURS: u64 = 1 << 63;

impl Ranges {
    pub(crate) fn new(shared: Arc<SessionState>) -> Self {
        Self { shared }
    }

    /// Makes a name known. Takes a lock and may allocate: callers keep what they get.
    ///
    /// Of more than 65,535 different names the further ones are `(other)`.
    #[cold]
    pub fn name(&self, name: &str, target: &str, kind: RangeKind) -> RangeName {
        let shared = &self.shared;
        let role = match kind {
            _ if shared.is_excluded(target) => Role::Ignored,
            RangeKind::Phase(phase) | RangeKind::Step(Some(phase)) => Role::Phase(phase),
            RangeKind::Interval | RangeKind::Application | RangeKind::Step(None) => Role::Plain,
        };
        let cut = |text| Arc::<str>::from(crate::cut_text(text, crate::MOST_TEXT_BYTES));
        let (name, target) = (cut(name), cut(target));
        let announce =
            |id| shared.taps.iter().for_each(|tap| tap.call(&shared.notices, |tap| tap.name(id, &name, &target)));
        let id = shared.names.intern(&name, &target, role, None, announce);
        if matches!(role, Role::Phase(_)) {
            shared.phases_marked.store(true, Relaxed);
        }
        let flags = match (role, kind) {
            (Role::Ignored, _) => meta_flag::IGNORED,
            (_, RangeKind::Application) => meta_flag::APPLICATION,
            (_, RangeKind::Step(_)) => meta_flag::STEP,
            _ => 0,
        };
        let phase = if let Role::Phase(phase) = role { phase as u8 } else { NO_PHASE };
        RangeName(Meta { name: id, request: 0, phase, flags })
    }

    /// The name of ranges that are called as those of `name`, and are plain intervals of another target. Takes a lock
    /// and may allocate: callers keep what they get.
    #[cold]
    pub fn with_target(&self, name: RangeName, target: &str) -> RangeName {
        let known = self.shared.names.get(name.0.name);
        self.name(known.as_ref().map_or("(other)", |known| &*known.name), target, RangeKind::Interval)
    }

    /// A range begins on this thread. Hot path: no allocation once the thread is known, no lock, no system call.
    #[inline]
    pub fn enter(&self, name: RangeName, number: u64) {
        thread::with_state(self.shared.session, &self.shared, |state| {
            if state.is_aside() {
                return state.enter_aside(&self.shared);
            }
            state.enter(&self.shared, number | OURS, name.0);
        });
    }

    /// It ends, on the same thread; an unknown number is ignored.
    #[inline]
    pub fn exit(&self, number: u64) {
        self.exit_as(number, None, None);
    }

    /// The same, of a range about which its end says what it was: by another name, which has the same target as the one
    /// it began by, and by what it did. What stands inside it has the path of the new name.
    #[inline]
    pub fn exit_as(&self, number: u64, name: Option<RangeName>, did: Option<Annotation>) {
        thread::with_state(self.shared.session, &self.shared, |state| {
            if state.is_aside() {
                return state.exit_aside();
            }
            if name.is_some() || did.is_some() {
                state.rename(number | OURS, name.map(|name| name.0), did.is_some());
            }
            state.exit(&self.shared, number | OURS, || did);
        });
    }

    /// The same as [`exit`](Self::exit), of a range that ended at a time which has passed; `None` for now. It is still
    /// left on the thread that entered it.
    #[inline]
    pub fn exit_at(&self, number: u64, at: Option<RangeTime>, did: Option<Annotation>) {
        thread::with_state(self.shared.session, &self.shared, |state| {
            if state.is_aside() {
                return state.exit_aside();
            }
            if did.is_some() {
                state.rename(number | OURS, None, true);
            }
            state.exit_at(&self.shared, number | OURS, at.map(|at| at.0), || did);
        });
    }

    /// The time now, for [`exit_at`](Self::exit_at). No lock, no system call.
    #[inline]
    pub fn now(&self) -> RangeTime {
        RangeTime(self.shared.ticks.now())
    }

    /// A range begins here that is part of nothing: it may [end](Self::end) on another thread, or not at all, and cross
    /// others. Its row stands above steps, as the entry of a request does: it has its time on the host and, as parent,
    /// the interval in which it began, from which it takes neither time nor kernels. `None` if it is not recorded: the
    /// session records nothing at the moment, or not on this thread, or its target is excluded. Hot path, as
    /// [`enter`](Self::enter).
    #[inline]
    pub fn begin(&self, name: RangeName) -> Option<OpenRange> {
        thread::with_state(self.shared.session, &self.shared, |state| {
            if state.is_aside() { None } else { state.begin_beside(&self.shared, name.0) }
        })
        .flatten()
    }

    /// It ends, on whichever thread. One that never does is counted as open at the end (`open_at_end` of `run.json`).
    /// Hot path, as [`exit`](Self::exit).
    #[inline]
    pub fn end(&self, range: OpenRange) {
        thread::with_state(self.shared.session, &self.shared, |state| state.end_beside(&self.shared, range));
    }
}
