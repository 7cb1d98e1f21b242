//! Problems inside the profiler are reported, with a message that says what they are, and stop nothing.
#![allow(missing_docs, reason = "a test")]

use candlescope_core::gpu::{GpuClock, GpuLane, GpuLanes, GpuReport, MarkId, NoMark};
use candlescope_core::run::RunManifest;
use candlescope_core::{
    Batch, ExportError, Exporter, GpuTiming, HostNs, Ledger, MemoryExporter, Session, SessionBuilder, Tap, TapInterval,
    diagnostics,
};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tracing_subscriber::prelude::*;

/// An exporter that fails as its name says.
struct Bad(&'static str);

impl Exporter for Bad {
    fn name(&self) -> &'static str {
        self.0
    }

    fn start(&mut self, _: &RunManifest) -> Result<(), ExportError> {
        diagnostics::report(self.0, "starts with a warning");
        Ok(())
    }

    fn export(&mut self, _: &Batch, _: &Ledger) -> Result<(), ExportError> {
        // Without calling the panic hook, whose backtrace takes time.
        if self.0 == "panics" {
            std::panic::resume_unwind(Box::new("index out of bounds"));
        }
        diagnostics::report(self.0, "has more to say");
        Err(ExportError::new("the disk is full"))
    }
}

type Told = Arc<Mutex<Vec<String>>>;

/// Runs one step in a session. Returns the reported problems and the manifest.
fn run(builder: SessionBuilder) -> (Vec<String>, RunManifest) {
    let told = Told::default();
    let kept = told.clone();
    let builder = builder.on_problem(move |problem| {
        kept.lock().unwrap().push(problem.to_string());
        // The profiler's own threads are muted: this span must not be recorded.
        tracing::trace_span!("in the callback").in_scope(|| ());
        panic!("a callback that panics stops nothing");
    });
    let (layer, session) = builder.start().expect("starts");
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        tracing::trace_span!("step").in_scope(|| ());
        tracing::trace_span!(target: "candlescope::diagnostics", "left out").in_scope(|| ());
    });
    // A pipeline that has ended must say so.
    let _ = session.handle().flush(Duration::from_secs(5));
    let manifest = session.finish();
    let mut told = told.lock().unwrap().clone();
    told.sort();
    (told, manifest)
}

#[test]
fn exporters_that_fail_are_told_of_and_the_others_get_everything() {
    let memory = MemoryExporter::new();
    let builder = Session::builder().exporter(Bad("fails")).exporter(Bad("panics")).exporter(memory.clone());
    let (told, manifest) = run(builder);
    assert_eq!(
        told,
        [
            "fails: has more to say",
            "fails: starts with a warning",
            "fails: the disk is full",
            "panics: starts with a warning",
            "panics: the exporter panicked and gets no more records: index out of bounds",
        ]
    );
    assert_eq!(memory.batch().spans.len(), 1, "spans of the profiler's own are left out");
    assert!(manifest.complete && manifest.exporters.iter().all(|e| e.conserved()), "{:?}", manifest.exporters);
}

/// Panics at its first call.
struct BrokenClock;
struct NoLanes;
struct NoLane;

impl GpuClock for BrokenClock {
    fn name(&self) -> &'static str {
        "broken"
    }
    fn lanes(&self) -> Arc<dyn GpuLanes> {
        Arc::new(NoLanes)
    }
    fn poll(&mut self, _: &dyn Fn() -> HostNs, _: &mut dyn FnMut(GpuReport)) {
        std::panic::resume_unwind(Box::new("the driver went away".to_string()));
    }
}

impl GpuLanes for NoLanes {
    fn lane(&self, _: u32) -> Box<dyn GpuLane> {
        Box::new(NoLane)
    }
}

impl GpuLane for NoLane {
    fn mark(&mut self) -> Result<MarkId, NoMark> {
        Err(NoMark::NoContext)
    }
}

#[test]
fn a_panic_in_the_pipeline_is_called_one() {
    let memory = MemoryExporter::new();
    let builder = Session::builder().exporter(memory).gpu(BrokenClock, GpuTiming::default());
    let start = Instant::now();
    let (told, manifest) = run(builder.shutdown_timeout(Duration::from_secs(60)));
    assert!(start.elapsed() < Duration::from_secs(40), "nobody waits for what has ended: {:?}", start.elapsed());
    assert_eq!(told, ["the pipeline panicked, so nothing is recorded from here on: the driver went away"]);
    assert!(!manifest.complete && !manifest.verdict.ok);
    let finding = &manifest.verdict.findings[0];
    assert_eq!(finding.code, "pipeline_panicked");
    assert!(finding.message().ends_with("the driver went away"), "{}", finding.message());
}

/// Panics at the second call of the named kind.
struct BadTap(&'static str, std::sync::atomic::AtomicU64);

impl BadTap {
    fn called(&self, what: &str) {
        let calls = &self.1;
        if what == self.0 && calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 1 {
            // Without calling the panic hook, whose backtrace takes time.
            std::panic::resume_unwind(Box::new(format!("at the second {what}")));
        }
    }
}

impl Tap for BadTap {
    fn name(&self, _: u32, _: &str, _: &str) {
        self.called("name");
    }
    fn enter(&self, _: TapInterval) {
        self.called("enter");
    }
    fn exit(&self, _: TapInterval) {
        self.called("exit");
    }
}

#[test]
fn a_tap_that_panics_is_not_called_again_and_harms_nobody() {
    for what in ["name", "enter", "exit"] {
        let (memory, good) = (MemoryExporter::new(), Arc::new(BadTap("never", Default::default())));
        struct Good(Arc<BadTap>);
        impl Tap for Good {
            fn name(&self, _: u32, _: &str, _: &str) {}
            fn enter(&self, _: TapInterval) {
                self.0.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
            fn exit(&self, _: TapInterval) {}
        }
        let told = Told::default();
        let kept = told.clone();
        let builder = Session::builder().exporter(memory.clone()).tap(BadTap(what, Default::default()));
        let builder = builder.tap(Good(good.clone())).on_problem(move |problem| {
            kept.lock().unwrap().push(problem.to_string());
        });
        let (layer, session) = builder.start().expect("starts");
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            for _ in 0..10 {
                tracing::trace_span!("step").in_scope(|| tracing::trace_span!("inner").in_scope(|| ()));
            }
        });
        let manifest = session.finish();
        assert_eq!((memory.batch().spans.len(), memory.batch().steps.len()), (20, 10), "{what}");
        assert_eq!(good.1.load(std::sync::atomic::Ordering::Relaxed), 20, "{what}: the other tap hears of all");
        let told = told.lock().unwrap().clone();
        assert!(told.len() == 1 && told[0].contains(&format!("at the second {what}")), "{told:?}");
        assert!(manifest.verdict.findings.iter().any(|f| f.code == "tap_panicked"), "{:?}", manifest.verdict);
    }
}
