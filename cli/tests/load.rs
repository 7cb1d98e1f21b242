//! `candlescope load` against a server of the test's own.
#![cfg(feature = "lab")]
#![allow(missing_docs, reason = "a test")]
mod common;
use candlescope_testkit::completions::{Act, JSON, Server, models, stream};
use common::*;
use std::process::{Command, Stdio};

fn server(gap_ms: u64) -> Server {
    Server::start(move |request| models(request).unwrap_or_else(|| stream(5, 2, gap_ms, 9)))
}

#[test]
fn figures_files_and_one_object() {
    let (server, dir) = (server(2), tempfile::tempdir().expect("a directory"));
    let (url, out) = (server.url(), dir.path().join("results"));
    let out = out.to_str().expect("UTF-8");
    let base = ["load", &url, "--requests", "6", "--warmup", "2", "--prompt", "A secret?", "--out", out];
    let said = ok(&[&base[..], &["--concurrency", "1,2", "--slo", "ttft=10s,tpot=10s"]].concat());
    for told in
        ["model scripted", "TTFT", "1 client", "2 clients", "goodput", "100.0 % kept the limits", "load_latency.svg"]
    {
        assert!(said.contains(told), "{told}: {said}");
    }
    let written = std::fs::read_to_string(format!("{out}/load_test_results.json")).expect("results");
    assert!(!written.contains("A secret?"));
    assert_eq!(json(&written)["requests"][0]["token_ns"].as_array().map(Vec::len), Some(5));

    let told = fails(&base);
    assert!(told.contains("is there already") && told.contains("--overwrite"), "{told}");
    let object = json(&ok(&[&base[..], &["--rate", "50", "--json", "--overwrite"]].concat()));
    assert_eq!((object["stages"][0]["figures"]["ok"].as_u64(), object.get("requests")), (Some(6), None));
    assert_eq!(object["files"].as_array().map(Vec::len), Some(2));
    assert_eq!(object["options"]["plan"]["levels"][0]["value"], 50.0);
}

#[test]
fn ctrl_c_keeps_what_there_is() {
    let (server, dir) = (server(300), tempfile::tempdir().expect("a directory"));
    let child = candlescope()
        .args(["load", &server.url(), "--duration", "60s", "--prompt", "x", "--warmup", "1", "--concurrency", "2"])
        .arg("--out")
        .arg(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    wait_until(|| server.seen().len() >= 8, "the load is on");
    let signalled = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    assert!(signalled.success());
    let output = child.wait_with_output();
    let output = output.expect("its output");
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(!output.status.success() && errors.contains("error: ended early"), "{errors}");
    assert!(said.contains("2 clients") && said.contains("ended early"), "{said}");
    let written = std::fs::read_to_string(dir.path().join("load_test_results.json")).expect("results");
    assert_eq!(json(&written)["end"]["how"], "stopped");
    assert!(json(&written)["requests"].as_array().is_some_and(|r| r.len() >= 4));
}

#[test]
fn what_is_wrong_is_named_before_any_load() {
    let (server, dir) = (server(0), tempfile::tempdir().expect("a directory"));
    let (url, at) = (server.url(), |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_string());
    std::fs::write(at("file"), "x").expect("written");
    std::fs::write(at("empty.jsonl"), "").expect("written");
    let out = at("out");
    for (given, told) in [
        (vec!["--slo", "ttft=200"], "write 200ms"),
        (vec!["--duration", "5 weeks"], "write 30s"),
        (vec!["--api-key-env", "CANDLESCOPE_NO_SUCH_KEY"], "export CANDLESCOPE_NO_SUCH_KEY=KEY"),
        (vec!["--body", "[1]"], "write a JSON object"),
        (vec!["--dataset", &at("empty.jsonl")], "has no prompts"),
        (vec!["--dataset", &at("none")], "cannot read"),
        (vec!["--out", &at("file")], "--out"),
        (vec!["--concurrency", "0"], "not possible"),
    ] {
        let mut args = vec!["load", &url];
        if given[0] != "--out" {
            args.extend(["--out", &out]);
        }
        args.extend(given);
        let error = fails(&args);
        assert!(error.contains(told), "{told}: {error}");
    }
    assert!(server.seen().is_empty(), "no load was put on the server");
    let error = fails(&["load", "http://user:hunter22@127.0.0.1:1", "--out", &out]);
    assert!(error.contains("--api-key-env") && !error.contains("hunter22"), "{error}");
}

#[test]
fn a_server_that_only_fails_is_an_error_with_results() {
    let failing = Server::start(|request| match models(request) {
        Some(answer) => answer,
        None if request.is_first() => stream(2, 0, 0, 5),
        None => vec![Act::Whole(500, JSON, "{\"error\":\"it broke\"}".to_string())],
    });
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().to_str().expect("UTF-8");
    let error = fails(&["load", &failing.url(), "--requests", "4", "--prompt", "x", "--out", out]);
    assert!(error.contains("no request succeeded: status_500: it broke"), "{error}");
    assert!(dir.path().join("load_test_results.json").exists());
}
