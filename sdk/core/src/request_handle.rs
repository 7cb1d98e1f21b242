//! Connects an [`llm::Request`](crate::llm::Request) with the session that records it.
//!
//! The layer sees only a span. While `Request` makes its span, the layer leaves the request's number here, on the same
//! thread.

use crate::shared::Shared;
use std::cell::Cell;
use std::sync::Arc;

/// A request as its session knows it.
pub(crate) struct RequestHandle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) number: u32,
}

thread_local! {
    /// Whether somebody waits for the handle of the next request.
    static WANTED: Cell<bool> = const { Cell::new(false) };
    static LEFT: Cell<Option<RequestHandle>> = const { Cell::new(None) };
}

/// Runs `make_span` and returns the handle of the request that it made, if a session records requests here.
pub(crate) fn of_span<T>(make_span: impl FnOnce() -> T) -> (T, Option<RequestHandle>) {
    let _ = WANTED.try_with(|wanted| wanted.set(true));
    let span = make_span();
    let _ = WANTED.try_with(|wanted| wanted.set(false));
    (span, LEFT.try_with(Cell::take).ok().flatten())
}

/// Called by the layer for each new request.
pub(crate) fn leave(shared: &Arc<Shared>, number: u32) {
    // A request that is a span of the program's own has nobody who takes its handle, which would keep the session's
    // memory.
    if WANTED.try_with(Cell::get).unwrap_or(false) {
        let _ = LEFT.try_with(|left| left.set(Some(RequestHandle { shared: shared.clone(), number })));
    }
}
