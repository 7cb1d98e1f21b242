//! A thread whose ring is read, and what threads have counted.

use crate::HostNs;
use crate::pipeline::resolve::ThreadStream;
use crate::raw::Raw;
use crate::ring_room::RingShare;
use crate::run::LossCounts;
use crate::shared::{SessionState, ThreadCounts};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A thread whose ring is read.
pub(super) struct Source {
    pub(super) stream: ThreadStream,
    /// No step of the thread that is still open began before.
    pub(super) known_until: HostNs,
    pub(super) ring: rtrb::Consumer<Raw>,
    pub(super) counts: Arc<ThreadCounts>,
    pub(super) drained: u64,
    /// Given back together with the ring.
    pub(super) share: Option<RingShare>,
}

/// Counts, summed over threads.
#[derive(Clone, Copy, Default)]
pub(super) struct ThreadSums {
    pub(super) loss: LossCounts,
    pub(super) drained: u64,
    /// Intervals that were entered, or begun beside others: those may end on another thread, so that only the sums of all
    /// threads can be compared with what ended.
    pub(super) entered: u64,
    pub(super) steps_lost: u64,
    pub(super) steps_due: u64,
    pub(super) steps_scheduled_out: u64,
    pub(super) steps_plain: u64,
    pub(super) steps_perturbed: u64,
    pub(super) steps_paused: u64,
    /// How often a step that is not to be recorded began, or ended.
    pub(super) unrecorded_turns: u64,
    pub(super) outside_phases: u64,
}

impl ThreadSums {
    pub(super) fn add(&mut self, source: &Source) {
        let (counts, loss) = (&source.counts, &mut self.loss);
        self.drained += source.drained;
        // Losses are counted after their `emitted`, and read before it, so they are never more. Acquire pairs with the
        // writer's Release: the records of intervals counted here are visible in the ring.
        let [ring_full, too_deep, no_ring] =
            [&counts.ring_full, &counts.too_deep, &counts.no_ring].map(|count| count.load(Ordering::Acquire));
        let emitted = counts.emitted.load(Ordering::Acquire);
        loss.emitted += emitted;
        loss.ring_full += ring_full;
        loss.too_deep += too_deep;
        loss.no_ring += no_ring;
        loss.threads_without_ring += u64::from(source.share.is_none());
        loss.unmatched_exits += counts.unmatched.load(Ordering::Relaxed);
        loss.forgotten_guards += counts.forgotten.load(Ordering::Relaxed);
        self.entered +=
            counts.entered.load(Ordering::Relaxed).saturating_sub(SessionState::first_seq(source.stream.info.index));
        // In this order: a step is counted as due before it is counted as lost.
        self.steps_lost += counts.steps_lost.load(Ordering::Acquire);
        self.steps_due += counts.steps_due.load(Ordering::Relaxed);
        self.steps_scheduled_out += counts.steps_scheduled_out.load(Ordering::Relaxed);
        self.steps_plain += counts.steps_plain.load(Ordering::Relaxed);
        self.steps_perturbed += counts.steps_perturbed.load(Ordering::Relaxed);
        self.steps_paused += counts.steps_paused.load(Ordering::Relaxed);
        let (ended, begun) = counts.unrecorded();
        self.unrecorded_turns += ended + begun;
        self.outside_phases += counts.outside_phases.load(Ordering::Relaxed);
    }
}
