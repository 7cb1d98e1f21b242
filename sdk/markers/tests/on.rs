//! Switched on, markers are spans under any subscriber.
#![cfg(feature = "enabled")]
// A test; this Rust may be too old for a `reason`.
#![allow(missing_docs)]

mod common;

use candlescope_markers::{self as markers, Request, Tokens, ENABLED};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A span that is first met without a subscriber while another test sets one can be missed by it: tests take turns.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn every_marker_is_a_span() {
    let _alone = alone();
    assert_eq!(ENABLED, cfg!(feature = "enabled"));
    // Spans: request, attn, layer, prefill, norm, sample, decode, encode, vision, step. Entered once each, but attn twice
    // and the request four times: by its guard, in a scope, by the future that is polled once, and when that is dropped.
    assert_eq!(common::seen_while(common::program), (10, 14));
}

#[test]
fn what_needs_a_span_is_there() {
    let _alone = alone();
    let request = Request::new("chat", "m");
    request.record_tokens(2);
    assert_eq!(request.output_tokens(), 2);
    let layer = markers::layer(3);
    let spans = [request.span(), layer.span()].map(tracing::Span::clone);
    let step = markers::decode(Tokens::new(1));
    step.record("tokens", 2u64);
    drop((spans, step.exit()));
}
