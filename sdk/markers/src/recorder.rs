//! What candlescope's core shares with the markers, and nobody else should use. It changes in no release of a version
//! that cargo takes for compatible, because a program may have a newer one of the two crates.

/// How a request is known to the session that records it.
///
/// candlescope's layer sees only a span. While a [`Request`](crate::Request) makes its span, the layer leaves this, on
/// the same thread, for [`serves`](crate::serves).
pub trait RecordedRequest: Send + Sync {
    /// The step that is open on this thread passes `tokens` of the request through the model and yields
    /// `output_tokens`; the request has `context` tokens after it, all its sequences together.
    fn serve(&self, tokens: u32, output_tokens: u32, context: Option<u64>);
}

#[cfg(feature = "enabled")]
mod hand_over {
    use super::RecordedRequest;
    use std::cell::Cell;

    thread_local! {
        /// Whether somebody waits for what the layer leaves of the next request.
        static WANTED: Cell<bool> = const { Cell::new(false) };
        static LEFT: Cell<Option<Box<dyn RecordedRequest>>> = const { Cell::new(None) };
    }

    /// Runs `make_span`, and returns what a layer left of the request that it made, if one records requests here.
    pub(crate) fn of_span<T>(make_span: impl FnOnce() -> T) -> (T, Option<Box<dyn RecordedRequest>>) {
        let _ = WANTED.try_with(|wanted| wanted.set(true));
        let span = make_span();
        let _ = WANTED.try_with(|wanted| wanted.set(false));
        (span, LEFT.try_with(Cell::take).ok().flatten())
    }

    /// Called by the layer for each new request. A request that is a span of the program's own has nobody who would
    /// take this, which would keep the session's memory: nothing is made for it.
    pub fn leave(make: impl FnOnce() -> Box<dyn RecordedRequest>) {
        if WANTED.try_with(Cell::get).unwrap_or(false) {
            let recorded = make();
            let _ = LEFT.try_with(|left| left.set(Some(recorded)));
        }
    }
}

#[cfg(feature = "enabled")]
pub use hand_over::leave;
#[cfg(feature = "enabled")]
pub(crate) use hand_over::of_span;

pub use crate::traceparent::{hex, parts};
