//! Standard error that nobody reads, or that is full: the profiled program ends as if nothing were wrong.
#![cfg(unix)]
#![allow(missing_docs, reason = "a test")]

use candlescope::run::RunManifest;
use candlescope::sdk::{Batch, ExportError, Exporter, Ledger, MemoryExporter};
use std::process::{Command, Stdio};

/// Set in the process that is the program; says how the program uses the library.
const ROLE: &str = "CANDLESCOPE_TEST_BROKEN_STDIO";

/// Fails with every batch, and reports a problem in addition.
struct Complains;

impl Exporter for Complains {
    fn name(&self) -> &'static str {
        "complains"
    }

    fn start(&mut self, _: &RunManifest) -> Result<(), ExportError> {
        candlescope::sdk::diagnostics::report("complains", "at the start");
        Ok(())
    }

    fn export(&mut self, batch: &Batch, ledger: &Ledger) -> Result<(), ExportError> {
        ledger.dropped_batch(batch, candlescope::sdk::DropReason::Io);
        Err(ExportError::new("cannot write"))
    }
}

/// The program. It is not run by itself, because its standard streams would then be the test harness's.
#[test]
fn program() {
    let Ok(role) = std::env::var(ROLE) else { return };
    if role == "environment" {
        // A value that is not understood is reported although nobody may be listening.
        let scope = candlescope::init();
        assert!(!scope.is_enabled());
        std::process::exit(40);
    }
    let memory = MemoryExporter::new();
    let builder = candlescope::builder().exporter(Complains).exporter(memory.clone()).report_at_end(true);
    let scope = builder.install().expect("starts");
    tracing::trace_span!("step").in_scope(|| tracing::error!("a log line, where RUST_LOG asks for it"));
    match role.as_str() {
        "finish" => {
            let manifest = scope.finish().expect("recorded");
            assert!(manifest.exporters.iter().all(|e| e.conserved()));
        }
        // During another panic, where a second panic would abort.
        "unwinding" => {
            std::panic::set_hook(Box::new(|_| ()));
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let _scope = scope;
                panic!("the program's own");
            }));
            assert!(panicked.is_err());
        }
        _ => drop(scope),
    }
    assert_eq!(memory.batch().spans.len(), 1);
    std::process::exit(40);
}

/// Standard error of the program. Its standard output is the test harness's own; another test checks that the
/// libraries' sources print nothing.
fn broken(kind: &str) -> Stdio {
    if kind == "full" {
        return Stdio::from(std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full"));
    }
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    Stdio::from(writer)
}

#[test]
fn a_program_that_nobody_listens_to_ends_as_it_would_have() {
    let kinds: &[&str] = if cfg!(target_os = "linux") { &["closed", "full"] } else { &["closed"] };
    for kind in kinds {
        for role in ["finish", "drop", "unwinding", "environment"] {
            let status = Command::new(std::env::current_exe().expect("this test"))
                .args(["--exact", "program", "--nocapture", "--quiet"])
                .env(ROLE, role)
                .env("RUST_LOG", "trace")
                .env("CANDLESCOPE", "nonsense=1")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(broken(kind))
                .status()
                .expect("starts");
            // A status of its own: the harness ends with 0 or 101, and an abort without a status.
            assert_eq!(status.code(), Some(40), "{kind}, {role}: {status}");
        }
    }
}

#[test]
fn problems_and_the_account_are_on_standard_error_where_somebody_reads() {
    let run = |role: &str| {
        let output = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "program", "--nocapture", "--quiet"])
            .env(ROLE, role)
            .env("RUST_LOG", "warn")
            .env("CANDLESCOPE", "nonsense=1")
            .output()
            .expect("starts");
        assert_eq!(output.status.code(), Some(40));
        String::from_utf8(output.stderr).expect("text")
    };
    let said = run("finish");
    for line in [
        "candlescope: complains: at the start",
        "candlescope: complains: cannot write",
        "candlescope: 1 intervals in 1 steps",
    ] {
        assert_eq!(said.matches(line).count(), 1, "{line} once in\n{said}");
    }
    assert!(!said.contains("candlescope::diagnostics"), "not a second time as log lines:\n{said}");
    assert!(said.contains("a log line"), "{said}");
    assert!(run("environment").contains("entry 1 is not known"));
}
