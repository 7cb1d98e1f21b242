//! The fixed-size records that the hot path writes into a thread's ring.

use crate::annotation::{Counts, Work};
use crate::clock::Ticks;
use crate::vocabulary::Phase;

/// Step number of an interval that stands above steps (an entry of a request's span).
pub(crate) const NO_STEP: u64 = u64::MAX;
/// Phase index of an interval outside any phase.
pub(crate) const NO_PHASE: u8 = u8::MAX;

/// The phase with this index; `None` for [`NO_PHASE`], which no phase has.
#[inline]
pub(crate) fn phase_of(index: u8) -> Option<Phase> {
    Phase::from_index(index)
}

/// Bits of [`RawInterval::flags`].
pub(crate) mod flag {
    /// The interval is a step.
    pub(crate) const STEP_ROOT: u8 = 1;
    /// Its step ended before it did, so its place in the tree is no longer known.
    pub(crate) const DETACHED: u8 = 2;
    /// It is a step that began inside another one.
    pub(crate) const NESTED_STEP: u8 = 8;
    /// The last of several consecutive `Open` records: the buffered part of the step can be resolved now.
    pub(crate) const LAST_OPEN: u8 = 4;
    /// Of a step that has ended: it was called otherwise at its end, and so is the phase of all in it. No step is open then.
    pub(crate) const RENAMED: u8 = LAST_OPEN;
    /// Kernels launched inside it were recorded.
    pub(crate) const KERNELS: u8 = 16;
    /// It began as a step of a window of kernels.
    pub(crate) const WINDOW_ROOT: u8 = 32;
    /// It is a step that is recorded only because a window was asked for.
    pub(crate) const CAPTURED: u8 = 64;
    /// It is the first step of its kind, marked in full in case no other comes.
    pub(crate) const COLD: u8 = 128;
}

/// One enter/exit pair.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawInterval {
    pub(crate) start: Ticks,
    pub(crate) end: Ticks,
    pub(crate) seq: u64,
    /// `seq` of the parent, 0 for none.
    pub(crate) parent: u64,
    pub(crate) step: u64,
    pub(crate) name: u32,
    pub(crate) request: u32,
    /// Marks in the GPU's stream at enter and exit, numbered within the thread's lane; 0 for none.
    pub(crate) marks: [u32; 2],
    pub(crate) depth: u16,
    /// For a step: how many of its intervals found the ring full; the largest value stands for that many or more.
    pub(crate) lost: u16,
    pub(crate) phase: u8,
    pub(crate) flags: u8,
    /// The interval is still open, and its step has grown so long that it is resolved in parts. It is a `bool` because
    /// the values that a `bool` cannot have distinguish the variants of [`Raw`] without making it larger.
    pub(crate) open: bool,
}

impl RawInterval {
    /// The phase that it is part of.
    pub(crate) fn phase(&self) -> Option<Phase> {
        phase_of(self.phase)
    }
}

/// A step that is not recorded: its time only, without a row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnrecordedStep {
    pub(crate) start: Ticks,
    pub(crate) end: Ticks,
    pub(crate) step: u64,
    pub(crate) name: u32,
    pub(crate) request: u32,
    pub(crate) phase: u8,
    /// It was left plain, to be compared with recorded steps.
    pub(crate) plain: bool,
    /// It was open when a recorded step began, or began right after one: rates need its time.
    pub(crate) beside: bool,
}

/// What an open step does for one of several requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawServed {
    pub(crate) step: u64,
    pub(crate) request: u32,
    pub(crate) tokens: u32,
    pub(crate) output_tokens: u32,
}

/// What is written into a ring.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Raw {
    /// A step that was not recorded. It is not counted as an interval.
    Unrecorded(UnrecordedStep),
    /// An interval that ended, or that is announced as open.
    Interval(RawInterval),
    /// What the interval in the next record does.
    Work(Work),
    /// For whom the interval in the next record works.
    Counts(Counts),
    /// A request that a step which is still open serves. It is not counted as an interval.
    Served(RawServed),
}

const _: () = assert!(std::mem::size_of::<Raw>() <= 64, "a raw record fits a cache line");
