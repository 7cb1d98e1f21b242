//! A program that forks while it writes a run: the child changes nothing of it, and the parent's run is complete.
#![cfg(target_os = "linux")]
#![allow(missing_docs, unsafe_code, reason = "a test; fork has no safe form")]

use std::path::Path;
use std::time::{Duration, Instant};

/// Every file of the run, with its size and the time when it was written.
fn files(dir: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let entry = entry.expect("an entry");
        let metadata = entry.metadata().expect("known");
        if metadata.is_dir() {
            files(&entry.path(), found);
        } else {
            found.push(format!("{} {} {:?}", entry.path().display(), metadata.len(), metadata.modified()));
        }
    }
    found.sort();
}

fn steps(n: usize) {
    (0..n).for_each(|_| tracing::trace_span!("step").in_scope(|| tracing::trace_span!("inner").in_scope(|| ())));
}

#[test]
fn a_forked_child_touches_nothing_of_the_run() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let run = dir.path().join("run");
    let builder = candlescope::builder().parquet(&run).report_at_end(true).host(false);
    let mut scope = Some(builder.install().expect("starts"));
    steps(100);
    scope.as_ref().expect("there").flush(Duration::from_secs(30)).expect("flushes");
    let state = || {
        let mut found = Vec::new();
        files(&run, &mut found);
        found
    };
    let before = state();
    // SAFETY: the child does what a careless program does; in any case it ends with `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork");
    if child == 0 {
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            steps(100);
            let begin = Instant::now();
            drop(scope.take());
            begin.elapsed() < Duration::from_secs(8)
        }));
        // SAFETY: ends the process without running anything that belongs to the parent.
        unsafe { libc::_exit(if matches!(ended, Ok(true)) { 40 } else { 1 }) }
    }
    let mut status = 0;
    // SAFETY: `status` is a valid place to write to, and `child` is our child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 40, "the child ended with {status}");
    assert_eq!(state(), before, "the child touched the run");
    steps(100);
    let manifest = scope.take().expect("there").finish().expect("recorded");
    assert!(manifest.complete && manifest.verdict.ok, "{:?}", manifest.verdict);
    assert_eq!((manifest.counts["steps"], manifest.exporters[0].exported["steps"]), (200, 200));
}
