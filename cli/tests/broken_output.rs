//! Standard output and standard error that are closed or full, and text that contains control sequences for the
//! terminal.
#![cfg(unix)]
#![allow(missing_docs, reason = "a test")]
mod common;
use common::*;
use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Output, Stdio};

const SHORT: [&str; 6] = ["--max-new-tokens", "2", "--repeats", "1", "--warmup", "0"];

fn a_run(dir: &Path) -> String {
    let run = dir.join("run").to_str().unwrap().to_string();
    ok(&[&["profile", "--out", &run], &SHORT[..]].concat());
    run
}

/// Runs the command with the reading end of standard output closed before a byte is written.
fn unread(args: &[&str]) -> Output {
    let mut command = candlescope();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    command.args(args).stdout(writer).stderr(Stdio::piped()).env("RUST_BACKTRACE", "1").output().unwrap()
}

fn full() -> Stdio {
    OpenOptions::new().write(true).open("/dev/full").expect("/dev/full").into()
}

#[test]
fn nobody_reads() {
    let dir = tempfile::tempdir().unwrap();
    let run = a_run(dir.path());
    let fresh = dir.path().join("fresh").to_str().unwrap().to_string();
    let profile = [&["profile", "--out", &fresh], &SHORT[..]].concat();
    let all: [&[&str]; 7] = [
        &["report", &run],
        &["report", &run, "--json"],
        &["export", "chrome", &run],
        &["export", "perfetto", &run, "--json"],
        &["doctor"],
        &["--help"],
        &profile,
    ];
    for args in all {
        let output = unread(args);
        let said = text(&output.stderr);
        assert!(output.status.success(), "{args:?}: the work is done all the same: {said}");
        assert_eq!(said, "", "{args:?}");
    }
    assert!(Path::new(&run).join("report.html").is_file() && Path::new(&run).join("trace.json").is_file());
    assert_eq!(manifest(Path::new(&fresh))["complete"], true);
    // A failure is still a failure.
    let output = unread(&["report", "/nowhere"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/nowhere"));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_for_standard_output_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let run = a_run(dir.path());
    let fresh = dir.path().join("fresh").to_str().unwrap().to_string();
    let profile = [&["profile", "--out", &fresh], &SHORT[..]].concat();
    let all: [&[&str]; 5] =
        [&["report", &run], &["report", &run, "--json"], &["export", "chrome", &run], &["doctor"], &profile];
    for args in all {
        let output = candlescope().args(args).stdout(full()).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.contains("error: cannot write to standard output") && said.contains("No space left"), "{said}");
        assert!(!said.contains("panicked"), "{said}");
    }
    assert_eq!(manifest(Path::new(&fresh))["complete"], true, "the run is whole");
}

#[cfg(target_os = "linux")]
#[test]
fn standard_error_that_takes_nothing_changes_no_status() {
    let dir = tempfile::tempdir().unwrap();
    let run = a_run(dir.path());
    let status = |args: &[&str]| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut closed = candlescope();
        let closed = closed.args(args).stdout(Stdio::null()).stderr(writer).status().unwrap();
        let on_full = candlescope().args(args).stdout(Stdio::null()).stderr(full()).status().unwrap();
        assert_eq!(closed.code(), on_full.code());
        closed.code()
    };
    assert_eq!(status(&["report", "/nowhere"]), Some(1));
    // An unfinished segment makes `export` warn.
    std::fs::write(Path::new(&run).join("spans/part-00009.parquet.inprogress"), "half").unwrap();
    assert_eq!(status(&["export", "chrome", &run]), Some(0));
}

/// Text that would clear the screen, set the title, change the colour, and reverse the text direction.
const EVIL: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{7f}\u{202e}";

#[track_caller]
fn assert_harmless(shown: &str) {
    let steers = |c: char| (c.is_control() && c != '\n' && c != '\t') || c == '\u{202e}';
    assert!(!shown.contains(steers), "{shown:?}");
}

#[test]
fn text_from_outside_does_not_steer_the_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let run_arg = run.to_str().unwrap();
    let prompt = format!("before {EVIL} after");
    let shown = ok(&[&["profile", "--out", run_arg, "--prompt", &prompt], &SHORT[..]].concat());
    assert!(shown.contains("before \\u001b[2J\\u001b]0;owned\\u0007\\u009b31m\\u007f\\u202e after"), "{shown}");
    assert_harmless(&shown);
    let shown = ok(&["report", run_arg, "--json"]);
    assert_harmless(&shown);

    // Names in a run that somebody else made.
    let mut hostile = manifest(&run);
    for key in ["run_id", "host"] {
        hostile[key] = EVIL.into();
    }
    hostile["model"]["name"] = EVIL.into();
    hostile["verdict"]["findings"] =
        serde_json::json!([{ "severity": "warning", "code": EVIL, "message": EVIL, "remedy": EVIL }]);
    std::fs::write(run.join("run.json"), hostile.to_string()).unwrap();
    for args in [&["report", run_arg][..], &["report", run_arg, "--json"], &["export", "chrome", run_arg, "--json"]] {
        let output = candlescope().args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}");
        assert_harmless(&text(&output.stdout));
        assert_harmless(&text(&output.stderr));
    }

    // Names in errors, which stay one line.
    let name = format!("two\nlines{EVIL}");
    for args in [["profile", "--model", &name], ["report", &name, "--json"], ["export", "chrome", &name]] {
        let said = fails(&args);
        assert_harmless(&said);
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn complaints_about_the_command_line_do_not_steer_the_terminal() {
    let cases: [&[&str]; 6] = [
        &[EVIL],
        &["report", "run", EVIL],
        &["report", &format!("--{EVIL}")],
        &["profile", "--seed", EVIL],
        &["profile", &format!("--chat={EVIL}")],
        &["export", EVIL, "run"],
    ];
    for args in cases {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let said = text(&output.stderr);
        assert_harmless(&said);
        assert!(said.contains("\\u001b]0;owned\\u0007"), "what was given is shown: {said:?}");
        assert!(said.contains("--help"), "{said}");
    }
}
