//! The fixed-size records that the hot path writes into a thread's ring.

use crate::annotate::Annotation;
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
    pub(crate) depth: u16,
    pub(crate) phase: u8,
    pub(crate) flags: u8,
}

/// What travels through a ring.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Raw {
    /// An interval that ended.
    Interval(RawInterval),
    /// Belongs to the interval that follows.
    Annotation(Annotation),
    /// An interval that is still open while its step has grown so long that it is resolved in parts.
    Open(RawInterval),
}

const _: () = assert!(std::mem::size_of::<Raw>() <= 64, "a raw record fits a cache line");
