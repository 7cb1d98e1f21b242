//! Which intervals have not all of their kernels: records were lost, or the recorder was switched off too early. The time on
//! the device of such an interval is not known.

use super::{Delivery, Kernels, MAX_REMEMBERED};
use crate::record::SpanRecord;
use crate::shared::Shared;

impl Kernels {
    /// Notes what was lost of a delivery, and whose it was, as far as that is known.
    pub(super) fn note_lost(&mut self, delivery: &Delivery, shared: &Shared) {
        let sink = &delivery.sink;
        // Intervals go out after the delivery that answers for them; what was lost in those before it was theirs, too.
        self.lost_unanswered |= sink.dropped > sink.dropped_of.len() as u64;
        if delivery.ticket > 0 {
            self.suspect = std::mem::take(&mut self.lost_unanswered);
        }
        sink.dropped_of.iter().for_each(|span| self.lacks_one(shared.seq_of(*span)));
    }

    /// Notes that a record of this interval was lost, or goes out without a path.
    pub(super) fn lacks_one(&mut self, seq: u64) {
        if self.lacking.len() < MAX_REMEMBERED {
            self.lacking.insert(seq);
        }
    }

    /// Whether an interval, which goes out now, lacks a kernel or may lack one.
    pub(super) fn goes_out_incomplete(&mut self, seq: u64) -> bool {
        self.lacking.remove(&seq) || self.suspect
    }

    /// All intervals of the window have gone out: what was lost in it is none of a later one.
    pub(super) fn forget_lost(&mut self) {
        (self.suspect, self.lost_unanswered) = (false, false);
    }

    /// Whether the recorder was switched off while an interval went on: what it launched later is not known.
    pub(super) fn outlasts_recorder(&self, span: &SpanRecord) -> bool {
        span.step.is_some_and(|step| step < self.given_up)
            && span.host_start.plus_ns(span.host_dur_ns) > self.given_up_at
    }
}
