//! `candlescope ncu` with a stand-in for ncu.
#![cfg(unix)]
#![allow(missing_docs, reason = "a test")]
mod common;
use common::{candlescope, fake_ncu, text};
use std::path::Path;
use std::process::{Output, Stdio};

fn run(dir: &Path, args: &[&str]) -> Output {
    let mut command = candlescope();
    command.arg("ncu").args(args).env_remove("CANDLESCOPE").env("CANDLESCOPE_NCU", dir.join("ncu"));
    command.current_dir(dir).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn counters_of_a_path() {
    let dir = tempfile::tempdir().unwrap();
    fake_ncu(dir.path(), r#"touch "$out.ncu-rep"; "$@""#);
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
    fake_ncu(dir.path(), "exit 1");
    let output = run(dir.path(), &["--", "true"]);
    let why = text(&output.stderr);
    assert!(!output.status.success() && why.contains("wrote no report") && why.contains("doctor"), "{why}");
    let output = run(dir.path(), &["--path", "decode//x", "--", "true"]);
    assert!(text(&output.stderr).contains("names of intervals"), "{}", text(&output.stderr));
    fake_ncu(dir.path(), r#"touch "$out.ncu-rep""#);
    let output = run(dir.path(), &["--run", "nowhere", "--", "true"]);
    assert!(!output.status.success() && text(&output.stderr).contains("nowhere"), "{}", text(&output.stderr));
    let mut command = candlescope();
    command.args(["ncu", "--", "true"]).env("CANDLESCOPE_NCU", "").env("PATH", dir.path().join("none"));
    let output = command.output().unwrap();
    assert!(text(&output.stderr).contains("CANDLESCOPE_NCU"), "{}", text(&output.stderr));
}
