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
    let said = ok(&[&base[..], &["--concurrency", "1-2*2", "--slo", "ttft=10s,tpot=10s"]].concat());
    for told in
        ["model scripted", "TTFT", "1 client", "2 clients", "goodput", "100.0 % kept the limits", "load_latency.svg"]
    {
        assert!(said.contains(told), "{told}: {said}");
    }
    let written = std::fs::read_to_string(format!("{out}/load_test_results.json")).expect("results");
    assert!(!written.contains("A secret?"));
    assert!(std::fs::read(format!("{out}/load_latency.png")).expect("a chart").starts_with(b"\x89PNG"));
    assert_eq!(json(&written)["requests"][0]["token_ns"].as_array().map(Vec::len), Some(5));

    let told = fails(&base);
    assert!(told.contains("is there already") && told.contains("--overwrite"), "{told}");
    let object =
        json(&ok(&[&base[..], &["--rate", "50", "--json", "--overwrite", "--price-per-hour", "3.6"]].concat()));
    let figures = &object["stages"][0]["figures"];
    let (usd, tps) = (&figures["usd_per_million_output_tokens"], &figures["output_tokens_per_s"]);
    assert!((usd.as_f64().unwrap() * tps.as_f64().unwrap() / 1000.0 - 1.0).abs() < 1e-9, "{figures}");
    assert_eq!((object["stages"][0]["figures"]["ok"].as_u64(), object.get("requests")), (Some(6), None));
    assert_eq!(object["files"].as_array().map(Vec::len), Some(2));
    assert_eq!(object["options"]["plan"]["levels"][0]["value"], 50.0);
}

#[test]
#[cfg(target_os = "linux")]
fn others_on_this_machine_are_told() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let (server, dir) = (server(0), tempfile::tempdir().expect("a directory"));
    let (url, out) = (server.url(), dir.path().join("results"));
    let stop = AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        let n = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        (0..n).for_each(|_| {
            drop(scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            }))
        });
        let args = ["load", &url, "--requests", "2", "--warmup", "1", "--prompt", "x", "--json", "--out"];
        let output = candlescope().args(args).arg(&out).output().expect("it runs");
        stop.store(true, Ordering::Relaxed);
        output
    });
    assert!(output.status.success() && text(&output.stderr).contains("warning: other processes use"), "{output:?}");
    let before = &json(&text(&output.stdout))["machine"]["disturbances_before"][0];
    assert!(before.as_str().is_some_and(|what| what.contains(" cores: times are longer")), "{before}");
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
        (vec!["--concurrency", "0"], "values are at least 1"),
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

#[test]
fn files_of_others_stay_and_one_load_has_its_directory_alone() {
    let (server, dir) = (server(0), tempfile::tempdir().expect("a directory"));
    let (url, out) = (server.url(), dir.path().to_str().expect("UTF-8").to_string());
    let base = ["load", &url, "--requests", "3", "--warmup", "1", "--prompt", "x", "--out", &out];
    // Not ours, although they are called so.
    for name in ["load_latency.svg", "load_requests.csv"] {
        let theirs = dir.path().join(name);
        std::fs::write(&theirs, "theirs").expect("written");
        let told = fails(&base);
        assert!(told.contains(name) && told.contains("is there already"), "{told}");
        assert_eq!(std::fs::read(&theirs).expect("there"), b"theirs");
        std::fs::remove_file(theirs).expect("removed");
    }
    // A chart without results beside it is nobody's of ours, whatever may be replaced.
    let chart = dir.path().join("load_latency.svg");
    std::fs::write(&chart, "theirs").expect("written");
    ok(&[&base[..], &["--overwrite"]].concat());
    assert_eq!(std::fs::read(&chart).expect("there"), b"theirs");
    // Beside results that are replaced it is of those.
    ok(&[&base[..], &["--overwrite"]].concat());
    assert!(!chart.exists());
    #[cfg(unix)]
    {
        let lock = candlescope_core::files::lock_directory(dir.path()).expect("locked");
        let told = fails(&[&base[..], &["--overwrite"]].concat());
        assert!(told.contains("another process is writing into it") && told.contains("--out"), "{told}");
        drop(lock);
    }
}

#[cfg(unix)]
#[test]
fn more_clients_than_this_process_may_open_are_refused() {
    let (server, dir) = (server(0), tempfile::tempdir().expect("a directory"));
    let command = candlescope();
    let (program, out) = (command.get_program(), dir.path().join("out"));
    let said = Command::new("sh")
        .args(["-c", "ulimit -n 200 && exec \"$0\" \"$@\""])
        .arg(program)
        .args(["load", &server.url(), "--concurrency", "2000", "--requests", "3", "--prompt", "x", "--out"])
        .arg(&out)
        .output()
        .expect("it starts");
    let told = text(&said.stderr);
    assert!(!said.status.success() && told.contains("2000 clients need 2064") && told.contains("ulimit -n"), "{told}");
    assert!(!out.exists() && server.seen().is_empty());
}

#[test]
fn a_load_that_takes_more_memory_than_it_may_ends_with_what_it_has() {
    let (server, dir) = (server(0), tempfile::tempdir().expect("a directory"));
    let out = dir.path().to_str().expect("UTF-8");
    let told =
        fails(&["load", &server.url(), "--requests", "9000", "--prompt", "x", "--out", out, "--memory-limit", "1"]);
    assert!(told.contains("ended early") && told.contains("--memory-limit"), "{told}");
    let written = json(&std::fs::read_to_string(dir.path().join("load_test_results.json")).expect("results"));
    assert_eq!((&written["end"]["how"], &written["end"]["limit_bytes"]), (&"out_of_room".into(), &(1 << 20).into()));
    assert!(written["requests"].as_array().is_some_and(|requests| requests.len() > 500));
}
