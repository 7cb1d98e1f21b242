//! Prometheus' own tool.

use candlescope_testkit::services::prometheus_programs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) fn promtool() -> PathBuf {
    prometheus_programs().join("promtool")
}

/// Runs a program with `input` on its standard input; returns whether it succeeded, and its output.
pub(crate) fn stdin_to(program: &Path, arguments: &[&str], input: &[u8]) -> (bool, String) {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    child.stdin.take().expect("stdin").write_all(input).expect("reads");
    let output = child.wait_with_output().expect("ends");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.success(), said)
}
