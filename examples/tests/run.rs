//! Every example runs, and does what its first line says.
#![allow(missing_docs, reason = "a test")]
use std::path::Path;
use std::process::{Command, Output};

fn run(program: &str, dir: &Path, args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    command.current_dir(dir).args(args).env_remove("CANDLESCOPE").env_remove("RUST_LOG");
    for (key, value) in env {
        command.env(key, value);
    }
    let output = command.output().expect("the example runs");
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn manifest(run: &Path) -> serde_json::Value {
    serde_json::from_str(&std::fs::read_to_string(run.join("run.json")).expect("run.json")).expect("valid")
}

#[test]
fn instrument_existing() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(env!("CARGO_BIN_EXE_instrument_existing"), dir.path(), &["run"], &[]);
    let m = manifest(&dir.path().join("run"));
    // 16 steps of 4 blocks with 14 intervals, two more outside of blocks, and the step itself.
    assert_eq!(m["counts"]["spans"], 16 * (4 * 14 + 3));
    assert_eq!(m["counts"]["steps"], 16);
    assert_eq!(m["verdict"]["ok"], true, "{m}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("944 intervals in 16 steps, 0 lost"));
}

#[test]
fn environment() {
    let dir = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_environment");
    let silent = run(program, dir.path(), &[], &[]);
    assert!(silent.stderr.is_empty());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "unset, it leaves nothing behind");

    let loud = run(program, dir.path(), &[], &[("CANDLESCOPE", "parquet=runs,perfetto=t.pftrace,chrome=t.json")]);
    assert!(String::from_utf8_lossy(&loud.stderr).contains("90 intervals in 10 steps, 0 lost"));
    let runs: Vec<_> = std::fs::read_dir(dir.path().join("runs")).unwrap().flatten().collect();
    assert_eq!(runs.len(), 1);
    assert_eq!(manifest(&runs[0].path())["counts"]["spans"], 90);
    assert!(dir.path().join("t.pftrace").metadata().unwrap().len() > 0);
    let chrome: serde_json::Value = serde_json::from_slice(&std::fs::read(dir.path().join("t.json")).unwrap()).unwrap();
    assert!(chrome["traceEvents"].as_array().unwrap().len() >= 90);

    // Mistakes and unusable places are said, and the program goes on.
    let wrong = run(program, dir.path(), &[], &[("CANDLESCOPE", "parket=runs")]);
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("`parket` is not known"));
    assert!(String::from_utf8_lossy(&wrong.stdout).contains("ten steps done"));
    std::fs::write(dir.path().join("file"), "").unwrap();
    let wrong = run(program, dir.path(), &[], &[("CANDLESCOPE", "parquet=file/below")]);
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("file/below"));
}

#[test]
fn the_others() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(env!("CARGO_BIN_EXE_annotate_your_layers"), dir.path(), &[], &[]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text.matches("decode/up_proj").count(), 5, "{text}");
    // 2·128·512 FLOPs over 4·(128 + 128·512 + 512) bytes.
    assert!(text.contains("0.50 FLOP/B"), "{text}");
    assert!(text.contains("verdict ok: true"));
    let output = run(env!("CARGO_BIN_EXE_custom_exporter"), dir.path(), &[], &[]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("decode/block/linear") && text.contains("6 calls"), "{text}");
    run(env!("CARGO_BIN_EXE_capture_window"), dir.path(), &[], &[]);
}
