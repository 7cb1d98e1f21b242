//! Intervals that outlive the step or the request that they are part of, because they are left late, out of order, or
//! never.

use super::{ThreadState, add};
use crate::gpu::OUTSIDE_WINDOW;
use crate::layer::cache::{Meta, meta_flag};
use crate::layer::frame::{Frame, left_out};
use crate::raw::{NO_STEP, flag};
use crate::shared::SessionState;
use std::sync::atomic::Ordering::Relaxed;

/// Intervals that have outlived their step and may still be left; beyond this number the oldest is given up.
pub(crate) const OUTLIVED_KEPT: usize = 16;

/// Values of `ThreadState::late`; 0 if the interval's step and request go on.
mod late {
    /// Its step or request has ended: it will be left late, or its guard was forgotten.
    pub(super) const OUTLIVED: u8 = 1;
    /// Other intervals have begun since: it is counted as forgotten.
    pub(super) const FORGOTTEN: u8 = 2;
}

impl ThreadState {
    /// A span is left out of order: its frame is moved from the middle of the stack to the top. Returns where it was.
    #[cold]
    pub(super) fn bring_to_top(&mut self, shared: &SessionState, span: u64) -> Option<usize> {
        let Some(at) = self.open().iter().rposition(|f| f.span == span) else {
            add(&self.counts.unmatched);
            return None;
        };
        let frame = self.frames[at];
        if frame.is_step() {
            // From the top, so that they end in reverse order for taps and marks.
            for inside in (at + 1..self.depth).rev() {
                if self.frames[inside].step == frame.step {
                    self.detach(shared, inside);
                }
            }
        } else if frame.step == NO_STEP && !frame.transparent {
            // A request. Its steps may go on, but not into the next request; another request inside it also goes on.
            for inside in at + 1..self.depth {
                if self.late[inside] == 0 && self.frames[inside].request == frame.request {
                    self.late[inside] = late::OUTLIVED;
                    self.late_frames += 1;
                }
            }
        }
        self.bring_id_to_top(shared, at);
        self.frames[at..self.depth].rotate_left(1);
        self.annotations[at..self.depth].rotate_left(1);
        self.before[at..self.depth].rotate_left(1);
        self.late[at..self.depth].rotate_left(1);
        Some(at)
    }

    /// Has the recorder of kernels hold the id of the interval at `at`, which ends, above those of the ones that go on:
    /// it takes away the innermost one.
    fn bring_id_to_top(&self, shared: &SessionState, at: usize) {
        let Some(correlator) = &shared.correlator else { return };
        let held = |frame: &&Frame| {
            let has_kernels = frame.recorded && !frame.transparent && frame.flags & flag::KERNELS != 0;
            !frame.is_detached() && (has_kernels || frame.is_left_out(left_out::OUTSIDE_WINDOW))
        };
        let push = |frame: &Frame| {
            if frame.flags & flag::KERNELS != 0 {
                correlator.push(shared.span_id(frame.seq));
            } else if frame.recorded && shared.follows_graphs {
                correlator.push_outside_window(shared.span_id(frame.seq));
            } else {
                correlator.push(OUTSIDE_WINDOW);
            }
        };
        let own = &self.frames[at];
        if !held(&own) {
            return;
        }
        let above = || self.frames[at + 1..self.depth].iter().filter(held);
        // Those above, and its own.
        (0..=above().count()).for_each(|_| correlator.pop());
        above().for_each(push);
        push(own);
    }

    /// The step of the frame has ended. For taps, marks and the recorder the interval ends now; its record is written
    /// when it is left, if that ever happens.
    fn detach(&mut self, shared: &SessionState, at: usize) {
        let Frame { recorded, transparent, .. } = self.frames[at];
        let outside_window = self.frames[at].is_left_out(left_out::OUTSIDE_WINDOW);
        if self.frames[at].is_detached() {
            return;
        }
        self.bring_id_to_top(shared, at);
        if recorded && !transparent {
            if shared.hooked {
                let now = shared.ticks.now();
                self.hooks_exit(shared, at, now);
            }
        } else if let Some(correlator) = shared.correlator.as_ref().filter(|_| outside_window) {
            correlator.pop();
        }
        if self.frames[at].is_left_out(left_out::TIMED) {
            add(&self.counts.unrecorded_ended);
        }
        let frame = &mut self.frames[at];
        frame.left_out = 0;
        frame.flags |= flag::DETACHED;
        self.late_frames += usize::from(self.late[at] == 0);
        self.late[at] = late::OUTLIVED;
        self.detached += 1;
    }

    /// A span is entered on a thread where some intervals have outlived their step or request. Returns the index of the
    /// frame that becomes its parent, or `usize::MAX` for none.
    #[cold]
    pub(super) fn around_among_late(&mut self, shared: &SessionState, meta: Meta, around: usize) -> usize {
        match self.late[..self.depth].last() {
            Some(late) if *late != 0 => self.parent_past_outlived(shared, meta),
            _ => around,
        }
    }

    /// A span is entered while the innermost open interval has outlived its step or request: the interval is left late,
    /// or its guard was forgotten, in which case this happens from now on. Returns the index of the frame that becomes
    /// the span's parent, or `usize::MAX` for none.
    fn parent_past_outlived(&mut self, shared: &SessionState, meta: Meta) -> usize {
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

    /// Removes detached frames from the stack, the oldest first, until [`OUTLIVED_KEPT`] are left.
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
                self.before[kept] = self.before[at];
                self.late[kept] = self.late[at];
            }
            kept += 1;
        }
        self.late[kept..self.depth].fill(0);
        self.depth = kept;
    }

    /// A span is left on a thread where some intervals have outlived their step or request, possibly this one itself.
    /// Returns its depth among the others.
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
