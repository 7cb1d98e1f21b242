//! Steps that serve several requests: what an open step says of each of them goes into the ring before the step.

use super::super::frame::left_out;
use super::states::STATES;
use super::{RESERVED_FOR_STEPS, ThreadState, add};
use crate::raw::{NO_PHASE, Raw, RawServed};
use crate::shared::SessionState;
use candlescope_markers::recorder::RecordedRequest;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A request as its session knows it: what the layer leaves for the [`Request`](crate::llm::Request) that is being made.
pub(in crate::layer) struct RequestHandle {
    pub(in crate::layer) shared: Arc<SessionState>,
    pub(in crate::layer) number: u32,
}

impl RecordedRequest for RequestHandle {
    /// See [`crate::llm::serves`]. Nothing if no step is open on this thread.
    #[inline]
    fn serve(&self, tokens: u32, output_tokens: u32, context: Option<u64>) {
        let Self { shared, number } = self;
        let _ = STATES.try_with(|states| {
            if let Ok(mut states) = states.try_borrow_mut()
                && let Some(state) = states.iter_mut().find(|state| state.session == shared.session)
            {
                state.serve(shared, *number, tokens, output_tokens);
            }
        });
        if let Some(context) = context {
            shared.steps_of_requests.context(*number, context);
        }
    }
}

impl ThreadState {
    fn serve(&mut self, shared: &SessionState, request: u32, tokens: u32, output_tokens: u32) {
        let Some(at) = self.open().iter().rposition(|frame| frame.is_step() && !frame.is_detached()) else { return };
        let frame = &self.frames[at];
        let (step, recorded, start, is_phase) = (frame.step, frame.recorded, frame.start, frame.phase != NO_PHASE);
        let frame_is_perturbed = frame.is_left_out(left_out::PERTURBED);
        // The request has waited until this step began, which may be long ago by now.
        if shared.steps_of_requests.step(request, recorded, is_phase) {
            shared.steps_of_requests.first_step(request, start, is_phase);
        }
        if frame_is_perturbed {
            shared.steps_of_requests.mark_perturbed(request);
        }
        if !recorded {
            return;
        }
        if self.room_for(1 + RESERVED_FOR_STEPS) {
            let _ = self.ring.push(Raw::Served(RawServed { step, request, tokens, output_tokens }));
        } else {
            // Counted like an interval of the step that was lost, so that the step is known to be incomplete.
            self.next_seq += 1;
            self.counts.entered.store(self.next_seq, Relaxed);
            self.count_emitted();
            add(&self.counts.ring_full);
        }
    }
}
