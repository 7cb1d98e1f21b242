//! Panels, alerts and recording rules ask for metrics that a session exposes.

use super::common::*;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};

/// Metrics of panels and alerts that no session without a GPU exposes, with the reason.
const OF_A_GPU: &[(&str, &str)] = &[
    ("hw_", "samples of NVML"),
    ("candlescope_gpu_", "samples of NVML, and steps with GPU time"),
    ("candlescope_energy_joules_total", "what a counter of energy of NVML counted, divided"),
    ("candlescope_kernel", "kernels are recorded by CUPTI"),
];

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

fn all_asked() -> BTreeSet<String> {
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

#[test]
fn every_panel_and_alert_asks_for_what_a_session_exposes() {
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
    let exposed = |page: &str, name: &str| {
        page.lines().any(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])))
    };
    let missing = |page: &str| -> Vec<String> {
        let of_a_gpu = |name: &str| OF_A_GPU.iter().any(|(prefix, _)| name.starts_with(prefix));
        asked.iter().filter(|name| !of_a_gpu(name) && !exposed(page, name)).cloned().collect()
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
