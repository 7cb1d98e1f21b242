//! Runs the command as a user would.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "shared by several test binaries")]
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub const BINARY: &str = env!("CARGO_BIN_EXE_candlescope");

/// With backtraces on: the messages must be fit for people all the same.
pub fn run(args: &[&str]) -> Output {
    Command::new(BINARY)
        .args(args)
        .env_remove("CANDLESCOPE")
        .env_remove("RUST_LOG")
        .env("RUST_BACKTRACE", "1")
        .output()
        .expect("the command runs")
}

/// Runs and expects success; standard output.
pub fn ok(args: &[&str]) -> String {
    let output = run(args);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{args:?}\n{out}\n{err}");
    out
}

/// Runs and expects failure with one clear line; standard error.
pub fn fails(args: &[&str]) -> String {
    let output = run(args);
    let err = text(&output.stderr);
    assert!(!output.status.success(), "{args:?} should fail\n{}", text(&output.stdout));
    assert!(!err.contains("panicked"), "{args:?}: {err}");
    assert!(err.contains("error:"), "{args:?}: {err}");
    err
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("not JSON ({e}): {text}"))
}

pub fn manifest(run: &Path) -> serde_json::Value {
    json(&std::fs::read_to_string(run.join("run.json")).expect("run.json"))
}

pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_path_buf()
}

/// The real model, if it has been fetched.
pub fn smollm2() -> Option<PathBuf> {
    let path = std::env::var_os("CANDLESCOPE_SMOLLM2")
        .map(PathBuf::from)
        .unwrap_or_else(|| workspace().join(".models/SmolLM2-135M-Instruct.Q4_1.gguf"));
    if path.is_file() {
        return Some(path);
    }
    eprintln!("skipped: the real model is not there; run tests/fetch-smollm2.sh");
    None
}

/// A Python with DuckDB and Polars, if `make venv` has been run.
pub fn python() -> Option<PathBuf> {
    let path = std::env::var_os("CANDLESCOPE_PYTHON")
        .map(PathBuf::from)
        .unwrap_or_else(|| workspace().join(".venv/bin/python"));
    if path.is_file() {
        return Some(path);
    }
    eprintln!("skipped: no Python with DuckDB and Polars; run make venv");
    None
}
