//! Threads on which nothing is recorded: the profiler's own, and those that came when there was no room for a ring.

use super::{ThreadState, UnrecordedThread, add};
use crate::shared::SessionState;

impl ThreadState {
    /// Like [`enter`](Self::enter), for a thread on which nothing is recorded.
    #[cold]
    pub(crate) fn enter_aside(&mut self, shared: &SessionState) {
        let Some(UnrecordedThread::NoRing { depth, recorded }) = self.aside else { return };
        let recorded = if depth == 0 {
            let fate = shared.control.begin_step(false, || false).fate;
            self.count_step(fate);
            fate.is_recorded()
        } else {
            recorded
        };
        self.aside = Some(UnrecordedThread::NoRing { depth: depth.saturating_add(1), recorded });
    }

    /// Like [`exit`](Self::exit), for a thread on which nothing is recorded.
    #[cold]
    pub(crate) fn exit_aside(&mut self) {
        let Some(UnrecordedThread::NoRing { depth, recorded }) = self.aside else { return };
        let Some(depth) = depth.checked_sub(1) else {
            add(&self.counts.unmatched);
            return;
        };
        self.aside = Some(UnrecordedThread::NoRing { depth, recorded });
        if recorded {
            // In this order, so that no more is ever seen as lost than as emitted.
            self.count_emitted();
            add(&self.counts.no_ring);
            if depth == 0 {
                add(&self.counts.steps_lost);
            }
        } else if depth == 0 {
            add(&self.counts.unrecorded_ended);
        }
    }
}
