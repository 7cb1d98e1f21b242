//! Intervals that are left late, out of order, or never: those that outlive the step or the request they are part of.

use super::{ThreadState, add};
use crate::layer::cache::{Meta, meta_flag};
use crate::layer::frame::Frame;
use crate::raw::{NO_STEP, flag};
use crate::shared::Shared;
use std::sync::atomic::Ordering::Relaxed;

/// Intervals that have outlived their step and are still waited for; beyond that number the oldest is given up.
pub(crate) const OUTLIVED_KEPT: usize = 16;

/// Values of what is kept in `late`; 0 for one whose step and request go on.
mod late {
    /// What it is part of has ended: it is late, or its guard was forgotten.
    pub(super) const OUTLIVED: u8 = 1;
    /// Others have begun since: it is counted among the forgotten.
    pub(super) const FORGOTTEN: u8 = 2;
}

impl ThreadState {
    /// Spans left in another order than the reverse one: the frame comes out of the middle. Returns where it was.
    #[cold]
    pub(super) fn bring_to_top(&mut self, shared: &Shared, span: u64) -> Option<usize> {
        let Some(at) = self.open().iter().rposition(|f| f.span == span) else {
            add(&self.counts.unmatched);
            return None;
        };
        let frame = self.frames[at];
        if frame.is_step() {
            // From the top: so they end in the reverse order for whoever hears of it.
            for inside in (at + 1..self.depth).rev() {
                if self.frames[inside].step == frame.step {
                    self.detach(shared, inside);
                }
            }
        } else if frame.step == NO_STEP && !frame.transparent {
            // A request. Its steps may go on, but not into the next one; another request inside it goes on as well.
            for inside in at + 1..self.depth {
                if self.late[inside] == 0 && self.frames[inside].request == frame.request {
                    self.late[inside] = late::OUTLIVED;
                    self.late_frames += 1;
                }
            }
        }
        self.frames[at..self.depth].rotate_left(1);
        self.annotations[at..self.depth].rotate_left(1);
        self.lost_before[at..self.depth].rotate_left(1);
        self.late[at..self.depth].rotate_left(1);
        Some(at)
    }

    /// What the frame was part of has ended. For whoever else hears of intervals it ends now; its record is written
    /// when it is left, if it ever is.
    fn detach(&mut self, shared: &Shared, at: usize) {
        let Frame { recorded, transparent, outside_window, .. } = self.frames[at];
        if self.frames[at].is_detached() {
            return;
        }
        if recorded && !transparent {
            if shared.hooked {
                let now = shared.ticks.now();
                self.hooks_exit(shared, at, now);
            }
        } else if let Some(correlator) = shared.correlator.as_ref().filter(|_| outside_window) {
            correlator.pop();
        }
        let frame = &mut self.frames[at];
        (frame.outside_window, frame.plain) = (false, false);
        frame.flags |= flag::DETACHED;
        self.late_frames += usize::from(self.late[at] == 0);
        self.late[at] = late::OUTLIVED;
        self.detached += 1;
    }

    /// A span is entered on a thread where some have outlived their step or request. Gives the number of the frame it
    /// is to stand in, or the largest for none.
    #[cold]
    pub(super) fn around_among_late(&mut self, shared: &Shared, meta: Meta, around: usize) -> usize {
        match self.late[..self.depth].last() {
            Some(late) if *late != 0 => self.parent_past_outlived(shared, meta),
            _ => around,
        }
    }

    /// A span is entered while the innermost open one has outlived its step or its request: late code does that, and
    /// code that forgot a guard does it for ever after. Gives the number of the frame it is to stand in, or the largest
    /// for none.
    fn parent_past_outlived(&mut self, shared: &Shared, meta: Meta) -> usize {
        if meta.flags & meta_flag::REQUEST != 0 {
            // No step goes on into another request.
            let outlived = self.late[..self.depth].iter().rev().take_while(|late| **late != 0).count();
            (self.depth - outlived..self.depth).rev().for_each(|at| self.detach(shared, at));
        }
        for at in (0..self.depth).rev() {
            if self.late[at] == 0 {
                break;
            }
            let frame = &self.frames[at];
            if frame.is_detached() && frame.recorded && !frame.transparent && self.late[at] != late::FORGOTTEN {
                self.late[at] = late::FORGOTTEN;
                add(&self.counts.forgotten);
            }
        }
        self.give_up_oldest();
        self.open().iter().rposition(|f| !f.is_detached()).unwrap_or(usize::MAX)
    }

    /// Takes detached frames off the stack, down to the number that is waited for.
    fn give_up_oldest(&mut self) {
        let mut too_many = self.detached.saturating_sub(OUTLIVED_KEPT);
        self.detached -= too_many;
        self.late_frames -= too_many;
        let mut kept = 0;
        for at in 0..self.depth {
            if too_many > 0 && self.frames[at].is_detached() {
                too_many -= 1;
                continue;
            }
            if kept < at {
                self.frames[kept] = self.frames[at];
                self.annotations[kept] = self.annotations[at];
                self.lost_before[kept] = self.lost_before[at];
                self.late[kept] = self.late[at];
            }
            kept += 1;
        }
        self.late[kept..self.depth].fill(0);
        self.depth = kept;
    }

    /// A span is left on a thread where some have outlived their step or request, it itself perhaps. Gives the depth
    /// that it stood at among the others.
    #[cold]
    pub(super) fn exit_among_late(&mut self, at: usize, depth: usize) -> usize {
        let late = std::mem::take(&mut self.late[at]);
        let detached = self.frames[at].is_detached();
        if late == late::FORGOTTEN {
            let forgotten = &self.counts.forgotten;
            forgotten.store(forgotten.load(Relaxed).saturating_sub(1), Relaxed);
        }
        self.late_frames -= usize::from(late != 0);
        self.detached -= usize::from(detached);
        let around = self.open().iter().take(depth);
        depth - around.filter(|frame| frame.is_detached()).count()
    }
}
