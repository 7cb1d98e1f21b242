//! `candlescope nsys` and `report --nsys`: with a stand-in for nsys, and with the real one where `make nsys` has put
//! it.
#![cfg(unix)]
#![allow(missing_docs, reason = "a test")]
mod common;
use common::*;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A program named nsys that records its arguments, runs the given command and writes the files that nsys would.
struct Fake {
    dir: tempfile::TempDir,
}

impl Fake {
    fn new(extra: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let script = format!(
            r#"#!/bin/bash
here=$(dirname "$(readlink -f "$0")")
echo "$@" >>"$here/calls"
if [ "$1" = export ]; then
  {extra}
  touch "${{@: -2:1}}"
  exit 0
fi
shift
while [ "$1" != "-o" ]; do shift; done
out=$2
shift 2
while [[ "$1" == -* ]]; do shift; done
echo "$CANDLESCOPE" >"$here/variable"
trap 'kill -TERM $child; echo passed on' TERM
"$@" &
child=$!
wait $child
status=$?
# Interrupted by a signal, `wait` comes back early.
wait $child 2>/dev/null && status=$? || {{ s=$?; [ $s -eq 127 ] || status=$s; }}
{extra}
touch "$out.nsys-rep"
exit $status
"#
        );
        let file = dir.path().join("nsys");
        std::fs::write(&file, script).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self { dir }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = nsys_command(args);
        command.env("CANDLESCOPE_NSYS", self.dir.path().join("nsys")).current_dir(self.dir.path());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn note(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(name)).unwrap_or_default()
    }
}

fn nsys_command(args: &[&str]) -> Command {
    let mut command = candlescope();
    command.arg("nsys").args(args).env_remove("CANDLESCOPE").env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

#[test]
fn the_program_runs_under_nsys_and_its_status_is_ours() {
    let fake = Fake::new("");
    let output = fake.run(&["--out", "sub/p", "--", "sh", "-c", "echo from the program; exit 7"]);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "from the program\n", "standard output is the program's");
    let out = fake.dir.path().join("sub/p").display().to_string();
    let calls = fake.note("calls");
    let (profile, export) = calls.split_once('\n').unwrap();
    assert!(profile.starts_with("profile -t ") && profile.contains("nvtx"), "{profile}");
    assert!(profile.contains("--sample=none --cpuctxsw=none --force-overwrite=true"), "{profile}");
    assert!(profile.ends_with(&format!("-o {out} sh -c echo from the program; exit 7")), "{profile}");
    assert_eq!(export.trim(), format!("export --type sqlite --force-overwrite true -o {out}.sqlite {out}.nsys-rep"));
    assert_eq!(fake.note("variable").trim(), format!("nvtx,parquet={out}.runs"));
    let said = text(&output.stderr);
    for part in ["p.nsys-rep", "nsys-ui", "p.sqlite"] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn options_reach_nsys_and_the_program() {
    let fake = Fake::new("");
    let args = ["-o", "p", "--trace", "cuda,nvtx,osrt", "--nsys-arg=--delay=5", "--nsys-arg=--sample=cpu", "--no-run"];
    let output = fake.command(&[&args[..], &["--", "true"]].concat()).env("CANDLESCOPE", "host=off").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let calls = fake.note("calls");
    assert!(
        calls.contains("-t cuda,nvtx,osrt --cpuctxsw=none") && calls.contains("--delay=5 --sample=cpu true"),
        "{calls}"
    );
    assert!(!calls.contains("--sample=none"), "nsys takes no option twice: {calls}");
    assert_eq!(fake.note("variable").trim(), "host=off,nvtx");
}

#[test]
fn kernels_of_graphs_are_traced_where_cuda_is_unless_told_otherwise() {
    let profiled = |args: &[&str]| {
        let fake = Fake::new("");
        let output = fake.run(&[args, &["-o", "p", "--no-run", "--", "true"]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        fake.note("calls")
    };
    let of_graphs = |calls: &str| calls.matches("--cuda-graph-trace").count();
    let by_node = profiled(&["--trace", "nvtx,cuda"]);
    assert!(by_node.contains(" --cuda-graph-trace=node ") && of_graphs(&by_node) == 1, "{by_node}");
    let whole = profiled(&["--trace", "cuda", "--cuda-graph-trace", "graph"]);
    assert_eq!(of_graphs(&whole), 0, "that is what nsys does, and old ones do not know the option: {whole}");
    assert_eq!(of_graphs(&profiled(&["--trace", "nvtx"])), 0, "it is an option of tracing CUDA");
    // nsys takes no option twice.
    let own = profiled(&["--trace", "cuda", "--nsys-arg=--cuda-graph-trace=node:host-only"]);
    assert!(own.contains(" --cuda-graph-trace=node:host-only ") && of_graphs(&own) == 1, "{own}");
    let fake = Fake::new("");
    let refused = fake.run(&["--cuda-graph-trace", "both", "--", "true"]);
    assert!(!refused.status.success() && fake.note("calls").is_empty(), "{}", text(&refused.stderr));
}

#[test]
fn runs_beside_the_profile_are_named() {
    let fake = Fake::new("");
    let output = fake.run(&["-o", "p", "--", "mkdir", "-p", "p.runs/run-1", "p.runs/run-2"]);
    let said = text(&output.stderr);
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("candlescope report")).collect();
    assert!(lines.len() == 2 && lines[0].contains("p.runs/run-2 --nsys") && lines[1].contains("run-1"), "{said}");
}

#[test]
fn signals_are_passed_on() {
    let fake = Fake::new("");
    let ready = fake.dir.path().join("ready");
    let program = format!("trap 'exit 5' TERM; touch {}; while true; do sleep 0.05; done", ready.display());
    let mut child = fake
        .command(&["-o", "p", "--", "bash", "-c", &program])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until(|| ready.exists(), "the program starts");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(5), "the program ended as it chose, and so did we");
    assert!(fake.dir.path().join("p.sqlite").exists(), "what was recorded is not lost");
}

#[test]
fn what_goes_wrong_is_said() {
    let said = |output: &Output| {
        let text = text(&output.stderr);
        assert!(!output.status.success() && text.contains("error: ") && !text.contains("panicked"), "{text}");
        text
    };
    // Nothing to run it with.
    let nowhere = tempfile::tempdir().unwrap();
    let absent =
        nsys_command(&["--", "true"]).env("PATH", nowhere.path()).env("CANDLESCOPE_NSYS", "/nowhere/nsys").output();
    assert!(said(&absent.unwrap()).contains("CANDLESCOPE_NSYS names /nowhere/nsys"));
    if !Path::new("/opt/nvidia").exists() && !Path::new("/usr/local/cuda").exists() {
        let none = nsys_command(&["--", "true"]).env("PATH", nowhere.path()).env_remove("CANDLESCOPE_NSYS").output();
        assert!(said(&none.unwrap()).contains("install Nsight Systems"));
    }
    // nsys itself refuses.
    let refusing = Fake::new("exit 3");
    assert!(said(&refusing.run(&["-o", "p", "--", "true"])).contains("wrote no report"));
    // The import fails: nsys ends with success and leaves the raw file.
    let raw = Fake::new(r#"touch "$out.qdstrm"; exit 0"#);
    let message = said(&raw.run(&["-o", "p", "--", "true"]));
    assert!(message.contains("p.qdstrm is kept") && message.contains("QdstrmImporter is not installed"), "{message}");
    assert!(raw.dir.path().join("p.qdstrm").exists());
    // The export fails: the report is kept.
    let export = Fake::new(r#"if [ "$1" = export ]; then echo "no such exporter" >&2; exit 1; fi"#);
    let message = said(&export.run(&["-o", "p", "--", "true"]));
    assert!(
        message.contains("no such exporter") && message.contains("wrote ") && message.contains("p.nsys-rep"),
        "{message}"
    );
    // A report left by an earlier run is not taken for that of this run.
    std::fs::write(refusing.dir.path().join("old.nsys-rep"), "").unwrap();
    assert!(said(&refusing.run(&["-o", "old", "--", "true"])).contains("wrote no report"));
    assert!(said(&refusing.run(&["-o", "a%b", "--", "true"])).contains("without %"));
    let no_command = refusing.run(&[]);
    assert!(!no_command.status.success() && text(&no_command.stderr).contains("COMMAND"));
}

#[test]
fn under_the_real_nsys() {
    let Some(nsys) = require(&NSYS) else { return };
    let dir = tempfile::tempdir().unwrap();
    let profile = || {
        nsys_command(&["-o", "p", "--trace", "nvtx", "--", "sh", "-c", "exit 9"])
            .env("CANDLESCOPE_NSYS", &nsys)
            .current_dir(dir.path())
            .output()
            .unwrap()
    };
    // Once in some hundred starts nsys's own daemon goes away before the program has started, which is no fault of
    // ours; that it does so every time would be.
    let lost_its_daemon = |output: &Output| text(&output.stderr).starts_with("End of file");
    let output = (0..3).map(|_| profile()).find(|output| !lost_its_daemon(output)).unwrap_or_else(profile);
    assert_eq!(output.status.code(), Some(9), "{}", text(&output.stderr));
    assert!(dir.path().join("p.nsys-rep").is_file() && dir.path().join("p.sqlite").is_file());

    // A report of a run with a profile that is not of this run, from the .nsys-rep, which is exported first.
    std::fs::remove_file(dir.path().join("p.sqlite")).unwrap();
    let run = dir.path().join("run");
    ok(&[
        "profile",
        "--model",
        "embedded",
        "--max-new-tokens",
        "2",
        "--repeats",
        "1",
        "--warmup",
        "0",
        "--no-progress",
        "--out",
        run.to_str().unwrap(),
    ]);
    let output = candlescope()
        .arg("report")
        .arg(&run)
        .arg("--nsys")
        .arg(dir.path().join("p.nsys-rep"))
        .arg("--json")
        .env("CANDLESCOPE_NSYS", &nsys)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let metrics = json(&text(&output.stdout));
    assert_eq!(metrics["nsys"]["ranges"], 0);
    let codes: Vec<&str> =
        metrics["verdict"]["findings"].as_array().unwrap().iter().filter_map(|f| f["code"].as_str()).collect();
    assert!(codes.contains(&"nsys_no_ranges"), "{codes:?}");
    assert!(dir.path().join("p.sqlite").is_file());
}

#[test]
fn a_profile_that_is_none_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    ok(&[
        "profile",
        "--model",
        "embedded",
        "--max-new-tokens",
        "2",
        "--repeats",
        "1",
        "--warmup",
        "0",
        "--no-progress",
        "--out",
        run.to_str().unwrap(),
    ]);
    let run = run.to_str().unwrap();
    assert!(fails(&["report", run, "--nsys", "nowhere.sqlite"]).contains("nowhere.sqlite"));
    assert!(fails(&["report", run, "--nsys", "nowhere.nsys-rep"]).contains("nowhere.nsys-rep"));
    let manifest = format!("{run}/run.json");
    assert!(fails(&["report", run, "--nsys", &manifest]).contains("not an SQLite export"));
}
