//! `candlescope record` on programs that do not know it: NVTX ranges of a program in C and of one in Python, all the ways in which
//! a process ends, and programs in which there is nothing to record.
#![cfg(target_os = "linux")]
#![allow(missing_docs, reason = "a test")]
mod common;
#[path = "record/manners.rs"]
mod manners;
#[path = "record/many_texts.rs"]
mod many_texts;
#[path = "record/preloading.rs"]
mod preloading;
#[path = "record/scripted_driver.rs"]
mod scripted_driver;

use candlescope_reader::Run;
use common::*;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

// Built with it, as the library that is loaded.
use candlescope_inject as _;

/// The library, where cargo puts those that tests depend on.
fn library() -> PathBuf {
    let library = Path::new(BINARY).with_file_name("deps").join("libcandlescope_inject.so");
    assert!(library.is_file(), "{} is not built", library.display());
    library
}

/// Where the programs in C are.
fn source(file: &str) -> String {
    format!("{ROOT}/cli/tests/record_programs/{file}")
}

/// Where NVTX's headers are, as the compiler wants it: in Python's packages, if there is Python.
fn headers() -> Option<String> {
    let ask = "import sysconfig; print(sysconfig.get_paths()['purelib'] + '/nvidia/cu13/include', end='')";
    let place = Command::new(require(&PYTHON)?).args(["-c", ask]).output().unwrap();
    Some(format!("-I{}", text(&place.stdout)))
}

/// Has the compiler make the file of this name in a folder, from a source, by these arguments.
fn compile(folder: &Path, made: &str, from: &str, arguments: &[&str]) {
    let mut command = Command::new("cc");
    command.args(["-O1", "-o"]).arg(folder.join(made)).arg(source(from)).args(arguments).args(["-ldl", "-lpthread"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// The program in C, if there are NVTX's headers.
fn program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<(tempfile::TempDir, PathBuf)>> = OnceLock::new();
    let made = PROGRAM.get_or_init(|| {
        let include = headers()?;
        let dir = tempfile::tempdir().unwrap();
        compile(dir.path(), "program", "program.c", &[&include]);
        let program = dir.path().join("program");
        Some((dir, program))
    });
    made.as_ref().map(|(_, program)| program.as_path())
}

fn record(out: &Path, options: &[&str], command: &[&str]) -> Output {
    record_with(&[], out, options, command)
}

/// The same with variables.
fn record_with(variables: &[(&str, &str)], out: &Path, options: &[&str], command: &[&str]) -> Output {
    candlescope()
        .env("CANDLESCOPE_INJECT_LIBRARY", library())
        .envs(variables.iter().copied())
        .args(["record", "--out", out.to_str().unwrap()])
        .args(options)
        .arg("--")
        .args(command)
        .output()
        .unwrap()
}

/// The rows of an answer.
fn rows(run: &Path, sql: &str) -> serde_json::Value {
    json(&ok(&["query", sql, run.to_str().unwrap(), "--json", "--limit", "0"]))["rows"].clone()
}

/// Paths of all intervals, each with the number of its rows, in order.
fn paths(run: &Path) -> Vec<(String, i64)> {
    let sql = "SELECT path, count(*) AS n FROM spans GROUP BY path ORDER BY path";
    let rows = rows(run, sql);
    let row = |row: &serde_json::Value| (row["path"].as_str().unwrap().to_string(), row["n"].as_i64().unwrap());
    rows.as_array().unwrap().iter().map(row).collect()
}

/// What so many calls of `tokens` of the program in C make, for so many tokens together.
fn of_tokens(n: i64, calls: i64) -> Vec<(String, i64)> {
    let block = |at: usize| [format!("decode/block[{at}]"), format!("decode/block[{at}]/linear")];
    let mut all = vec!["decode".to_string(), "decode/ncclAllReduce".into(), "decode/sample é".into()];
    all.extend((0..2).flat_map(block));
    let of_each = all.into_iter().map(|path| (path, n));
    let mut all: Vec<_> = of_each.chain([("request".to_string(), calls)]).collect();
    all.sort();
    all
}

#[test]
fn ranges_of_a_program_are_intervals_and_its_output_and_status_its_own() {
    let Some(program) = program() else { return };
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let output = record(&run, &[], &[program.to_str().unwrap(), "both", "exit"]);
    let err = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(3), "out of both\n"), "{err}");
    assert!(
        err.starts_with("err of both\n")
            && err.contains("4 steps, 23 intervals, 0 kernels")
            && err.lines().count() == 2,
        "{err}"
    );
    // The program is a step by itself until it makes ranges.
    let mut expected = of_tokens(3, 1);
    expected.push(("program".into(), 1));
    expected.sort();
    assert_eq!(paths(&run), expected);
    let opened = Run::open(&run).unwrap();
    let manifest = opened.manifest().unwrap();
    assert!(manifest.complete, "{manifest:?}");
    assert_eq!(manifest.environment["injected_program"], "program");
    assert!(manifest.environment.keys().all(|key| !key.starts_with("nvtx_ranges")), "all ranges have ended");
    assert_eq!(manifest.loss.lost(), 0);
    // Times are the program's: a linear spends two milliseconds.
    let sql = "SELECT min(host_dur_ns) AS least, median(host_dur_ns) AS usual FROM spans WHERE name = 'linear'";
    let row = json(&ok(&["query", sql, run.to_str().unwrap(), "--json"]))["rows"][0].clone();
    assert!(row["least"].as_f64() >= Some(2e6) && row["usual"].as_f64() < Some(10e6), "{row}");
    // What a program attaches to its ranges is there, and nothing at those to which it attached nothing.
    let payloads =
        "SELECT name, payload, count(*) AS n FROM spans WHERE payload IS NOT NULL GROUP BY name, payload ORDER BY name";
    let row = |name: &str, n: i64| serde_json::json!({"name": name, "payload": 7.0, "n": n});
    assert_eq!(rows(&run, payloads), serde_json::json!([row("linear", 6), row("ncclAllReduce", 3)]));
    // A run like others: it can be reported on.
    assert!(ok(&["report", run.to_str().unwrap()]).contains("decode"));
    assert!(ok(&["analyze", run.to_str().unwrap()]).contains("decode"));
}

#[test]
fn a_run_is_whole_however_the_program_ends_and_readable_where_it_was_killed() {
    let Some(program) = program() else { return };
    let dir = tempfile::tempdir().unwrap();
    for (end, status, is_complete) in [
        ("return", 5, true),
        ("exit", 3, true),
        ("_exit", 4, true),
        ("term", 128 + 15, true),
        ("int", 128 + 2, true),
        ("abort", 128 + 6, false),
        ("kill", 128 + 9, false),
    ] {
        let run = dir.path().join(end);
        // The first segments are finished after two seconds.
        let ms = if is_complete { "10" } else { "3000" };
        let output = record(&run, &[], &[program.to_str().unwrap(), "nvtx", end, ms]);
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{end}: {err}");
        let opened = Run::open(&run).unwrap_or_else(|error| panic!("{end}: {error}\n{err}"));
        assert_eq!(opened.manifest().map(|manifest| manifest.complete), Some(is_complete), "{end}: {err}");
        assert_eq!(err.contains("its last seconds are missing"), !is_complete, "{end}: {err}");
        assert_eq!(paths(&run), of_tokens(3, 1), "{end}");
        assert!(!dir.path().join(format!("{end}.recording")).exists());
    }
}

#[test]
fn ranges_by_start_and_end_cross_others_and_are_steps_where_they_do_not() {
    let Some(program) = program() else { return };
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let output = record(&run, &[], &[program.to_str().unwrap(), "nvtx", "starts"]);
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    // Rows of their own, which change nothing of the others'.
    let beside = "SELECT path, target, step, payload FROM spans WHERE target LIKE '%::start_end' ORDER BY path";
    let payload = |path: &str| (path == "linear").then_some(7.0);
    let row = |path: &str, domain: &str| serde_json::json!({"path": path, "target": format!("{domain}::start_end"), "step": null, "payload": payload(path)});
    let expected = [row("linear", "model"), row("load é", "nvtx"), row("prefill 2", "nvtx"), row("request", "nvtx")];
    assert_eq!(rows(&run, beside), serde_json::json!(expected));
    let mut expected = of_tokens(3, 1);
    expected.iter_mut().filter(|(path, _)| path == "decode").for_each(|(_, n)| *n += 1);
    expected
        .extend(["linear", "load é", "prefill 1", "prefill 1/block", "prefill 2"].map(|path| (path.to_string(), 1)));
    expected.sort();
    assert_eq!(paths(&run), expected);
    let parent = "SELECT p.path FROM spans r JOIN spans p ON p.seq = r.parent_seq WHERE r.path = 'linear'";
    assert_eq!(rows(&run, parent), serde_json::json!([{"path": "decode"}]), "in which it began");
    let steps = "SELECT path, phase, host_dur_ns >= 2000000 AS spent FROM steps WHERE path NOT LIKE 'decode%'";
    assert_eq!(rows(&run, steps), serde_json::json!([{"path": "prefill 1", "phase": "prefill", "spent": true}]));
    let opened = Run::open(&run).unwrap();
    let manifest = opened.manifest().unwrap();
    assert_eq!(manifest.environment["nvtx_ranges_open_at_end"], 1, "{:?}", manifest.environment);
    assert_eq!((manifest.loss.lost(), manifest.loss.open_at_end), (0, 1));
    assert!(!manifest.environment.contains_key("nvtx_ranges_unrecorded"));
    // Figures are those of the others; timelines have tracks for these.
    assert!(ok(&["report", run.to_str().unwrap()]).contains("prefill 1"));
    let chrome = dir.path().join("chrome.json");
    ok(&["export", "chrome", run.to_str().unwrap(), "--out", chrome.to_str().unwrap()]);
    let events = std::fs::read_to_string(&chrome).unwrap();
    assert_eq!(events.matches("\"cat\":\"start_end\"").count(), 2 * 4, "a begin and an end of each");
    assert!(events.contains("\"payload\":7"), "{events}");

    // A step is what is asked for, also where another thread ends it.
    let run = dir.path().join("asked");
    let output = record(&run, &["--step-range", "^load"], &[program.to_str().unwrap(), "nvtx", "starts"]);
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    let steps = "SELECT path, phase FROM steps";
    assert_eq!(rows(&run, steps), serde_json::json!([{"path": "load é", "phase": "decode"}]));
}

/// Of a step that another thread ended, its own notices with its next range or launch, and there is none.
#[test]
fn a_step_that_another_thread_ended_is_there_where_the_program_ends_by_underscore_exit() {
    let Some(program) = program() else { return };
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let output = record(&run, &[], &[program.to_str().unwrap(), "nvtx", "handed"]);
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
    let mut expected = of_tokens(3, 1);
    expected.push(("prefill 1".into(), 1));
    expected.sort();
    assert_eq!(paths(&run), expected);
    let opened = Run::open(&run).unwrap();
    assert!(!opened.manifest().unwrap().environment.contains_key("nvtx_ranges_open_at_end"));
}

#[test]
fn threads_have_their_own_ranges_and_forked_children_leave_the_run_alone() {
    let Some(program) = program() else { return };
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("threads");
    assert_eq!(record(&run, &[], &[program.to_str().unwrap(), "nvtx", "threads"]).status.code(), Some(5));
    assert_eq!(paths(&run), of_tokens(7, 5), "three tokens here, one on each of four threads");
    for options in [&[][..], &["--follow-forks"]] {
        let run = dir.path().join(format!("fork-{}", options.len()));
        assert_eq!(record(&run, options, &[program.to_str().unwrap(), "nvtx", "fork"]).status.code(), Some(5));
        assert_eq!(paths(&run), of_tokens(3, 1), "and not the two of the child: {options:?}");
    }
}

#[test]
fn processes_that_were_forked_before_anything_was_loaded_are_followed() {
    let Some(program) = program() else { return };
    let dir = tempfile::tempdir().unwrap();
    for (options, runs) in [(vec![], 1), (vec!["--follow-forks"], 2)] {
        let run = dir.path().join(format!("{runs}"));
        let output = record(&run, &options, &[program.to_str().unwrap(), "nvtx", "forked"]);
        assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
        let written = text(&output.stderr).lines().filter(|line| line.starts_with("wrote ")).count();
        assert_eq!(written, runs, "{}", text(&output.stderr));
        let runs = i64::try_from(runs).unwrap();
        assert_eq!(paths(&run), of_tokens(3 * runs, runs));
    }
}

#[test]
fn children_step_aside_unless_they_are_followed() {
    let Some(program) = program() else { return };
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("one");
    let output = record(&run, &[], &[program.to_str().unwrap(), "nvtx", "child"]);
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    assert_eq!(paths(&run), of_tokens(3, 1));
    let runs = dir.path().join("both");
    let output = record(&runs, &["--follow-forks"], &[program.to_str().unwrap(), "nvtx", "child"]);
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    let each: Vec<PathBuf> = std::fs::read_dir(&runs).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(each.len(), 2, "{each:?}");
    each.iter().for_each(|run| assert_eq!(paths(run), of_tokens(3, 1)));
    assert_eq!(paths(&runs), of_tokens(6, 2), "a folder of runs is asked as one");
}

#[test]
fn steps_are_the_ranges_that_are_asked_for() {
    let Some(program) = program() else { return };
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let program = program.to_str().unwrap();
    assert_eq!(record(&run, &["--step-range", "^block"], &[program, "nvtx", "return"]).status.code(), Some(5));
    let count = |what: &str, path: &str| {
        let sql = format!("SELECT count(*) AS n FROM {what} WHERE path = '{path}'");
        json(&ok(&["query", &sql, run.to_str().unwrap(), "--json"]))["rows"][0]["n"].as_i64().unwrap()
    };
    assert_eq!((count("spans", "block"), count("spans", "block/linear"), count("spans", "decode")), (6, 6, 0));
    let phases =
        json(&ok(&["query", "SELECT phase, count(*) AS n FROM steps GROUP BY phase", run.to_str().unwrap(), "--json"]));
    assert_eq!(phases["rows"], serde_json::json!([{"phase": "decode", "n": 6}]));
    let wrong = dir.path().join("wrong");
    let output = record(&wrong, &["--step-range", "("], &[program, "nvtx", "return"]);
    let err = text(&output.stderr);
    assert!(
        !output.status.success() && err.contains("--step-range") && !err.contains("err of"),
        "before it starts: {err}"
    );
}

#[test]
fn a_program_without_ranges_is_one_step_and_one_without_cuda_is_no_run() {
    let Some(program) = program() else { return };
    let dir = tempfile::tempdir().unwrap();
    let program = program.to_str().unwrap();
    let run = dir.path().join("cuda");
    let output = record(&run, &["--no-nvtx"], &[program, "both", "return", "20"]);
    assert_eq!(output.status.code(), Some(5));
    assert_eq!(paths(&run), [("program".to_string(), 1)]);
    let err = text(&output.stderr);
    assert!(err.contains("1 steps (the program as it is: it makes no ranges and fetches no results"), "{err}");
    let other = tempfile::tempdir().unwrap();
    let err = text(&record(&other.path().join("ranges"), &[], &[program, "both", "return", "20"]).stderr);
    assert!(!err.contains("the program as it is"), "its ranges are its steps: {err}");

    let nothing = dir.path().join("nothing");
    let output = record(&nothing, &[], &[program, "nothing", "exit"]);
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "the program's own: {err}");
    assert!(
        err.contains("nothing was recorded") && err.contains("neither started the CUDA driver nor made an NVTX range"),
        "{err}"
    );
    let output = record(&nothing, &[], &["true"]);
    assert_eq!(output.status.code(), Some(1), "no run of nothing as a success: {}", text(&output.stderr));
    assert!(!nothing.exists() && std::fs::read_dir(dir.path()).unwrap().count() == 1, "nothing is left behind");
    let err = text(&record(&nothing, &[], &["/no/such/program"]).stderr);
    assert!(err.contains("cannot start /no/such/program"), "{err}");
    for wrong in ["20of500", "all,exclude=x"] {
        let err = text(&record(&nothing, &["--cupti", wrong], &[program, "nvtx", "return"]).stderr);
        assert!(err.contains("--cupti") && !err.contains("err of"), "before the program starts: {err}");
    }
    let err = text(&record(&run, &[], &[program, "nvtx", "return"]).stderr);
    assert!(err.contains("not empty") && !err.contains("err of"), "{err}");
    // It would end the program.
    let ncu = [("NV_COMPUTE_PROFILER_PERFWORKS_DIR", "/opt/ncu")];
    let err = text(&record_with(&ncu, &nothing, &[], &[program, "nvtx", "return"]).stderr);
    assert!(err.contains("record without ncu") && !err.contains("err of"), "{err}");
}

#[test]
fn a_command_without_its_library_says_where_to_take_one_from() {
    let dir = tempfile::tempdir().unwrap();
    let alone = dir.path().join("candlescope");
    // The same program in another folder, whether or not that is on the same file system.
    std::fs::hard_link(BINARY, &alone).or_else(|_| std::fs::copy(BINARY, &alone).map(drop)).unwrap();
    let mut command = Command::new(&alone);
    command.args(["record", "--out"]).arg(dir.path().join("run")).args(["--", "true"]);
    let output = command.env_remove("CANDLESCOPE").env_remove("CANDLESCOPE_INJECT_LIBRARY").output().unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(!output.status.success() && err.lines().count() == 1, "{out}{err}");
    let folder = format!("put it into {}.", dir.path().display());
    for said in ["-unknown-linux-gnu.tar.gz", "cargo build --profile dist -p candlescope-inject", &folder] {
        assert!(err.contains(said), "{said}: {err}");
    }
}

#[test]
fn what_the_library_does_not_understand_ends_the_recording_and_not_the_program() {
    let Some(program) = program() else { return };
    let dir = tempfile::tempdir().unwrap();
    let direct = |variable: Option<&str>| {
        let mut command = Command::new(program);
        command.args(["both", "return"]).env_remove("CANDLESCOPE").current_dir(dir.path());
        command.env("CUDA_INJECTION64_PATH", library()).env("NVTX_INJECTION64_PATH", library());
        if let Some(value) = variable {
            command.env("CANDLESCOPE", value);
        }
        command.output().unwrap()
    };
    let output = direct(None);
    let aside = "err of both\ncandlescope: CANDLESCOPE is not set, as candlescope record does: nothing is recorded\n";
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(5), aside), "it steps aside");
    for wrong in ["parquet=/proc/nowhere", "parket=x", "schedule=often,parquet=x"] {
        let output = direct(Some(wrong));
        let err = text(&output.stderr);
        assert_eq!((output.status.code(), err.lines().count()), (Some(5), 2), "{wrong}: {err}");
        assert_eq!(text(&output.stdout), "out of both\n");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is written");
}

#[test]
fn ranges_of_python_are_intervals() {
    let Some(python) = require(&PYTHON) else { return };
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let script = Path::new(ROOT).join("cli/tests/record_programs/ranges.py");
    let output = record(&run, &[], &[python.to_str().unwrap(), script.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(6), "by _exit: {}", text(&output.stderr));
    let sql = "SELECT operator, count(*) AS n FROM spans GROUP BY operator ORDER BY operator";
    let rows = rows(&run, sql);
    let found: Vec<String> =
        rows.as_array().unwrap().iter().map(|row| format!("{} {}", row["operator"], row["n"])).collect();
    println!("{found:?}");
    let count = |name: &str| {
        let sql = format!("SELECT count(*) AS n FROM spans WHERE name LIKE '{name}'");
        json(&ok(&["query", &sql, run.to_str().unwrap(), "--json"]))["rows"][0]["n"].as_i64().unwrap()
    };
    assert_eq!((count("decode%"), count("layer 1"), count("linear"), count("request")), (6, 6, 12, 1), "{found:?}");
    let opened = Run::open(&run).unwrap();
    assert!(opened.manifest().is_some_and(|manifest| manifest.complete && manifest.loss.lost() == 0));
}

#[test]
fn workers_of_a_fork_server_are_followed() {
    let Some(python) = require(&PYTHON) else { return };
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let output = record(&run, &["--follow-forks"], &[python.to_str().unwrap(), &source("fork_server.py")]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let written = text(&output.stderr).lines().filter(|line| line.starts_with("wrote ")).count();
    assert_eq!((written, paths(&run)), (2, vec![("decode".to_string(), 3 + 4)]), "{}", text(&output.stderr));
}

/// A Python that writes for `perf` what it makes at run time, as those from 3.12 on do: `CANDLESCOPE_PERF_PYTHON`, or one that is found.
fn perf_python() -> Option<PathBuf> {
    let var = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let path: Vec<PathBuf> =
        std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default();
    let on_path =
        path.iter().flat_map(|dir| ["python3", "python3.14", "python3.13", "python3.12"].map(|name| dir.join(name)));
    let pyenv = var("PYENV_ROOT").or_else(|| Some(var("HOME")?.join(".pyenv")));
    let versions = pyenv.and_then(|root| std::fs::read_dir(root.join("versions")).ok()).into_iter().flatten().flatten();
    let versions = versions.map(|version| version.path().join("bin/python3"));
    let ours = [Path::new(ROOT).join(".venv/bin/python")];
    let writes = |python: &PathBuf| {
        let ask = "import sys; sys.exit(not sys.is_stack_trampoline_active())";
        let child = Command::new(python).args(["-X", "perf", "-c", ask]).stderr(std::process::Stdio::null()).spawn();
        child.is_ok_and(|mut child| {
            let succeeds = child.wait().is_ok_and(|status| status.success());
            let _ = std::fs::remove_file(format!("/tmp/perf-{}.map", child.id()));
            succeeds
        })
    };
    let found = var("CANDLESCOPE_PERF_PYTHON").into_iter().chain(ours).chain(on_path).chain(versions).find(writes);
    if found.is_none() {
        // Nothing that the set-up could install: Debian 12 has Python 3.11.
        eprintln!("skipped: there is no Python with -X perf (3.12 or later); CANDLESCOPE_PERF_PYTHON may name one");
    }
    found
}

#[test]
fn stacks_of_python_have_its_functions() {
    let Some(python) = perf_python() else { return };
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let script = Path::new(ROOT).join("cli/tests/record_programs/stacks.py");
    let output = candlescope()
        .env("CANDLESCOPE_INJECT_LIBRARY", library())
        .env("CANDLESCOPE", "stacks=499")
        .args(["record", "--out", run.to_str().unwrap(), "--"])
        .args([python.to_str().unwrap(), "-X", "perf", script.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let opened = Run::open(&run).unwrap();
    let process = opened.manifest().unwrap().environment["pid"].clone();
    std::fs::remove_file(format!("/tmp/perf-{process}.map")).expect("Python wrote it");

    let rows = |sql: &str| {
        let answer = json(&ok(&["query", sql, run.to_str().unwrap(), "--json", "--limit", "0"]));
        answer["rows"].as_array().unwrap().clone()
    };
    let stacks = rows("SELECT stack, parent, function, file, binary FROM stacks");
    let stacks: std::collections::HashMap<u64, &serde_json::Value> =
        stacks.iter().map(|row| (row["stack"].as_u64().unwrap(), row)).collect();
    let name = |function: &str| format!("py::{function}:{}", script.display());
    let (inner, outer, module) = (name("inner"), name("outer"), name("<module>"));
    let (mut all, mut whole) = (0, 0);
    for sample in rows("SELECT stack, count(*) AS n FROM stack_samples WHERE state = 'running' GROUP BY stack") {
        let mut at = sample["stack"].as_u64();
        let mut functions = Vec::new();
        while let Some(row) = at.and_then(|at| stacks.get(&at)) {
            functions.extend(row["function"].as_str());
            at = row["parent"].as_u64();
        }
        let n = sample["n"].as_u64().unwrap();
        let of_python: Vec<&str> = functions.into_iter().filter(|name| name.starts_with("py::")).collect();
        all += n;
        whole += if of_python == [&*inner, &*outer, &*module] { n } else { 0 };
    }
    println!("{whole} of {all} samples");
    assert!(all > 50 && whole * 10 > all * 8, "{whole} of {all} samples are in {inner}");
    let row = stacks.values().find(|row| row["function"].as_str() == Some(&inner)).unwrap();
    assert_eq!((row["file"].as_str(), row["binary"].as_str()), (script.to_str(), Some("[perf map]")));
}

/// A process that goes on after the command has ended keeps its run, and nothing is moved below it.
#[test]
fn a_run_that_is_still_written_stays_where_it_is() {
    let Some(program) = program() else { return };
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let script = format!("'{}' nvtx return 9000 >/dev/null 2>&1 & sleep 1", program.display());
    let output = record(&run, &[], &["sh", "-c", &script]);
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("still being written") && !run.exists(), "{err}");
    let left = dir.path().join("run.recording");
    wait_until(
        || {
            let runs = std::fs::read_dir(&left).unwrap().map(|entry| entry.unwrap().path());
            runs.filter(|path| path.is_dir())
                .any(|run| Run::open(&run).is_ok_and(|run| run.manifest().is_some_and(|m| m.complete)))
        },
        "the program ends its run",
    );
}
