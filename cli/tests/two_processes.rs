//! Several processes on one `--out`, and starts that fail half-way: no process removes what another one made, and
//! nothing is left in the way of the next try.
#![allow(missing_docs, reason = "a test")]
mod common;
use common::*;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Stdio};

/// Rounds of the race; `CANDLESCOPE_RACES=100` for more.
fn rounds() -> usize {
    std::env::var("CANDLESCOPE_RACES").ok().and_then(|n| n.parse().ok()).unwrap_or(10)
}

const SHORT: [&str; 6] = ["--max-new-tokens", "2", "--repeats", "1", "--warmup", "0"];

fn start(out: &Path, more: &[&str]) -> Child {
    candlescope()
        .args(["profile", "--out"])
        .arg(out)
        .args(SHORT)
        .args(more)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts")
}

#[track_caller]
fn assert_whole(run: &Path) {
    let manifest = manifest(run);
    assert_eq!(manifest["complete"], true, "{manifest}");
    assert!(manifest["counts"]["spans"].as_u64() > Some(0), "{manifest}");
    let metrics = json(&ok(&["report", run.to_str().unwrap(), "--json"]));
    assert!(metrics.is_object());
}

#[test]
fn of_four_processes_on_one_directory_one_wins_and_its_run_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..rounds() {
        // In a directory that has to be made as well, and in one that exists.
        let run = dir.path().join(format!("runs-{round}/deep/run"));
        if round % 3 == 0 {
            std::fs::create_dir_all(&run).unwrap();
        }
        let all: Vec<_> = (0..4).map(|_| start(&run, &[])).collect();
        let ended: Vec<_> = all.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
        let said: Vec<_> = ended.iter().map(|o| text(&o.stderr)).collect();
        assert_eq!(ended.iter().filter(|o| o.status.success()).count(), 1, "round {round}: {said:#?}");
        for (output, said) in ended.iter().zip(&said).filter(|(output, _)| !output.status.success()) {
            assert_eq!(output.status.code(), Some(1), "{said}");
            assert!(said.contains("error: ") && said.contains("deep/run"), "names the directory: {said}");
            let remedy = said.contains("name a directory") || said.contains("a directory of its own");
            assert!(remedy, "names the remedy: {said}");
        }
        assert_whole(&run);
    }
}

#[test]
fn starts_that_fail_beside_one_that_does_not_leave_its_run_alone() {
    let dir = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for round in 0..rounds().div_ceil(2) {
        let run = dir.path().join(format!("runs-{round}/run"));
        // Each of these claims the directory if it comes first, and gives it back.
        let failing: Vec<_> = (0..3).map(|_| start(&run, &["--prometheus", &address])).collect();
        let good = start(&run, &[]).wait_with_output().unwrap();
        let failed: Vec<_> = failing.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
        assert!(failed.iter().all(|o| o.status.code() == Some(1)));
        if good.status.success() {
            assert_whole(&run);
        } else {
            // It started between the claim and the failure of one of the others.
            let said = text(&good.stderr);
            assert!(said.contains("already holds files") || said.contains("just been taken"), "{said}");
            assert!(!std::fs::read_dir(&run).is_ok_and(|entries| entries.count() > 0), "nothing is left in the way");
        }
    }
}

#[test]
fn after_a_port_in_use_the_same_command_can_be_given_again() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("runs/first");
    let timeline = dir.path().join("timeline.pftrace");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut args = vec!["profile", "--out", run.to_str().unwrap(), "--prometheus", &address];
    args.extend(["--perfetto", timeline.to_str().unwrap()]);
    args.extend(SHORT);
    for _ in 0..3 {
        let said = fails(&args);
        assert!(said.contains(&address), "{said}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "what the start made is gone");
    }
    drop(taken);
    ok(&args);
    assert_whole(&run);
    assert!(timeline.is_file());
}

#[test]
fn a_collector_address_that_makes_no_sense_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    for address in ["not an address", "ftp://localhost:1", "http://"] {
        fails(&["profile", "--out", run.to_str().unwrap(), "--otlp", address]);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{address}");
    }
}
