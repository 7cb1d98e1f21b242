//! One open interval.

use crate::clock::Ticks;
use crate::raw::{RawInterval, flag};

/// One open interval.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Frame {
    pub(super) span: u64,
    pub(super) start: Ticks,
    /// Own `seq`; for frames that are not recorded or transparent, the one their children take as parent.
    pub(super) seq: u64,
    pub(super) parent: u64,
    pub(super) step: u64,
    pub(super) name: u32,
    pub(super) request: u32,
    /// Marks in the GPU's stream at enter and exit; 0 for none.
    pub(super) marks: [u32; 2],
    pub(super) phase: u8,
    pub(super) flags: u8,
    /// How much of what is inside is marked; see [`super::mark_plan::detail`].
    pub(super) gpu: u8,
    pub(super) recorded: bool,
    /// Of an excluded target: children see through it.
    pub(super) transparent: bool,
    pub(super) annotated: bool,
    pub(super) has_fields: bool,
    /// A step that is in no window of kernels, as the recorder was told.
    pub(super) outside_window: bool,
    /// A step that is left plain, to be held against recorded ones.
    pub(super) plain: bool,
}

impl Frame {
    #[inline]
    pub(super) fn is_detached(&self) -> bool {
        self.flags & flag::DETACHED != 0
    }

    #[inline]
    pub(super) fn is_step(&self) -> bool {
        self.flags & flag::STEP_ROOT != 0
    }

    /// The frame as an interval that stood at `depth`, with `flags` besides its own. Nothing was lost inside it.
    #[inline]
    pub(super) fn to_raw(self, depth: usize, end: Ticks, flags: u8) -> RawInterval {
        let Frame { start, seq, parent, step, name, request, marks, phase, .. } = self;
        let (depth, flags) = (depth as u16, self.flags | flags);
        RawInterval { start, end, seq, parent, step, name, request, marks, depth, lost: 0, phase, flags, open: false }
    }
}
