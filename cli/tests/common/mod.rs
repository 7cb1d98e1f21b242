//! Runs the command as a user would.
#![allow(dead_code, unused_imports, unreachable_pub, missing_docs, reason = "shared by several test binaries")]
pub use candlescope_testkit::tools::{MINILM, NSYS, PYTHON, SMOLLM2, SmallDisk, require};
pub use candlescope_testkit::{ROOT, text, wait_until};
use std::path::Path;
use std::process::{Command, Output};

pub const BINARY: &str = env!("CARGO_BIN_EXE_candlescope");

/// The command of a user who has set nothing up and measured nothing: peaks that are kept for this machine would become
/// roofs of the runs that a test makes.
pub fn candlescope() -> Command {
    let mut command = Command::new(BINARY);
    command.env_remove("CANDLESCOPE").env_remove("CANDLESCOPE_LIMITS").env_remove("RUST_LOG");
    command.env("XDG_CACHE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/nothing-kept"));
    command
}

/// With backtraces on: the messages must be readable even then.
pub fn run(args: &[&str]) -> Output {
    candlescope().args(args).env("RUST_BACKTRACE", "1").output().expect("the command runs")
}

/// Runs the command, expects success, and returns standard output.
pub fn ok(args: &[&str]) -> String {
    let output = run(args);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{args:?}\n{out}\n{err}");
    out
}

/// Runs the command, expects failure with a one-line message, and returns standard error.
pub fn fails(args: &[&str]) -> String {
    let output = run(args);
    let err = text(&output.stderr);
    assert!(!output.status.success(), "{args:?} should fail\n{}", text(&output.stdout));
    assert!(!err.contains("panicked"), "{args:?}: {err}");
    assert!(err.contains("error:"), "{args:?}: {err}");
    err
}

pub fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("not JSON ({e}): {text}"))
}

pub fn manifest(run: &Path) -> serde_json::Value {
    json(&std::fs::read_to_string(run.join("run.json")).expect("run.json"))
}
