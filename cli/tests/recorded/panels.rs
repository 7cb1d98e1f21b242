//! Panels, alerts and recording rules ask for metrics that a session exposes: one of the command on a CPU, and one of
//! a program whose GPU is scripted (`scripted_gpu.rs`).

use super::common::*;
use super::scripted_gpu::scripted;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn page(address: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// Names in expressions that are metrics of ours.
fn asked(expr: &str, into: &mut BTreeSet<String>) {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    for name in expr.split('"').step_by(2).flat_map(|unquoted| unquoted.split(|c: char| !word(c))) {
        let ours = ["candlescope_", "hw_", "gen_ai_", "process_", "system_"].iter().any(|at| name.starts_with(at));
        // Labels look like metrics; a recording rule has a colon.
        if ours && !["hw_id", "gen_ai_request_model"].contains(&name) && !name.contains(':') {
            into.insert(name.to_string());
        }
    }
}

pub(super) fn all_asked() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let grafana = Path::new(ROOT).join("grafana");
    for file in std::fs::read_dir(grafana.join("dashboards")).expect("dashboards") {
        let file = file.expect("a file").path();
        // What it asks for comes from `summary --openmetrics`, whose own test holds the two together.
        if file.ends_with("fleet.json") {
            continue;
        }
        let dashboard = json(&std::fs::read_to_string(file).expect("readable"));
        for panel in dashboard["panels"].as_array().expect("panels") {
            let targets = panel["targets"].as_array().into_iter().flatten();
            targets.filter_map(|target| target["expr"].as_str()).for_each(|expr| asked(expr, &mut all));
        }
        for variable in dashboard["templating"]["list"].as_array().into_iter().flatten() {
            variable["query"]["query"].as_str().into_iter().for_each(|query| asked(query, &mut all));
        }
    }
    let rules = std::fs::read_to_string(grafana.join("prometheus/rules.yml")).expect("rules");
    let unwritten = |line: &&str| !line.trim_start().starts_with(['#', 's', 'd']);
    rules.lines().filter(unwritten).for_each(|line| asked(line, &mut all));
    all
}

/// Whether a page has a series of this name.
pub(super) fn exposes(page: &str, name: &str) -> bool {
    page.lines().any(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])))
}

#[test]
fn every_panel_and_alert_asks_for_what_a_session_exposes() {
    // What a GPU has, the scripted one has: nothing is left out.
    let of_a_gpu = &scripted().page;
    let dir = tempfile::tempdir().expect("a directory");
    let address = TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr()).expect("a port").to_string();
    let args = [
        "profile",
        "--model",
        "embedded",
        "--max-num-seqs",
        "1",
        "--repeats",
        "1000000",
        "--prometheus",
        &address,
        "--no-progress",
    ];
    let mut command = candlescope();
    // With peaks, without which nothing is known of MFU and MBU.
    command.env("XDG_CACHE_HOME", super::recorded().dir.join("home"));
    command.args(args).arg("--out").arg(dir.path().join("run")).stdout(Stdio::null()).stderr(Stdio::null());
    let _running = Running(command.spawn().expect("it starts"));
    let asked = all_asked();
    assert!(asked.len() > 30, "{asked:?}");
    let missing = |page: &str| -> Vec<String> {
        asked.iter().filter(|name| !exposes(of_a_gpu, name) && !exposes(page, name)).cloned().collect()
    };
    let mut left = Vec::new();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while std::time::Instant::now() < deadline {
        left = missing(&page(&address).unwrap_or_default());
        if left.is_empty() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(250));
    }
    panic!("no session exposes {left:?}, which panels or alerts ask for");
}
