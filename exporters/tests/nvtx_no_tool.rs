//! The NVTX tap with no tool attached: it reports that, does nothing, and allocates nothing.
#![allow(missing_docs, unreachable_pub, reason = "a test")]

use candlescope_core::{Phase, Session, SpanId, Tap, TapInterval};
use candlescope_exporters::nvtx::NvtxTap;
use candlescope_testkit::allocations::{Counting, allocator_calls, assert_counting};
use std::hint::black_box;
use std::time::Instant;
use tracing::trace_span;
use tracing_subscriber::prelude::*;

#[global_allocator]
static GLOBAL: Counting = Counting;

fn interval(name: u32) -> TapInterval {
    TapInterval { name, span_id: SpanId(7), phase: Some(Phase::Decode), is_step: true, depth: 0 }
}

#[test]
fn without_a_tool_there_is_no_tap() {
    assert!(!NvtxTap::new().is_attached());
    assert!(NvtxTap::attached().is_none());
}

#[test]
fn without_a_tool_nothing_is_allocated_and_nothing_fails() {
    let tap = NvtxTap::new();
    assert_counting();
    let calls = allocator_calls(|| {
        tap.name(1, "linear", "candle_nn");
        // More exits than enters, and names never announced.
        for name in [0, 1, 255, 256, 65_535, 65_536, u32::MAX] {
            tap.enter(interval(name));
            tap.exit(interval(name));
            tap.exit(interval(name));
        }
    });
    assert_eq!(calls, 0);
}

#[test]
fn a_session_with_an_idle_tap_records_as_without() {
    let (layer, session) = Session::builder().tap(NvtxTap::new()).start().expect("starts");
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let span = trace_span!("linear");
        for _ in 0..10 {
            let _e = span.enter();
        }
    });
    assert_eq!(session.finish().counts["spans"], 10);
}

/// Prints the cost: `cargo test -p candlescope-exporters --features nvtx --test nvtx_no_tool -- --nocapture cost`.
#[test]
fn cost_is_a_branch() {
    const ROUNDS: u32 = 1_000_000;
    let tap: Box<dyn Tap> = Box::new(NvtxTap::new());
    let mut best = f64::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        for i in 0..ROUNDS {
            black_box(&tap).enter(black_box(interval(i & 63)));
            black_box(&tap).exit(black_box(interval(i & 63)));
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(ROUNDS));
    }
    println!("enter and exit with no tool, through the trait object: {best:.1} ns");
    // A call into NVTX would add two indirect calls; an allocation or a lock about 20 ns each.
    assert!(best < 100.0, "{best} ns");
}
