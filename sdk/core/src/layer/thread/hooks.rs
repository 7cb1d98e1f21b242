//! What else happens at enter and exit, where the session has a device's clock, a recorder of kernels, or taps.

use super::super::frame::left_out;
use super::ThreadState;
use crate::clock::Ticks;
use crate::gpu::OUTSIDE_WINDOW;
use crate::raw::{flag, phase_of};
use crate::shared::SessionState;
use crate::tap::TapInterval;

impl ThreadState {
    /// Everything else that happens when an interval begins. The GPU's mark comes last, closest to the work.
    #[inline(never)]
    pub(super) fn hooks_enter(&mut self, shared: &SessionState, at: usize, in_full: bool) {
        if !shared.taps.is_empty() {
            self.tap(shared, at, true);
        }
        let (around, own) = self.frames.split_at_mut(at);
        let frame = &mut own[0];
        let parent = around.iter().rev().find(|f| !f.transparent && !f.is_detached());
        if let Some(correlator) = &shared.correlator {
            // The window of the step around it may have passed long ago.
            let is_own = self.is_own_step && frame.is_step();
            frame.flags |= parent.filter(|_| !is_own).map_or(0, |p| p.flags & flag::KERNELS);
            if frame.flags & flag::KERNELS != 0 {
                correlator.push(shared.span_id(frame.seq));
            } else if shared.follows_graphs
                && (frame.is_step() || parent.is_some_and(|p| p.is_left_out(left_out::OUTSIDE_WINDOW)))
            {
                frame.left_out |= left_out::OUTSIDE_WINDOW;
                correlator.push_outside_window(shared.span_id(frame.seq));
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
    pub(super) fn hooks_exit(&mut self, shared: &SessionState, at: usize, end: Ticks) {
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

    fn tap(&self, shared: &SessionState, at: usize, enter: bool) {
        let frame = &self.frames[at];
        let interval = TapInterval {
            name: frame.name,
            span_id: shared.span_id(frame.seq),
            phase: phase_of(frame.phase),
            is_step: frame.is_step(),
            depth: at as u16,
        };
        for tap in &shared.taps {
            tap.call(&shared.notices, |tap| if enter { tap.enter(interval) } else { tap.exit(interval) });
        }
    }
}
