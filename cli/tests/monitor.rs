//! `candlescope monitor` beside programs of the test's own.
#![cfg(all(feature = "monitor", target_os = "linux"))]
#![allow(missing_docs, reason = "a test")]
mod common;
use common::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A process that is ended when the test does.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().expect("kill runs").success());
}

/// The command, with a runtime directory of the test's own: other programs of this user are not found.
fn command(home: &Path, args: &[&str]) -> Command {
    let mut command = candlescope();
    command.args(args).env_remove("CANDLESCOPE").env("XDG_RUNTIME_DIR", home).env("XDG_CACHE_HOME", home);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn said(home: &Path, args: &[&str]) -> (bool, String, String) {
    let output = command(home, args).output().expect("it runs");
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

/// A program that serves metrics until it is ended.
fn program(home: &Path) -> Running {
    let out = home.join("run");
    let args = ["profile", "--model", "embedded", "--repeats", "1000000", "--prometheus", "0", "--no-progress"];
    let mut command = command(home, &args);
    Running(command.arg("--out").arg(out).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts"))
}

fn announced(home: &Path) -> usize {
    std::fs::read_dir(home.join("candlescope/running")).into_iter().flatten().count()
}

#[test]
fn a_program_is_found_shown_and_its_end_is_told_with_its_last_figures() {
    let dir = tempfile::tempdir().expect("a directory");
    let home = dir.path();
    let running = program(home);
    wait_until(|| announced(home) == 1, "the program announces itself");
    let pid = running.0.id().to_string();
    // Its first request has ended once there is a time to first token.
    wait_until(|| said(home, &["monitor", "--once"]).1.contains("TTFT"), "a first request");
    let (good, shown, _) = said(home, &["monitor", "--once"]);
    for told in [&pid, "127.0.0.1:", "tokens/s", "TTFT", "TPOT", "CPU", "memory", "threads"] {
        assert!(good && shown.contains(told), "{told}: {shown}");
    }
    assert!(!shown.contains('\u{1b}'), "{shown}");

    let csv = home.join("rows.csv");
    let args = ["monitor", "--pid", &pid, "--period", "200ms", "--csv", csv.to_str().expect("UTF-8")];
    let mut watcher = Running(command(home, &args).spawn().expect("it starts"));
    let mut lines = BufReader::new(watcher.0.stdout.take().expect("piped"));
    let mut first = String::new();
    while !first.contains("tokens/s") {
        first.clear();
        assert_ne!(lines.read_line(&mut first).expect("a line"), 0, "the watcher ended");
    }
    assert!(first.contains(&format!("({pid})")) && first.contains("TTFT"), "{first}");
    signal(&running.0, "-KILL");
    drop(running);
    let mut rest = String::new();
    lines.read_to_string(&mut rest).expect("text");
    assert!(watcher.0.wait().expect("it ends").success(), "{rest}");
    for told in ["has ended", "its last figures", "tokens/s", "CPU", "watched for", "written: "] {
        assert!(rest.contains(told), "{told}: {rest}");
    }
    assert!(!rest.contains('\u{1b}'), "{rest}");
    let rows = std::fs::read_to_string(&csv).expect("rows");
    let ended = |subject: &str| rows.lines().any(|row| row.contains(subject) && row.contains(",ended,"));
    assert!(rows.starts_with("time_ns,") && ended(",program,") && ended(",process,"), "{rows}");
    // What the killed program left is gone.
    assert_eq!(announced(home), 0);
}

/// A benchmark serves no metrics, and its own process waits for those that measure.
#[test]
fn a_benchmark_is_seen_and_its_processes_count_as_its_own() {
    let dir = tempfile::tempdir().expect("a directory");
    let home = dir.path();
    let args = ["bench", "latency", "--model", "embedded", "--processes", "1", "--runs", "1000000", "--no-progress"];
    let mut bench = command(home, &args);
    bench.arg("--out").arg(home.join("study")).stdout(Stdio::null()).stderr(Stdio::null());
    let bench = Running(bench.spawn().expect("it starts"));
    wait_until(|| said(home, &["monitor", "--once"]).1.contains("samples, last of latency"), "samples");
    let (good, shown, _) = said(home, &["monitor", "--once"]);
    assert!(good && shown.contains("bench latency of embedded, start 1 of 1 ("), "{shown}");
    assert!(shown.contains("CPU") && !shown.contains("no candlescope program found"), "{shown}");

    let pid = bench.0.id().to_string();
    let args = ["monitor", "--pid", &pid, "--period", "300ms", "--duration", "3s", "--idle-below", "5"];
    let (good, told, _) = said(home, &args);
    assert!(good, "{told}");
    let named = format!("bench latency of embedded, start 1 of 1 ({pid}, with the process that it started)");
    assert!(told.contains(&named) && told.contains("samples, last of latency"), "{told}");
    // The waiting process alone is idle all the time.
    let busiest = told.match_indices("CPU ").filter_map(|(at, _)| told[at + 4..].split(' ').next()?.parse().ok());
    let busiest = busiest.fold(0.0, f64::max);
    assert!(busiest > 0.05, "{told}");
    signal(&bench.0, "-TERM");
}

#[test]
fn any_process_is_watched_by_its_number_and_its_idle_time_is_listed() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut sleeper = Running(Command::new("sleep").arg("1000").spawn().expect("sleep"));
    let pid = sleeper.0.id().to_string();
    let args = ["monitor", "--pid", &pid, "--period", "100ms", "--idle-for", "200ms"];
    let mut watcher = Running(command(dir.path(), &args).spawn().expect("it starts"));
    let mut lines = BufReader::new(watcher.0.stdout.take().expect("piped")).lines();
    let mut line = || lines.next().map(|line| line.expect("text"));
    for _ in 0..8 {
        let told = line().expect("a line each period");
        assert!(told.contains(&format!("sleep ({pid})")), "{told}");
    }
    sleeper.0.kill().expect("it can be ended");
    sleeper.0.wait().expect("it ends");
    let rest = std::iter::from_fn(line).collect::<Vec<_>>().join("\n");
    assert!(watcher.0.wait().expect("it ends").success(), "{rest}");
    assert!(rest.contains("has ended") && rest.contains(&format!("sleep ({pid}): idle for ")), "{rest}");
    assert!(rest.contains("(CPU at most 5 % of a core for at least 200 ms)"), "{rest}");
}

#[test]
fn an_interrupt_ends_it_with_its_summary_and_so_does_a_reader_that_goes() {
    let dir = tempfile::tempdir().expect("a directory");
    for name in ["-INT", "-TERM", "-HUP"] {
        let mut watcher = Running(command(dir.path(), &["monitor"]).spawn().expect("it starts"));
        let mut lines = BufReader::new(watcher.0.stdout.take().expect("piped"));
        let mut first = String::new();
        lines.read_line(&mut first).expect("a line");
        assert!(first.contains("no program found"), "{first}");
        signal(&watcher.0, name);
        let mut rest = String::new();
        lines.read_to_string(&mut rest).expect("text");
        assert!(watcher.0.wait().expect("it ends").success() && rest.contains("watched for"), "{name}: {rest}");
    }
    let mut watcher = Running(command(dir.path(), &["monitor", "--period", "100ms"]).spawn().expect("it starts"));
    drop(watcher.0.stdout.take());
    assert!(watcher.0.wait().expect("it ends by itself").success());
}

#[test]
fn under_watch_it_prints_one_snapshot() {
    let dir = tempfile::tempdir().expect("a directory");
    // `watch` itself wants a terminal: a program of its name that runs a shell, as it does.
    let sh = std::fs::canonicalize("/bin/sh").expect("a shell");
    let watch = dir.path().join("watch");
    std::fs::copy(sh, &watch).expect("copied");
    let mut command = Command::new(&watch);
    command.arg("-c").arg(format!("{BINARY} monitor; echo ended $?")).env("XDG_RUNTIME_DIR", dir.path());
    command.env("XDG_CACHE_HOME", dir.path());
    let output = command.stdin(Stdio::null()).output().expect("it runs");
    let told = text(&output.stdout);
    assert!(told.contains("no candlescope program found") && told.contains("ended 0"), "{told}");
    assert!(!told.contains("watched for"), "{told}");
}

#[test]
fn on_a_terminal_it_fills_the_screen_and_gives_it_back() {
    let dir = tempfile::tempdir().expect("a directory");
    for (key, name) in [("q", "q"), ("\u{3}", "Ctrl-C")] {
        // `script` of util-linux gives the command a terminal.
        let mut command = Command::new("script");
        command.args(["-qefc", &format!("stty rows 24 cols 80; {BINARY} monitor"), "/dev/null"]);
        command.env("XDG_RUNTIME_DIR", dir.path()).env("XDG_CACHE_HOME", dir.path()).env("TERM", "xterm");
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let Ok(child) = child else { return eprintln!("skipped: `script` of util-linux is not installed") };
        let mut child = Running(child);
        let (mut input, mut output) = (child.0.stdin.take().expect("piped"), child.0.stdout.take().expect("piped"));
        let (mut seen, mut buffer) = (String::new(), [0; 4096]);
        while !seen.contains("q or Ctrl-C ends") {
            let n = output.read(&mut buffer).expect("what is on the screen");
            assert_ne!(n, 0, "{name}: {seen}");
            seen.push_str(&String::from_utf8_lossy(&buffer[..n]));
        }
        assert!(seen.contains("\u{1b}[?1049h"), "another screen");
        input.write_all(key.as_bytes()).expect("a key");
        let mut rest = Vec::new();
        output.read_to_end(&mut rest).expect("the rest");
        assert!(child.0.wait().expect("it ends").success());
        let rest = text(&rest);
        let (screen, after) = rest.split_once("\u{1b}[?1049l").expect("the screen is given back");
        assert!(!screen.contains("watched for") && after.contains("watched for"), "{name}: {rest}");
        assert!(after.contains("\u{1b}[?25h") || screen.contains("\u{1b}[?25h"), "the cursor is shown again: {rest}");
    }
}

#[test]
fn what_is_wrong_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_string();
    std::fs::write(at("there.csv"), "mine").expect("written");
    for (args, told) in [
        (vec!["--pid", "4194305"], "there is no process 4194305"),
        (vec!["--endpoint", "999999"], "ports are from 1 to 65535"),
        (vec!["--endpoint", "127.0.0.1:1"], "no metrics at http://127.0.0.1:1/metrics"),
        (vec!["--endpoint", "http://me:secret@127.0.0.1:1/"], "--prometheus 9464"),
        (vec!["--gpu", "GPU-none"], "the GPU cannot be watched"),
        (vec!["--period", "1ms"], "at least 100ms"),
        (vec!["--period", "5 weeks"], "write 30s"),
        (vec!["--idle-below", "-1"], "percent from 0 on"),
        (vec!["--csv", &at("there.csv")], "is there already"),
        (vec!["--csv", &at("none/x.csv")], "none/x.csv"),
        (vec!["--csv", "/dev/full"], "/dev/full"),
    ] {
        let args: Vec<&str> = ["monitor"].into_iter().chain(args).collect();
        let error = fails(&args);
        assert!(error.contains(told) && !error.contains("secret"), "{args:?}: {error}");
    }
    assert_eq!(std::fs::read_to_string(at("there.csv")).expect("kept"), "mine");
}
