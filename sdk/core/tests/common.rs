#![allow(dead_code, unreachable_pub, missing_docs, reason = "shared by several test binaries")]
use candlescope_core::run::RunManifest;
use candlescope_core::{Batch, MemoryExporter, Session, SessionBuilder, SpanRecord, StepRecord};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tracing_subscriber::prelude::*;

/// Runs `f` under a session and returns what was recorded.
pub fn record(builder: SessionBuilder, f: impl FnOnce(&candlescope_core::Handle)) -> (Batch, RunManifest) {
    let memory = MemoryExporter::new();
    let (layer, session) = builder.exporter(memory.clone()).start().expect("starts");
    let handle = session.handle().clone();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || f(&handle));
    let manifest = session.finish();
    (memory.batch(), manifest)
}

/// A session with little room, which is drained only at commands and at the end.
pub fn tight() -> SessionBuilder {
    Session::builder().ring_capacity(256).drain_interval(Duration::from_secs(3600))
}

/// Number of intervals that a step lost.
pub fn lost(step: &StepRecord) -> u64 {
    step.intervals_lost.expect("known while it is recorded")
}

/// Number of intervals of a step, recorded or not.
pub fn made(step: &StepRecord) -> u64 {
    step.intervals + lost(step)
}

pub fn record_default(f: impl FnOnce()) -> (Batch, RunManifest) {
    record(Session::builder(), |_| f())
}

pub fn paths(batch: &Batch) -> Vec<&str> {
    sorted(batch).into_iter().map(|s| s.path.path.as_str()).collect()
}

pub fn sorted(batch: &Batch) -> Vec<&SpanRecord> {
    let mut spans: Vec<_> = batch.spans.iter().collect();
    spans.sort_by_key(|s| s.seq);
    spans
}

pub fn assert_conserved(m: &RunManifest) {
    assert_eq!(m.loss.emitted, m.counts["spans"] + m.loss.lost(), "emitted = records + lost: {:?}", m.loss);
    assert_eq!(m.loss.unresolved, 0, "what the drain reads becomes a record");
    for e in &m.exporters {
        assert!(e.conserved(), "{e:?}");
        assert_eq!(e.received["spans"], m.counts["spans"]);
    }
}

/// Ends the threads of a test also if it fails: a scope waits for them.
pub struct Stop<'a>(pub &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
