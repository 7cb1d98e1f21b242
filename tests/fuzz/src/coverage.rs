//! A target under a fuzzer that sees which code an input reaches (libFuzzer, through `tests/fuzz/coverage`).
#![allow(clippy::print_stderr, reason = "what a fuzzer shows of a finding")]

use crate::targets;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// Where the target may write; one for the whole process.
    static SCRATCH: RefCell<Option<tempfile::TempDir>> = const { RefCell::new(None) };
}

/// Gives `bytes` to the target called `name`. A panic that reaches this place ends the process.
///
/// # Panics
/// If there is no such target, or no temporary directory.
pub fn run(name: &str, bytes: &[u8]) {
    static QUIET: Once = Once::new();
    // The fuzzer ends the process at every panic, those included that a reader catches: here these are no finding.
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    let target = targets::ALL.iter().find(|target| target.name == name).expect("a target of this name");
    SCRATCH.with_borrow_mut(|scratch| {
        let dir = scratch.get_or_insert_with(|| tempfile::tempdir().expect("a temporary directory"));
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.run)(dir.path(), bytes))) else { return };
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        eprintln!("{name} panicked: {}", text.unwrap_or_default());
        std::process::abort();
    });
}
