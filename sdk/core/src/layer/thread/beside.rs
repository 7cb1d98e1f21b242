//! Ranges that are open beside a thread's intervals: they may end on another thread, and cross what they like.

use super::super::cache::{Meta, meta_flag};
use super::super::open_range::OpenRange;
use super::{RESERVED_FOR_STEPS, ThreadState, add};
use crate::Annotation;
use crate::raw::{NO_PHASE, NO_STEP, Raw, RawInterval};
use crate::shared::SessionState;
use std::sync::atomic::Ordering::Relaxed;

impl ThreadState {
    /// A range begins here. It gets a number of this thread's, by which its row names the thread; the thread keeps
    /// nothing of it.
    #[inline]
    pub(crate) fn begin_beside(&mut self, shared: &SessionState, meta: Meta) -> Option<OpenRange> {
        if meta.flags & meta_flag::IGNORED != 0 || !shared.control.records_above_steps() {
            return None;
        }
        let around = self.open().iter().rfind(|frame| !frame.is_detached());
        let (parent, request) = around.map_or((0, 0), |frame| (frame.seq, frame.request));
        self.next_seq += 1;
        self.counts.entered.store(self.next_seq, Relaxed);
        Some(OpenRange {
            start: shared.ticks.now(),
            seq: self.next_seq,
            parent,
            name: meta.name,
            request,
            payload: None,
        })
    }

    /// It ends on this thread, wherever it began.
    #[inline]
    pub(crate) fn end_beside(&mut self, shared: &SessionState, range: OpenRange) {
        let end = shared.ticks.now();
        // Overload policy: as for intervals, the newest record is dropped and counted; so it is on a thread without a ring.
        let records = 1 + usize::from(range.payload.is_some());
        if !self.is_aside() && self.room_for(records + RESERVED_FOR_STEPS) {
            let OpenRange { start, seq, parent, name, request, payload } = range;
            if let Some(bits) = payload {
                let _ = self.ring.push(Raw::Counts(Annotation::new().payload(f64::from_bits(bits)).counts));
            }
            let interval = RawInterval {
                start,
                end: end.max(start),
                seq,
                parent,
                step: NO_STEP,
                name,
                request,
                marks: [0; 2],
                depth: 0,
                lost: 0,
                phase: NO_PHASE,
                flags: 0,
                open: false,
            };
            let _ = self.ring.push(Raw::Interval(interval));
            self.count_emitted();
        } else {
            self.count_emitted();
            add(&self.counts.ring_full);
        }
    }
}
