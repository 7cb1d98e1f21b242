//! Runs the command as a user would.
#![allow(dead_code, unused_imports, unreachable_pub, missing_docs, reason = "shared by several test binaries")]
use candlescope_core::{Exporter as _, Ledger};
use candlescope_exporters::parquet::{ParquetConfig, ParquetExporter};
use candlescope_testkit::collector::{reply, serve};
use candlescope_testkit::ranks::MadeRank;
pub use candlescope_testkit::tools::{MINILM, NSYS, PYTHON, SMOLLM2, SmallDisk, require};
pub use candlescope_testkit::{ROOT, text, wait_until};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

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

/// Names of the commands below one, as its help lists them: `commands(&["bench"])` has `latency`.
pub fn commands(of: &[&str]) -> Vec<String> {
    let help = ok(&[of, &["--help"]].concat());
    let Some((_, list)) = help.split_once("Commands:\n") else { return Vec::new() };
    let list = list.split("\n\n").next().unwrap();
    // Continued descriptions stand further in.
    let names = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.map(|line| line.split_whitespace().next().unwrap().to_string()).filter(|name| name != "help").collect()
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
#[cfg(feature = "query")]
#[track_caller]
pub fn in_other_engines(
    runs: &[&str],
    queries: &serde_json::Map<String, serde_json::Value>,
) -> Option<serde_json::Value> {
    let python = require(&PYTHON)?;
    let script = |engine: &str| ok(&[&["views", engine], runs].concat());
    let text_of = |sql: &serde_json::Value| for_spark(sql.as_str().expect("a query"));
    let of_spark: serde_json::Map<String, serde_json::Value> =
        queries.iter().map(|(name, sql)| (name.clone(), text_of(sql).into())).collect();
    let asked = serde_json::json!({
        "duckdb": {"script": script("duckdb"), "queries": queries},
        "spark": {"script": script("spark"), "queries": of_spark},
    });
    let mut child = Command::new(python)
        .arg(Path::new(ROOT).join("tests/python/engines.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    tell(&mut child, &asked);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(json(text(&output.stdout).trim()))
}

/// Writes what a program reads from its standard input, which ends then. At once: serde would write each piece by itself,
/// a million calls of the system for some megabytes.
pub fn tell(child: &mut Child, what: &serde_json::Value) {
    child.stdin.take().unwrap().write_all(what.to_string().as_bytes()).unwrap();
}

/// A query as Spark takes it: expressions of its own in place of calls of aggregates that only we have.
#[cfg(feature = "query")]
fn for_spark(sql: &str) -> String {
    let mut sql = sql.to_string();
    for of in candlescope_sql::OWN_AGGREGATES {
        let call = format!("{}(", of.name);
        while let Some(begin) = sql.find(&call) {
            let (arguments, length) = arguments(&sql[begin + call.len()..]);
            let expression = of.in_spark(&arguments);
            assert!(arguments.len() == of.takes.len() && !expression.contains(&call), "{sql}");
            sql.replace_range(begin..begin + call.len() + length, &expression);
        }
    }
    sql
}

/// The arguments of a call whose text begins with the first of them, and the length up to the end of the call.
fn arguments(text: &str) -> (Vec<&str>, usize) {
    let (mut found, mut depth, mut from) = (Vec::new(), 0, 0);
    for (at, c) in text.char_indices() {
        let ends = depth == 0 && matches!(c, ',' | ')');
        if ends {
            found.push(text[from..at].trim());
            from = at + 1;
        }
        match c {
            '(' => depth += 1,
            ')' if ends => return (found, from),
            ')' => depth -= 1,
            _ => {}
        }
    }
    panic!("a call without an end: {text}");
}

/// Holds answers against `docs/schemas`: {"NAME of a schema": [answer, …], …}. With `all`, each schema has to have one.
/// Without Python, nothing is held.
#[track_caller]
pub fn hold_against_schemas(answers: &serde_json::Value, all: bool) {
    let Some(python) = require(&PYTHON) else { return };
    let mut child = Command::new(python)
        .arg(Path::new(ROOT).join("tests/python/check_schemas.py"))
        .args(all.then_some("--all"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    tell(&mut child, answers);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

/// What a client says first.
pub const MCP_HELLO: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"by hand","version":"1"}}}"#;

/// What tools of `candlescope mcp` answer when they are called one after the other, by name with their arguments.
#[cfg(feature = "mcp")]
pub fn mcp_answers(root: &Path, calls: &[(&str, serde_json::Value)]) -> Vec<serde_json::Value> {
    let mut child = candlescope()
        .args(["mcp", "--root"])
        .arg(root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the server");
    let mut input = child.stdin.take().expect("its input");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let mut asked = |text: &str, id: usize| {
        writeln!(input, "{text}").expect("said");
        lines.by_ref().map(|line| json(&line.expect("a line"))).find(|answer| answer["id"] == id).expect("an answer")
    };
    asked(MCP_HELLO, 1);
    let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let answers = calls.iter().enumerate().map(|(at, (tool, arguments))| {
        let id = at + 2;
        let params = serde_json::json!({ "name": tool, "arguments": arguments });
        let call = serde_json::json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        let before = if at == 0 { format!("{initialized}\n") } else { String::new() };
        let answer = asked(&format!("{before}{call}"), id);
        assert_ne!(answer["result"]["isError"], true, "{tool}: {answer}");
        json(answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{tool}: {answer}")))
    });
    let answers = answers.collect();
    drop(input);
    assert!(child.wait().expect("its end").success());
    answers
}

/// Two processes at once, as a launcher starts them: a run of each.
pub fn record_ranks(folder: &Path) {
    let profile =
        ["profile", "--model", "embedded", "--max-new-tokens", "60", "--repeats", "3", "--no-progress", "--out"];
    let start = |rank: u32| {
        candlescope()
            .args(profile)
            .arg(folder.join(format!("rank-{rank}")))
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", "2")
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    for mut process in [start(0), start(1)] {
        assert!(process.wait().unwrap().success());
    }
}

/// Writes the runs of made ranks.
pub fn write_ranks(folder: &Path, made: &[MadeRank]) {
    for (rank, MadeRank { batch, manifest, .. }) in made.iter().enumerate() {
        let mut exporter = ParquetExporter::new(ParquetConfig::new(folder.join(format!("rank-{rank}"))));
        let ledger = Ledger::new();
        exporter.start(manifest).unwrap();
        ledger.received(batch);
        exporter.export(batch, &ledger).unwrap();
        exporter.close(&ledger).unwrap();
        exporter.finish(manifest).unwrap();
    }
}

/// Raw counters as Nsight Compute printed them.
const NCU_PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../analysis/tests/fixtures/ncu-raw-page.csv");

/// Writes a program named ncu that notes its arguments, runs the command after them unless told otherwise, and prints
/// the page of counters.
#[cfg(unix)]
pub fn fake_ncu(dir: &Path, measure: &str) {
    use std::os::unix::fs::PermissionsExt;
    let script = format!(
        r#"#!/bin/bash
here=$(dirname "$(readlink -f "$0")")
echo "$@" >>"$here/calls"
if [ "$1" = --import ]; then cat {NCU_PAGE:?}; exit; fi
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
