//! Ways in which a process ends: the run is whole after each that lets a program do anything.
#![cfg(unix)]
#![allow(missing_docs, reason = "a test")]
#![allow(unsafe_code, reason = "fork, raise and exit are functions of the C library")]

use candlescope::Scope;
use candlescope::parquet::ParquetConfig;
use candlescope::run::{Code, RunManifest, judge};
use candlescope::sdk::{Batch, ExportError, Exporter, Ledger};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Set in the process that is the program.
const ROLE: &str = "CANDLESCOPE_TEST_PROCESS_END";
const RUN: &str = "CANDLESCOPE_TEST_RUN";

const SPANS: u64 = 1_000;

static SCOPE: OnceLock<Scope> = OnceLock::new();

fn start(sigterm: bool) -> Scope {
    let run = std::env::var_os(RUN).expect("a run");
    let config = ParquetConfig::new(Path::new(&run));
    candlescope::builder().parquet_with(config).end_on_sigterm(sigterm).report_at_end(true).install().expect("starts")
}

fn work() {
    (0..SPANS).for_each(|_| tracing::trace_span!("step").in_scope(|| ()));
}

fn terminate_self() {
    // SAFETY: sends a signal to this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGTERM) };
}

/// Sleeps until the process is ended by another thread.
fn wait_for_the_end() -> ! {
    std::thread::sleep(Duration::from_secs(30));
    std::process::exit(99);
}

#[test]
fn program() {
    let Ok(role) = std::env::var(ROLE) else { return };
    match role.as_str() {
        "exit" => {
            let _scope = start(false);
            work();
            std::process::exit(40);
        }
        "exit in a thread" => {
            let _scope = start(false);
            work();
            let _ = std::thread::spawn(|| std::process::exit(40)).join();
        }
        "static" => {
            let scope = SCOPE.get_or_init(|| start(false));
            assert!(scope.is_enabled());
            work();
        }
        "environment" => {
            let _scope = candlescope::init();
            work();
            terminate_self();
            wait_for_the_end();
        }
        "sigterm" | "sigterm without" => {
            let _scope = start(role == "sigterm");
            work();
            terminate_self();
            wait_for_the_end();
        }
        "sigterm with a handler" => {
            let mut signals = signal_hook::iterator::Signals::new([libc::SIGTERM]).expect("a handler");
            let _scope = start(true);
            work();
            terminate_self();
            signals.forever().next();
            // Goes on with what it has to do, and ends in order.
            std::thread::sleep(Duration::from_millis(300));
            work();
            std::process::exit(41);
        }
        "abort" => {
            let scope = start(false);
            work();
            scope.flush(Duration::from_secs(10)).expect("flushed");
            work();
            std::process::abort();
        }
        "fork" => {
            let scope = start(true);
            work();
            // SAFETY: the child only exits.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: runs what was registered for the end of the process.
                unsafe { libc::exit(7) };
            }
            let mut status = 0;
            // SAFETY: waits for the child.
            unsafe { libc::waitpid(child, &mut status, 0) };
            assert_eq!(libc::WEXITSTATUS(status), 7);
            // SAFETY: the child waits to be ended by the signal.
            let child = unsafe { libc::fork() };
            if child == 0 {
                terminate_self();
                std::thread::sleep(Duration::from_secs(20));
                // SAFETY: nothing is run at this end.
                unsafe { libc::_exit(8) };
            }
            // SAFETY: waits for the child.
            unsafe { libc::waitpid(child, &mut status, 0) };
            assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGTERM, "{status}");
            assert!(scope.finish().expect("recorded").complete);
        }
        "stuck" => {
            let _scope = candlescope::builder()
                .exporter(Stuck)
                .shutdown_timeout(Duration::from_millis(400))
                .install()
                .expect("starts");
            work();
            std::process::exit(40);
        }
        other => panic!("{other}?"),
    }
}

/// An exporter that never answers.
struct Stuck;

impl Exporter for Stuck {
    fn name(&self) -> &'static str {
        "stuck"
    }

    fn export(&mut self, _: &Batch, _: &Ledger) -> Result<(), ExportError> {
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    }
}

struct ProcessOutcome {
    status: ExitStatus,
    said: String,
    run: Option<RunManifest>,
    segments: usize,
    took: Duration,
}

fn ended(role: &str) -> ProcessOutcome {
    let dir = tempfile::tempdir().expect("a folder");
    let run = dir.path().join("run");
    let begun = Instant::now();
    let output = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "program", "--nocapture", "--quiet"])
        .env(ROLE, role)
        .env(RUN, &run)
        .env("CANDLESCOPE", format!("parquet={},sigterm", dir.path().join("by-env").display()))
        .output()
        .expect("starts");
    let took = begun.elapsed();
    let run = match role {
        "environment" => std::fs::read_dir(dir.path().join("by-env")).expect("runs").next().unwrap().unwrap().path(),
        _ => run,
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = std::fs::read_to_string(run.join("run.json")).ok();
    let finished = |name: &str| name.ends_with(".parquet");
    let segments = std::fs::read_dir(run.join("spans"))
        .map_or(0, |entries| entries.flatten().filter(|entry| finished(&entry.file_name().to_string_lossy())).count());
    ProcessOutcome {
        status: output.status,
        said,
        run: text.map(|t| serde_json::from_str(&t).expect("run.json")),
        segments,
        took,
    }
}

/// Whether the run has everything, and its account was printed once.
fn is_whole(role: &str, ended: &ProcessOutcome, spans: u64) {
    let run = ended.run.as_ref().unwrap_or_else(|| panic!("{role}: no run.json; {}", ended.said));
    assert!(run.complete && run.ended_ns.is_some(), "{role}: {}", ended.said);
    assert_eq!((run.counts["spans"], run.loss.lost()), (spans, 0), "{role}");
    assert!(ended.segments > 0, "{role}");
    let account = format!("candlescope: {spans} intervals in {spans} steps, 0 lost");
    assert_eq!(ended.said.matches(&account).count(), 1, "{role}: {}", ended.said);
}

#[test]
fn a_run_is_whole_when_its_process_exits() {
    for (role, code) in [("exit", 40), ("exit in a thread", 40), ("static", 0)] {
        let ended = ended(role);
        assert_eq!(ended.status.code(), Some(code), "{role}: {}", ended.said);
        is_whole(role, &ended, SPANS);
    }
}

#[test]
fn sigterm_ends_the_run_first_if_the_program_asks_for_that() {
    for role in ["sigterm", "environment"] {
        let ended = ended(role);
        assert_eq!(ended.status.signal(), Some(libc::SIGTERM), "{role}: it ends as it would have; {}", ended.said);
        is_whole(role, &ended, SPANS);
    }
    let without = ended("sigterm without");
    assert_eq!(without.status.signal(), Some(libc::SIGTERM), "nobody handles it: {}", without.said);
    assert!(!without.run.expect("it began").complete);
}

#[test]
fn a_program_that_handles_sigterm_itself_goes_on() {
    let ended = ended("sigterm with a handler");
    assert_eq!(ended.status.code(), Some(41), "{}", ended.said);
    is_whole("handler", &ended, 2 * SPANS);
}

#[test]
fn an_abort_costs_the_open_segment_and_the_run_says_so() {
    let ended = ended("abort");
    assert_eq!(ended.status.signal(), Some(libc::SIGABRT));
    let run = ended.run.expect("it began");
    assert!(!run.complete && ended.segments > 0, "what was flushed is there");
    let said = judge(&run).into_iter().find(|finding| finding.code == Code::RunIncomplete).expect("it is told");
    assert!(said.remedy().contains("end_on_sigterm") && said.remedy().contains("abort"), "{}", said.remedy());
}

#[test]
fn a_forked_child_ends_by_itself_and_leaves_the_run_to_its_parent() {
    let ended = ended("fork");
    assert!(ended.status.success(), "{}", ended.said);
    is_whole("fork", &ended, SPANS);
}

#[test]
fn an_exporter_that_hangs_does_not_keep_the_process() {
    let ended = ended("stuck");
    assert_eq!(ended.status.code(), Some(40), "{}", ended.said);
    assert!(ended.took < Duration::from_secs(20), "{:?}", ended.took);
}
