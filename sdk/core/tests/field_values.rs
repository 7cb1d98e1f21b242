//! Values of fields whose `Debug` is the program's own code.
#![allow(missing_docs, reason = "a test")]

mod common;

use common::record_default;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tracing::field::Empty;
use tracing::{Span, trace_span};

struct Panics;

impl fmt::Debug for Panics {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("a shape that cannot be shown")
    }
}

/// Records a value of the same span while its own value is formatted.
struct Records<'a>(&'a Span);

impl fmt::Debug for Records<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.record("tokens", 7_u64);
        self.0.record("dtype", tracing::field::debug(Records(self.0)));
        f.write_str("[2, 3]")
    }
}

fn layer() -> Span {
    trace_span!("layer", shape = Empty, dtype = Empty, tokens = Empty, flops = Empty)
}

#[test]
fn a_value_that_panics_is_unknown_and_harms_nobody() {
    let (batch, m) = record_default(|| {
        let span = layer();
        let _inside = span.enter();
        let recorded = catch_unwind(AssertUnwindSafe(|| span.record("shape", tracing::field::debug(Panics)).id()));
        assert!(recorded.is_ok(), "the panic stays inside");
        span.record("flops", 5_u64);
        span.record("flops", 6_u64);
        drop(trace_span!("made_with_one", shape = ?Panics).entered());
    });
    let layer = batch.spans.iter().find(|span| &*span.path.name == "layer").expect("recorded");
    assert_eq!((layer.shape, layer.flops), (None, Some(6)), "the later value, not their sum");
    assert!(batch.spans.iter().any(|span| &*span.path.name == "made_with_one") && m.loss.lost() == 0);
}

#[test]
fn a_value_that_records_into_its_own_span_waits_for_nobody() {
    let (batch, _) = record_default(|| {
        let span = layer();
        let _inside = span.enter();
        span.record("shape", tracing::field::debug(Records(&span)));
    });
    let layer = &batch.spans[0];
    assert_eq!((layer.tokens, layer.shape.map(|shape| shape.to_string())), (Some(7), Some("2x3".into())));
}
