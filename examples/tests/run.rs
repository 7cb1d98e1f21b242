//! Every example runs and does what its first line says.
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

    // Mistakes and unusable destinations are reported, and the program goes on.
    let wrong = run(program, dir.path(), &[], &[("CANDLESCOPE", "parket=runs")]);
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("`parket` (did you mean `parquet`?) is not known"));
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
    run(env!("CARGO_BIN_EXE_requests"), dir.path(), &[], &[]);
}

#[test]
fn faults() {
    let dir = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_faults");
    let unknown = Command::new(program).env("FAULTS", "rust").output().unwrap();
    assert!(!unknown.status.success() && String::from_utf8_lossy(&unknown.stderr).contains("there are dump, handed"));
    let variable = |name: &str| format!("parquet={}", dir.path().join(name).display());
    let output = run(program, dir.path(), &[], &[("FAULTS", "padding"), ("CANDLESCOPE", &variable("padding"))]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("3456 tokens"));
    let runs: Vec<_> = std::fs::read_dir(dir.path().join("padding")).unwrap().flatten().collect();
    assert_eq!(manifest(&runs[0].path())["counts"]["steps"], 24);
}

/// The example counts for itself, and ends with an error where the records say something else.
#[test]
fn batching_engine() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(env!("CARGO_BIN_EXE_batching_engine"), dir.path(), &["run"], &[]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("11 requests done, 1 cancelled") && said.contains("as the engine counted"), "{said}");
    let m = manifest(&dir.path().join("run"));
    assert_eq!(m["counts"]["requests"], 12);
    assert_eq!(m["verdict"]["ok"], true, "{m}");
}

#[test]
fn csv_exporter() {
    let dir = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_csv_exporter");
    let output = run(program, dir.path(), &["steps.csv"], &[]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    // Steps are exported, other records are left out on purpose, and nothing is unaccounted for.
    assert!(said.contains("\"steps\": 3") && said.contains("\"not_taken\"") && !said.contains("unaccounted"), "{said}");
    let table = std::fs::read_to_string(dir.path().join("steps.csv")).unwrap();
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines[0], ["step", "phase", "host_start_ns", "host_dur_ns", "gpu_dur_ns"]);
    assert_eq!(lines.len(), 4, "{table}");
    assert!(lines[1..].iter().all(|l| l.len() == 5 && l[1] == "decode" && l[3] != "0" && l[4].is_empty()), "{table}");

    // The second time, the file exists already.
    let again = Command::new(program).current_dir(dir.path()).arg("steps.csv").output().unwrap();
    assert!(!again.status.success());
    assert!(String::from_utf8_lossy(&again.stderr).contains("steps.csv"), "{again:?}");
    assert_eq!(std::fs::read_to_string(dir.path().join("steps.csv")).unwrap(), table);
}

/// CONTRIBUTING.md shows the code of the example, so it compiles and does what the test above checks.
#[test]
fn contributing_shows_the_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let code = std::fs::read_to_string(root.join("examples/csv_exporter.rs")).unwrap();
    let file = root.join("CONTRIBUTING.md");
    let page = std::fs::read_to_string(&file).unwrap();
    let mark = "<!-- code: examples/csv_exporter.rs -->\n```rust\n";
    let (before, rest) = page.split_once(mark).expect("the mark");
    let (shown, after) = rest.split_once("```\n").expect("the end of the code");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, format!("{before}{mark}{code}```\n{after}")).unwrap();
    } else {
        assert!(
            shown == code,
            "CONTRIBUTING.md is out of date: UPDATE_DOCS=1 cargo test -p candlescope-examples --test run"
        );
    }
}
