//! The fixed-size records that the hot path writes into a thread's ring.

use crate::annotation::{Counts, Work};
use crate::clock::Ticks;

/// Step number of an interval that stands above steps (the entry of a request's span).
pub(crate) const NO_STEP: u64 = u64::MAX;
/// Phase index of an interval outside any phase.
pub(crate) const NO_PHASE: u8 = u8::MAX;

/// Bits of [`RawInterval::flags`].
pub(crate) mod flag {
    /// The interval is a step.
    pub(crate) const STEP_ROOT: u8 = 1;
    /// Its step ended before it did, so it cannot be placed in the tree any more.
    pub(crate) const DETACHED: u8 = 2;
    /// Is a step that began inside another one.
    pub(crate) const NESTED_STEP: u8 = 8;
    /// Last of a run of `Open` records: the buffered part of the step can be resolved now.
    pub(crate) const LAST_OPEN: u8 = 4;
    /// Kernels launched inside it were recorded.
    pub(crate) const KERNELS: u8 = 16;
    /// Began as a step of a window of kernels.
    pub(crate) const WINDOW_ROOT: u8 = 32;
    /// Is a step that is recorded only because a window was asked for.
    pub(crate) const CAPTURED: u8 = 64;
    /// Is the first step of its kind, marked in full in case there is no other.
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
    /// Of a step: its intervals that found the ring full; at the largest value, that many or more.
    pub(crate) lost: u16,
    pub(crate) phase: u8,
    pub(crate) flags: u8,
    /// Still open, while its step has grown so long that it is resolved in parts. A `bool` for the values it cannot
    /// have: they tell the kinds of [`Raw`] apart without making it larger.
    pub(crate) open: bool,
}

/// A step that was left plain: its time, without a row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlainStep {
    pub(crate) start: Ticks,
    pub(crate) end: Ticks,
    pub(crate) name: u32,
}

/// What travels through a ring.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Raw {
    /// A step that was not recorded, for the measure of what recording costs. No interval: it is in no account of
    /// those.
    Plain(PlainStep),
    /// An interval that ended, or is announced as open.
    Interval(RawInterval),
    /// What the interval that follows does.
    Work(Work),
    /// Whom the interval that follows works for.
    Counts(Counts),
}

const _: () = assert!(std::mem::size_of::<Raw>() <= 64, "a raw record fits a cache line");
