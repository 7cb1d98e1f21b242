//! Switched off, markers are nothing: no bytes, no spans, no code that ends anything.
#![cfg(not(feature = "enabled"))]
// A test; this Rust may be too old for a `reason`.
#![allow(missing_docs)]

mod common;

use candlescope_markers::{self as markers, Entered, Inside, Module, Request, Tokens, ENABLED};
use std::mem::size_of;

#[test]
fn nothing_has_bytes() {
    assert_eq!(ENABLED, cfg!(feature = "enabled"));
    assert_eq!((size_of::<Entered>(), size_of::<Inside<'_>>()), (0, 0));
    assert_eq!((size_of::<Module>(), size_of::<Request>()), (0, 0));
    let future = std::future::ready(7);
    let marked = Request::new("chat", "m").instrument(future.clone());
    assert_eq!(std::mem::size_of_val(&marked), std::mem::size_of_val(&future), "the future itself");
}

#[test]
fn a_subscriber_sees_nothing() {
    let seen = common::seen_while(common::program);
    assert_eq!(seen, (0, 0), "spans and enters");
    let seen = common::seen_while(|| tracing::info_span!("seen").in_scope(|| drop(markers::step(Tokens::new(1)))));
    assert_eq!(seen, (1, 1), "the program's own spans are seen");
}
