//! Runs the command as a user would.
#![allow(dead_code, unused_imports, unreachable_pub, missing_docs, reason = "shared by several test binaries")]
use candlescope_testkit::collector::{reply, serve};
pub use candlescope_testkit::tools::{MINILM, NSYS, PYTHON, SMOLLM2, SmallDisk, require};
pub use candlescope_testkit::{ROOT, text, wait_until};
use std::path::Path;
use std::process::{Command, Output, Stdio};

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

/// Copies a directory with all that is in it.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let into = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy(&entry.path(), &into);
        } else {
            std::fs::copy(entry.path(), into).expect("a file");
        }
    }
}

/// What DuckDB and Spark SQL answer to these queries over these runs, by engine and by name of the query; `None` without
/// Python.
#[track_caller]
pub fn in_other_engines(
    runs: &[&str],
    queries: &serde_json::Map<String, serde_json::Value>,
) -> Option<serde_json::Value> {
    let python = require(&PYTHON)?;
    let script = |engine: &str| ok(&[&["views", engine], runs].concat());
    let asked = serde_json::json!({"duckdb": script("duckdb"), "spark": script("spark"), "queries": queries});
    let mut child = Command::new(python)
        .arg(Path::new(ROOT).join("tests/python/engines.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    serde_json::to_writer(child.stdin.take().unwrap(), &asked).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(json(text(&output.stdout).trim()))
}

/// Values of a figure in the parts of a window, about `middle`.
fn values(middle: f64, end: i64) -> Vec<serde_json::Value> {
    let factors = [0.99, 1.01, 1.0, 1.02, 0.98, 1.0, 1.01, 0.99, 1.0, 1.0, 1.01, 0.99];
    let value = |(at, factor): (usize, &f64)| serde_json::json!([end + at as i64, (middle * factor).to_string()]);
    factors.iter().enumerate().map(value).collect()
}

/// A Prometheus with these times to the first token in milliseconds: of the window that is judged, then those before, the
/// earliest first.
pub fn prometheus(times: Vec<f64>) -> String {
    let (address, _) = serve(move |n, stream| {
        let result = match n {
            0 => serde_json::json!([{ "metric": {}, "value": [0, "1"] }]),
            _ => match times.get(n - 1) {
                Some(ms) => serde_json::json!([
                    { "metric": { "figure": "ttft_ns" }, "values": values(ms * 1e6, 0) },
                    { "metric": { "figure": "requests_per_s" }, "values": values(2.0, 0) },
                ]),
                None => {
                    serde_json::json!([{ "metric": { "path": "decode/attn", "root": "decode" }, "value": [0, "0.4"] }])
                }
            },
        };
        let body = serde_json::json!({ "status": "success", "data": { "result": result } }).to_string();
        reply(stream, "200 OK", "content-type: application/json\r\n", body.as_bytes());
    });
    format!("http://user:sesame-1@{address}")
}
