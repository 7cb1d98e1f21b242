//! Which intervals have not all of their kernels: records were lost, or the recorder was switched off too early. The time on
//! the device of such an interval is not known.

use super::{Delivery, Kernels, MAX_REMEMBERED};
use crate::record::SpanRecord;
use crate::shared::SessionState;

impl Kernels {
    /// Notes what was lost of a delivery, and whose it was, as far as that is known.
    pub(super) fn note_lost(&mut self, delivery: &Delivery, shared: &SessionState) {
        let sink = &delivery.sink;
        // Intervals go out after the delivery that answers for them; what was lost in those before it was theirs, too.
        self.lost_unanswered += sink.dropped.saturating_sub(sink.dropped_of.len() as u64);
        if delivery.ticket > 0 {
            self.suspect_records = std::mem::take(&mut self.lost_unanswered);
            self.suspect = self.suspect_records > 0;
        }
        for seq in sink.dropped_of.iter().map(|span| shared.seq_of(*span)) {
            // One that has gone out was found to lack it already.
            if !self.takes_back_one(seq) {
                self.lacks_one(seq);
            }
        }
    }

    /// Notes that a record of this interval was lost, or goes out without a path.
    pub(super) fn lacks_one(&mut self, seq: u64) {
        if self.lacking.len() < MAX_REMEMBERED || self.lacking.contains_key(&seq) {
            *self.lacking.entry(seq).or_default() += 1;
        }
    }

    /// How many records an interval, which goes out now, is known to lack; 0 if it may lack one of those of which
    /// nobody knows whose they were. `None` if nothing was lost.
    pub(super) fn goes_out_incomplete(&mut self, seq: u64) -> Option<u64> {
        self.lacking.remove(&seq).or(self.suspect.then_some(0))
    }

    /// All intervals of the window have gone out: what was lost in it is none of a later one.
    pub(super) fn forget_lost(&mut self) {
        (self.suspect, self.suspect_records, self.lost_unanswered) = (false, 0, 0);
    }

    /// Whether the recorder was switched off while an interval went on: what it launched later is not known.
    pub(super) fn outlasts_recorder(&self, span: &SpanRecord) -> bool {
        span.step.is_some_and(|step| step < self.given_up)
            && span.host_start.plus_ns(span.host_dur_ns) > self.given_up_at
    }
}
