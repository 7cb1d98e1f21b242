//! `candlescope ncu` with a stand-in for ncu.
#![cfg(unix)]
#![allow(missing_docs, reason = "a test")]
mod common;
use common::{candlescope, text};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Output, Stdio};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../analysis/tests/fixtures/ncu-raw-page.csv");

/// Writes a program named ncu that notes its arguments, runs the command after them unless told otherwise, and prints
/// the page of counters.
fn fake(dir: &Path, measure: &str) {
    let script = format!(
        r#"#!/bin/bash
here=$(dirname "$(readlink -f "$0")")
echo "$@" >>"$here/calls"
if [ "$1" = --import ]; then cat {PAGE:?}; exit; fi
while [ "$1" != "--export" ]; do shift; done
out=$2
shift 2
echo "$CANDLESCOPE" >"$here/variable"
echo "==PROF== Connected"
{measure}
"#
    );
    std::fs::write(dir.join("ncu"), script).unwrap();
    std::fs::set_permissions(dir.join("ncu"), std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn run(dir: &Path, args: &[&str]) -> Output {
    let mut command = candlescope();
    command.arg("ncu").args(args).env_remove("CANDLESCOPE").env("CANDLESCOPE_NCU", dir.join("ncu"));
    command.current_dir(dir).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn counters_of_a_path() {
    let dir = tempfile::tempdir().unwrap();
    fake(dir.path(), r#"touch "$out.ncu-rep"; "$@""#);
    let args = ["--path", "decode/block[3]/mlp", "--kernel", "gemm", "--launches", "7", "--out", "sub/p"];
    let output = run(dir.path(), &[&args[..], &["--", "echo", "from the program"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let calls = std::fs::read_to_string(dir.path().join("calls")).unwrap();
    for wanted in ["--nvtx-include candlescope@decode/block/mlp/", "--kernel-name regex:gemm", "--launch-count 7"] {
        assert!(calls.contains(wanted), "{wanted}: {calls}");
    }
    assert!(calls.contains("--metrics gpu__time_duration.sum,") && calls.contains("--clock-control none"), "{calls}");
    let variable = std::fs::read_to_string(dir.path().join("variable")).unwrap();
    assert!(variable.starts_with("nvtx,parquet=") && variable.contains("sub/p.runs"), "{variable}");
    let shown = text(&output.stdout);
    assert!(shown.contains("from the program") && shown.contains("gate_proj"), "{shown}");
    assert!(dir.path().join("sub/p.ncu.csv").is_file());
    let output = run(dir.path(), &["--json", "--out", "q", "--", "echo", "x"]);
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).expect("only the object");
    assert_eq!((&object["counters"]["kernels"], &object["run"]), (&10.into(), &serde_json::Value::Null));
}

#[test]
fn what_goes_wrong_is_named() {
    let dir = tempfile::tempdir().unwrap();
    fake(dir.path(), "exit 1");
    let output = run(dir.path(), &["--", "true"]);
    let why = text(&output.stderr);
    assert!(!output.status.success() && why.contains("wrote no report") && why.contains("doctor"), "{why}");
    let output = run(dir.path(), &["--path", "decode//x", "--", "true"]);
    assert!(text(&output.stderr).contains("names of intervals"), "{}", text(&output.stderr));
    fake(dir.path(), r#"touch "$out.ncu-rep""#);
    let output = run(dir.path(), &["--run", "nowhere", "--", "true"]);
    assert!(!output.status.success() && text(&output.stderr).contains("nowhere"), "{}", text(&output.stderr));
    let mut command = candlescope();
    command.args(["ncu", "--", "true"]).env("CANDLESCOPE_NCU", "").env("PATH", dir.path().join("none"));
    let output = command.output().unwrap();
    assert!(text(&output.stderr).contains("CANDLESCOPE_NCU"), "{}", text(&output.stderr));
}
