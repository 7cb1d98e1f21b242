//! A target under a fuzzer that sees which code an input reaches (libFuzzer, through `tests/fuzz/coverage`).
#![allow(clippy::print_stderr, reason = "what a fuzzer shows of a finding")]

use crate::targets::{self, APART, Target};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Once, OnceLock};

/// Names the target.
const VARIABLE: &str = "CANDLESCOPE_FUZZ_TARGET";

thread_local! {
    /// Where the target may write; one for the whole process.
    static SCRATCH: RefCell<Option<tempfile::TempDir>> = const { RefCell::new(None) };
}

/// The target that the environment asks for. One that starts a process for each input is none for a fuzzer that sees
/// code: it sees nothing of that process.
fn asked_for() -> &'static Target {
    let name = std::env::var(VARIABLE).unwrap_or_default();
    targets::ALL.iter().find(|target| target.name == name && !APART.contains(&target.name)).unwrap_or_else(|| {
        let names: Vec<&str> =
            targets::ALL.iter().map(|target| target.name).filter(|name| !APART.contains(name)).collect();
        eprintln!("{VARIABLE}={name}: no such target; there are {}", names.join(" "));
        std::process::exit(2);
    })
}

/// Gives `bytes` to the target that the environment asks for. A panic that reaches this place ends the process, as does
/// an unknown name.
///
/// # Panics
/// If there is no temporary directory.
pub fn run(bytes: &[u8]) {
    static QUIET: Once = Once::new();
    static TARGET: OnceLock<&Target> = OnceLock::new();
    let target = TARGET.get_or_init(asked_for);
    // The fuzzer ends the process at every panic, those included that a reader catches: here these are no finding.
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    SCRATCH.with_borrow_mut(|scratch| {
        let dir = scratch.get_or_insert_with(|| tempfile::tempdir().expect("a temporary directory"));
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.run)(dir.path(), bytes))) else { return };
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        eprintln!("{} panicked: {}", target.name, text.unwrap_or_default());
        std::process::abort();
    });
}
