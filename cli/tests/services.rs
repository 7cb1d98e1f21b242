//! `--otlp`, `--prometheus` and `export otlp` against servers of this test's own, and without any.
#![cfg(all(feature = "otlp", feature = "prometheus"))]
#![allow(missing_docs, reason = "a test")]

use candlescope_testkit::collector::{nobody, ok, serve};
use candlescope_testkit::services::{free_addresses, get};
use candlescope_testkit::{text, wait_until};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn candlescope(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_candlescope"));
    command.args(args);
    for (name, _) in std::env::vars_os() {
        // The machine's configuration must not affect the tests.
        if name.to_string_lossy().starts_with("OTEL_") {
            command.env_remove(name);
        }
    }
    command
}

fn said(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}

fn contains(body: &[u8], text: &str) -> bool {
    body.windows(text.len()).any(|part| part == text.as_bytes())
}

fn exporter(run: &Path, name: &str) -> serde_json::Value {
    let text = std::fs::read_to_string(run.join("run.json")).expect("a manifest");
    let manifest: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let all = manifest["exporters"].as_array().expect("accounts");
    all.iter().find(|e| e["name"] == name).unwrap_or_else(|| panic!("no {name} in {all:?}")).clone()
}

#[test]
fn a_run_goes_to_a_collector_and_is_scraped_while_it_lasts() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = dir.path().join("run");
    let (address, got) = serve(ok);
    let (endpoint, [metrics]) = (format!("http://{address}"), free_addresses());
    let mut child = candlescope(&["profile", "--repeats", "20", "--no-progress", "--otlp", &endpoint])
        .args(["--prometheus", &metrics.to_string(), "--out"])
        .arg(&run)
        .stdout(Stdio::null())
        .spawn()
        .expect("starts");
    let scraped = || {
        assert!(child.try_wait().expect("a state").is_none(), "the run ended before it was scraped");
        get(metrics, "/metrics").is_ok_and(|page| page.contains("candlescope_steps_total{phase=\"decode\"}"))
    };
    wait_until(scraped, "a decode step is on the page");
    assert!(child.wait().expect("ends").success());
    assert!(get(metrics, "/metrics").is_err(), "metrics end with the run");

    let got = std::mem::take(&mut *got.lock().expect("a lock"));
    assert!(!got.is_empty() && got.iter().all(|g| g.path == "/v1/traces" && contains(&g.body, "decode")));
    assert!(got.iter().all(|g| contains(&g.body, "service.name") && !contains(&g.body, "unknown_service")));
    let account = exporter(&run, "otlp");
    assert_eq!(account["exported"]["requests"], 21, "{account}");
    assert!(account["dropped"]["spans"].get("io").is_none(), "{account}");
    // The endpoint may carry a password.
    let manifest = std::fs::read_to_string(run.join("run.json")).expect("a manifest");
    assert!(!manifest.contains(&endpoint), "{manifest}");
}

#[test]
fn a_run_on_disk_is_sent_and_a_missing_collector_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = dir.path().join("run");
    let run = run.to_str().expect("text");
    let profiled = candlescope(&["profile", "--repeats", "2", "--no-progress", "--out", run]).output().expect("runs");
    assert!(profiled.status.success(), "{}", said(&profiled));

    let (address, got) = serve(ok);
    let sent = candlescope(&["export", "otlp", run, "--json", "--endpoint", &format!("http://{address}")])
        .env("OTEL_SERVICE_NAME", "mine")
        .output()
        .expect("runs");
    assert!(sent.status.success(), "{}", said(&sent));
    let told: serde_json::Value = serde_json::from_slice(&sent.stdout).expect("JSON");
    assert_eq!(told["report"]["exported"]["requests"], 3, "{told}");
    let got = got.lock().expect("a lock");
    assert!(!got.is_empty() && got.iter().all(|g| contains(&g.body, "mine")));

    let nobody = nobody().to_string();
    let failed =
        candlescope(&["export", "otlp", run, "--endpoint", &format!("http://{nobody}")]).output().expect("runs");
    let message = said(&failed);
    assert!(!failed.status.success() && message.contains(&nobody) && message.contains("--endpoint"), "{message}");
    assert_eq!(message.trim().lines().count(), 1, "{message}");
    let mixed = candlescope(&["export", "chrome", run, "--endpoint", "http://x:1"]).output().expect("runs");
    assert!(!mixed.status.success() && said(&mixed).contains("--endpoint is for otlp"), "{}", said(&mixed));
}

#[test]
fn addresses_that_cannot_be_used_leave_no_run_behind() {
    let dir = tempfile::tempdir().expect("a directory");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = (taken.local_addr().expect("an address").to_string(), taken);
    for (option, value, part) in [
        ("--otlp", "localhost:4317", "http://localhost:4318"),
        ("--prometheus", taken.0.as_str(), "another program has the port"),
    ] {
        let run = dir.path().join("run");
        let output =
            candlescope(&["profile", "--no-progress", option, value, "--out"]).arg(&run).output().expect("runs");
        assert!(!output.status.success() && said(&output).contains(part), "{}", said(&output));
        assert!(!run.exists(), "{option}");
    }
}
