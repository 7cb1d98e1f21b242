//! A program that forks while it records: the session belongs to the parent, and the child neither waits for its
//! threads nor changes what it writes.
#![cfg(target_os = "linux")]
#![allow(missing_docs, unsafe_code, reason = "a test; fork has no safe form")]
mod common;
mod scripted;
use candlescope_core::run::RunManifest;
use candlescope_core::*;
use candlescope_testkit::SOON;
use common::*;
use scripted::{Device, Recorder};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::trace_span;
use tracing_subscriber::prelude::*;

/// Tests run one at a time, because a forked child must not inherit locks that another test holds.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// An exporter that writes into a file which process called it, and for what.
struct Diary(File);

impl Diary {
    fn new(path: &Path) -> Self {
        Self(File::create(path).expect("a file"))
    }
    fn write(&mut self, what: &str) {
        writeln!(self.0, "{} {what}", std::process::id()).expect("written");
    }
}

impl Exporter for Diary {
    fn name(&self) -> &'static str {
        "diary"
    }
    fn export(&mut self, batch: &Batch, ledger: &Ledger) -> Result<(), ExportError> {
        ledger.exported_batch(batch);
        self.write("export");
        Ok(())
    }
    fn close(&mut self, _: &Ledger) -> Result<(), ExportError> {
        self.write("close");
        Ok(())
    }
    fn finish(&mut self, _: &RunManifest) -> Result<(), ExportError> {
        self.write("finish");
        Ok(())
    }
}

impl Drop for Diary {
    fn drop(&mut self) {
        self.write("drop");
    }
}

fn steps(n: usize) {
    let (step, inner) = (trace_span!("step"), trace_span!("inner"));
    for _ in 0..n {
        let _step = step.enter();
        inner.in_scope(|| ());
    }
}

/// Runs `work` in a forked child and returns the exit status: the result of `work`, or 99 if it panicked.
fn in_child(work: impl FnOnce() -> u8) -> i32 {
    // SAFETY: the child does what a careless program does; in any case it ends with `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork");
    if child == 0 {
        let said = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(99);
        // SAFETY: ends the process without running anything that belongs to the parent.
        unsafe { libc::_exit(said.into()) }
    }
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let mut status = 0;
        // SAFETY: `status` is a valid place to write to, and `child` is our child.
        match unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } {
            0 if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(2)),
            0 => {
                // SAFETY: it is our child, and it has not ended.
                unsafe { libc::kill(child, libc::SIGKILL) };
                panic!("the child hangs");
            }
            _ if libc::WIFEXITED(status) => return libc::WEXITSTATUS(status),
            _ => panic!("the child ended with status {status}"),
        }
    }
}

#[test]
fn a_forked_child_leaves_the_session_to_its_parent_at_once() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = std::env::temp_dir().join(format!("candlescope-fork-{}", std::process::id()));
    let memory = MemoryExporter::new();
    let told = Arc::new(Mutex::new(Vec::new()));
    let kept = told.clone();
    let builder = Session::builder().exporter(Diary::new(&dir)).exporter(memory.clone());
    let builder = builder.on_problem(move |problem| kept.lock().unwrap().push(problem.to_string()));
    let (layer, session) = builder.start().expect("starts");
    let _default = tracing_subscriber::registry().with(layer).set_default();
    let mut session = Some(session);
    steps(100);
    for ending in ["finish", "drop", "goes on"] {
        let (mine, told) = (&mut session, &told);
        let status = in_child(move || {
            let session = mine.take().expect("there");
            let handle = session.handle().clone();
            // The child goes on as before, on this thread and on new ones.
            steps(100);
            let dispatch = tracing::dispatcher::get_default(tracing::Dispatch::clone);
            let work = move || tracing::dispatcher::with_default(&dispatch, || steps(100));
            std::thread::spawn(work).join().expect("ends");
            let begin = Instant::now();
            assert_eq!(handle.flush(Duration::from_secs(10)), Err(FlushError::Forked));
            assert!(handle.capture(MemoryExporter::new(), 1).is_err());
            handle.set_result("child", true);
            let _ = handle.stats();
            match ending {
                "finish" => {
                    let manifest = session.finish();
                    let codes: Vec<_> = manifest.verdict.findings.iter().map(|f| f.code.as_str()).collect();
                    assert_eq!((codes, manifest.complete, manifest.verdict.ok), (vec!["forked_process"], false, false));
                }
                "drop" => drop(session),
                _ => std::mem::forget(session),
            }
            assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
            let told = told.lock().unwrap();
            let lines = usize::from(ending != "goes on");
            assert!(told.len() == lines && told.iter().all(|t| t.contains("forked from the one")), "{told:?}");
            // A session of the child's own works.
            drop(told);
            let (batch, own) = record(Session::builder(), |_| steps(3));
            assert!(own.complete && batch.steps.len() == 3);
            40
        });
        assert_eq!(status, 40, "{ending}");
        steps(100);
    }
    let begin = Instant::now();
    let manifest = session.take().expect("there").finish();
    assert!(begin.elapsed() < SOON);
    assert_conserved(&manifest);
    assert!(manifest.complete && manifest.verdict.ok && manifest.results.is_empty(), "{:?}", manifest.verdict);
    assert_eq!(memory.batch().steps.len(), 400);
    assert!(told.lock().unwrap().is_empty());
    let diary = std::fs::read_to_string(&dir).expect("a diary");
    std::fs::remove_file(&dir).expect("ours");
    let me = std::process::id().to_string();
    assert!(diary.lines().all(|line| line.starts_with(&me)), "{diary}");
    assert!(diary.contains(&format!("{me} close\n{me} finish\n")), "{diary}");
}

#[test]
fn a_forked_child_has_no_window_and_waits_for_none() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let (layer, session) = Session::builder().kernels(Recorder(Device::new()), None).start().expect("starts");
    let _default = tracing_subscriber::registry().with(layer).set_default();
    let handle = session.handle();
    let refuses_all = || {
        in_child(|| {
            let begin = Instant::now();
            assert!(!handle.wait_for_kernels(SOON), "the recorder is the parent's");
            assert_eq!(handle.capture_kernels(1), Err(KernelsRefused::Failed));
            assert_eq!(handle.capture_next(1), Err(CaptureBusy { remaining: 0 }));
            assert_eq!(handle.stats().capture_remaining, 0);
            assert!(begin.elapsed() < SOON / 4, "{:?}", begin.elapsed());
            40
        })
    };
    assert_eq!(refuses_all(), 40, "before a window");
    handle.capture_kernels(2).expect("none is open");
    assert!(handle.wait_for_kernels(SOON));
    handle.capture_next(1).expect("none is open");
    assert_eq!(refuses_all(), 40, "within windows");
    assert_eq!(handle.stats().capture_remaining, 1, "the parent's goes on");
}
