//! A run in short: what scripts and agents read first.
#![allow(missing_docs, reason = "a test")]
mod common;
use common::*;
use std::path::Path;
use std::process::Command;

fn recorded(dir: &Path) {
    let args = ["profile", "--model", "embedded", "--max-new-tokens", "8", "--repeats", "3", "--no-progress", "--out"];
    ok(&[&args[..], &[dir.to_str().unwrap()]].concat());
}

#[test]
fn its_commands_run_as_they_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("it's a run");
    recorded(&run);
    let text = ok(&["overview", run.to_str().unwrap(), "--json"]);
    assert!(text.len() <= 8_001, "{} bytes", text.len());
    let found = json(&text);
    assert_eq!((&found["kind"], &found["what"]["model"]), (&"run".into(), &"embedded".into()));
    assert!(found["figures"].as_array().unwrap().iter().any(|figure| figure["key"] == "ttft"));
    let mut tried = 0;
    for next in found["next"].as_array().unwrap() {
        let command = next["command"].as_str().unwrap().replace(" OTHER ", " \"$OTHER\" ");
        // What stands between two commands may not be here: the query of a finding is tried below.
        if command.contains("| jq") {
            continue;
        }
        let output = Command::new("sh")
            .args(["-c", &format!("candlescope() {{ \"$BINARY\" \"$@\"; }}; {command}")])
            .env("BINARY", BINARY)
            .env("OTHER", &run)
            .env("XDG_CACHE_HOME", dir.path())
            .env_remove("CANDLESCOPE")
            .output()
            .unwrap();
        // `compare` says with its status what came out.
        let fine = if command.contains("candlescope compare") { &[0, 2][..] } else { &[0] };
        let status = output.status.code().unwrap();
        assert!(fine.contains(&status), "{command}: {status} {}", text_of(&output.stderr));
        tried += 1;
    }
    assert!(tried >= 4, "{tried} commands");
}

fn text_of(bytes: &[u8]) -> String {
    common::text(bytes)
}

#[test]
fn what_is_no_run_says_what_to_ask() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    recorded(&dir.path().join("runs/a"));
    let found = json(&ok(&["overview", &path("runs"), "--json"]));
    assert_eq!((&found["kind"], &found["runs"]), (&"runs".into(), &1.into()));
    assert!(found["next"][0]["command"].as_str().unwrap().ends_with("runs/a --json"), "{found}");
    assert!(ok(&["overview", &path("runs")]).contains("a folder of 1 run:"));
    std::fs::create_dir(dir.path().join("study")).unwrap();
    std::fs::write(dir.path().join("study/study.json"), "{}").unwrap();
    assert_eq!(json(&ok(&["overview", &path("study"), "--json"]))["kind"], "study");
    assert!(fails(&["overview", &path("nothing")]).contains("no such directory"));
    std::fs::create_dir(dir.path().join("empty")).unwrap();
    assert!(fails(&["overview", &path("empty")]).contains("holds no run"));
}
