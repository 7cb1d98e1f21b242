//! Threads on which nothing is recorded: the profiler's own, and those that came when there was no room for a ring.

use super::{ThreadState, add};
use crate::shared::Shared;

/// What is kept of a thread that records nothing.
#[derive(Debug, Clone, Copy)]
pub(super) enum Aside {
    /// The profiler's own, or one that came after a fork, in the child: the session is the parent's.
    Muted,
    /// One that came when there was no room for a ring: what it would have recorded is counted. Its outermost intervals
    /// count as steps.
    NoRing {
        depth: u32,
        /// Whether the step that is open would have been recorded.
        recorded: bool,
    },
}

impl ThreadState {
    /// As [`enter`](Self::enter), where nothing is recorded.
    #[cold]
    pub(crate) fn enter_aside(&mut self, shared: &Shared) {
        let Some(Aside::NoRing { depth, recorded }) = self.aside else { return };
        let recorded = if depth == 0 {
            let fate = shared.control.begin_step(false, || false).fate;
            self.count_step(fate);
            fate.is_recorded()
        } else {
            recorded
        };
        self.aside = Some(Aside::NoRing { depth: depth.saturating_add(1), recorded });
    }

    /// As [`exit`](Self::exit), where nothing is recorded.
    #[cold]
    pub(crate) fn exit_aside(&mut self) {
        let Some(Aside::NoRing { depth, recorded }) = self.aside else { return };
        let Some(depth) = depth.checked_sub(1) else {
            add(&self.counts.unmatched);
            return;
        };
        self.aside = Some(Aside::NoRing { depth, recorded });
        if recorded {
            // In this order: what is lost is never more than what was emitted.
            self.count_emitted();
            add(&self.counts.no_ring);
            if depth == 0 {
                add(&self.counts.steps_lost);
            }
        }
    }
}
