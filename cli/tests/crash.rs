//! A command that dies of a signal says where it was, and leaves what it had recorded.
#![cfg(target_os = "linux")]
#![allow(missing_docs, reason = "a test")]
mod common;
use common::*;
use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

/// Runs a long profile and sends it this signal while the model generates; gives what it wrote on standard error.
fn killed_by(signal: &str, run: &std::path::Path) -> (std::process::ExitStatus, String) {
    let mut child = candlescope()
        .args(["profile", "--model", "embedded", "--max-new-tokens", "200", "--repeats", "100000", "--ignore-eos"])
        .args(["--no-progress", "--out"])
        .arg(run)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    // Segments are rotated by time: once there is one, the model has generated for a while.
    let generates = || std::fs::read_dir(run.join("spans")).is_ok_and(|files| files.count() > 0);
    wait_until(generates, "a segment is being written");
    std::thread::sleep(Duration::from_millis(300));
    let pid = child.id().to_string();
    let sent = std::process::Command::new("kill").args([signal, &pid]).status().expect("kill runs");
    assert!(sent.success());
    let mut said = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    (child.wait().expect("it ends"), said)
}

#[test]
fn a_crash_tells_where_it_was_and_leaves_the_run() {
    use std::os::unix::process::ExitStatusExt;
    let dir = tempfile::tempdir().unwrap();
    for (signal, number, name) in [("-SEGV", 11, "SIGSEGV"), ("-ABRT", 6, "SIGABRT")] {
        let run = dir.path().join(name);
        let (status, said) = killed_by(signal, &run);
        assert_eq!(status.signal(), Some(number), "it dies of the signal as it would have: {said}");
        assert!(said.contains(&format!("crashed: {name}")), "{said}");
        assert!(said.contains("thread: ") && said.contains("doing: generating"), "{said}");
        assert!(said.contains(&format!("run: {}", run.display())), "{said}");
        let frames = |text: &str| text.lines().filter(|line| line.contains("(+0x") && line.contains("[0x")).count();
        assert!(frames(&said) >= 2, "a stack: {said}");
        let kept = std::fs::read_to_string(run.join("crash.txt")).expect("the report is kept in the run");
        assert!(kept.contains(name) && kept.contains("doing: generating") && frames(&kept) >= 2, "{kept}");
        // What was written until then can be read.
        ok(&["report", run.to_str().unwrap()]);
    }
}
