//! Kernels that an interval has not got: lost, or missing in a replay of a graph whose nodes are known.

use super::{Kernels, MAX_REMEMBERED};
use crate::gpu::RawKernel;
use crate::pipeline::replays::Replay;
use crate::record::SpanRecord;
use std::collections::hash_map::Entry;

impl Kernels {
    /// Notes that a record of this interval was lost, or goes out without a path.
    pub(super) fn lacks_one(&mut self, seq: u64) {
        let has_room = self.lacking.len() < MAX_REMEMBERED;
        match self.lacking.entry(seq) {
            Entry::Occupied(mut lacking) => *lacking.get_mut() += 1,
            Entry::Vacant(free) if has_room => {
                free.insert(1);
            }
            Entry::Vacant(_) => {}
        }
    }

    /// Counts the kernels that are missing in the replays that an interval launched, beyond those of which it is known that
    /// they were lost; whether there are any.
    pub(super) fn count_missing(&mut self, span: &SpanRecord, replays: &[(u32, Replay)], lost: u64) -> bool {
        // Where the recorder was switched off while the interval went on, nobody recorded the others.
        if replays.is_empty() || self.outlasts_recorder(span) {
            return false;
        }
        let missing = self.nodes.missing(replays).saturating_sub(lost);
        let known = missing.min(self.lost_of_nobody);
        self.lost_of_nobody -= known;
        let uncounted = missing - known;
        if uncounted > 0 {
            self.counts.dropped += uncounted;
            self.counts.missing += uncounted;
            self.missing.insert(span.seq, uncounted);
        }
        missing > 0
    }

    /// A kernel of an interval that has gone out: it may be one of those that seemed to be missing.
    pub(super) fn comes_late(&mut self, seq: u64, kernel: &RawKernel) {
        if kernel.graph_node.is_some_and(|node| self.nodes.place(node).is_some())
            && let Some(missing) = self.missing.get_mut(&seq).filter(|missing| **missing > 0)
        {
            *missing -= 1;
            self.counts.dropped -= 1;
            self.counts.missing -= 1;
        }
    }
}
