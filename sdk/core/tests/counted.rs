//! What a session counts as lost or odd is a finding of its verdict: each made by a session that does it.
#![allow(missing_docs, reason = "a test")]
mod common;
mod scripted;

use candlescope_core::run::{Code, RunManifest};
use candlescope_core::{
    Batch, CollectError, Collector, DropReason, ExportError, Exporter, Ledger, Samples, Schedule, Session,
};
use candlescope_testkit::SOON;
use common::{record, tight};
use scripted::{Device, Recorder};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tracing::trace_span;

fn found(manifest: &RunManifest, code: &Code) -> bool {
    manifest.verdict.findings.iter().any(|finding| finding.code == *code)
}

fn assert_found(manifest: &RunManifest, code: Code) {
    assert!(found(manifest, &code), "no finding {code}: {:?} {:?}", manifest.loss, manifest.verdict.findings);
}

/// More requests than wait for the drain, which has no round before the end.
#[test]
fn requests_that_nobody_fetched() {
    let (_, manifest) = record(tight(), |_| {
        for _ in 0..6_000 {
            drop(candlescope_core::llm::Request::new("chat", "m"));
        }
    });
    assert!(manifest.loss.requests_lost > 0, "{:?}", manifest.loss);
    assert_found(&manifest, Code::RequestsLost);
}

/// Takes samples as fast as it is asked.
struct Eager(Arc<AtomicUsize>);

impl Collector for Eager {
    fn name(&self) -> &'static str {
        "eager"
    }

    fn period(&self) -> Duration {
        Duration::from_micros(10)
    }

    fn sample(&mut self, out: &mut Samples<'_>) -> Result<(), CollectError> {
        let n = self.0.fetch_add(1, Ordering::Relaxed);
        out.push(&"host".into(), "calls", n as f64, "count");
        Ok(())
    }
}

#[test]
fn samples_that_nobody_fetched() {
    let taken = Arc::<AtomicUsize>::default();
    let (_, manifest) = record(tight().collector(Eager(taken.clone())), |_| {
        candlescope_testkit::wait_until(|| taken.load(Ordering::Relaxed) > 3_000, "samples are taken");
    });
    assert!(manifest.loss.samples_lost > 0, "{:?}", manifest.loss);
    assert_found(&manifest, Code::SamplesLost);
}

/// Drops what it gets for this reason, or fails after having taken it.
struct Picky(Option<DropReason>);

impl Exporter for Picky {
    fn name(&self) -> &'static str {
        "picky"
    }

    fn start(&mut self, _: &RunManifest) -> Result<(), ExportError> {
        Ok(())
    }

    fn export(&mut self, batch: &Batch, ledger: &Ledger) -> Result<(), ExportError> {
        let Some(reason) = self.0 else {
            ledger.exported_batch(batch);
            return Err(ExportError::new("the disk was slow"));
        };
        ledger.dropped_batch(batch, reason);
        Ok(())
    }
}

#[test]
fn an_exporter_at_its_limit_or_with_an_error() {
    for (reason, code) in [(Some(DropReason::Limit), Code::ExporterLimit), (None, Code::ExporterError)] {
        let (_, manifest) = record(Session::builder().exporter(Picky(reason)), |_| {
            trace_span!("step").in_scope(|| ());
        });
        assert_found(&manifest, code);
    }
}

#[test]
fn a_window_of_kernels_that_no_step_reached() {
    let schedule = Schedule { skip_first: 1_000, wait: 0, warmup: 0, active: 2, repeat: 1 };
    let builder = Session::builder().kernels(Recorder(Device::new()), Some(schedule));
    let (_, manifest) = record(builder, |handle| {
        handle.wait_for_kernels(SOON);
        trace_span!("step").in_scope(|| ());
    });
    assert_found(&manifest, Code::NoKernelWindow);
}
