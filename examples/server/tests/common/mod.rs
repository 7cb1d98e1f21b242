//! The server as a process under load, for tests that measure.
#![allow(dead_code, unreachable_pub, reason = "shared by several test binaries")]

use candlescope_tests::services::{cpu_of, from_script};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

pub struct Server {
    process: Child,
    url: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill().and_then(|()| self.process.wait());
    }
}

impl Server {
    /// Starts one that computes on one thread, unless `RAYON_NUM_THREADS` says otherwise. With a `clock` its time can be set by writing
    /// into that file, which makes reading the time dearer.
    pub fn start(arguments: &[String], clock: Option<&Path>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_candlescope-server"));
        if let Some(clock) = clock {
            command
                .env("LD_PRELOAD", from_script("services/faketime.sh"))
                .env("FAKETIME_TIMESTAMP_FILE", clock)
                .env("FAKETIME_CACHE_DURATION", "1")
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        let mut process = command
            .args(["--listen", "127.0.0.1:0"])
            .args(arguments)
            .env("RAYON_NUM_THREADS", std::env::var("RAYON_NUM_THREADS").unwrap_or_else(|_| "1".to_string()))
            .env("OTEL_SERVICE_NAME", "candlescope-soak")
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut errors = BufReader::new(process.stderr.take().expect("piped")).lines().map_while(Result::ok);
        let url = errors.find_map(|line| line.strip_prefix("listening on ").map(str::to_string)).expect("an address");
        std::thread::spawn(move || errors.for_each(|line| eprintln!("server: {line}")));
        Self { process, url }
    }

    /// What clients saw in `seconds` of load.
    pub fn load(&self, seconds: f64, clients: u32) -> Value {
        let output = Command::new(env!("CARGO_BIN_EXE_load"))
            .args(["--server", &self.url, "--seconds", &seconds.to_string(), "--clients", &clients.to_string()])
            .args(["--max-tokens", "48", "--prompt-tokens", "24"])
            .stderr(Stdio::inherit())
            .output()
            .expect("the load runs");
        assert!(output.status.success());
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// What it answers on.
    pub fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Most memory that was ever resident, in MiB.
    pub fn peak_memory(&self) -> f64 {
        self.status("VmHWM:")
    }

    /// Sockets, files and all else that it has open.
    pub fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.process.id())).expect("the process").count()
    }

    /// CPU time so far.
    pub fn cpu(&self) -> Duration {
        cpu_of(self.process.id()).expect("it runs")
    }

    /// Resident memory in MiB.
    pub fn memory(&self) -> f64 {
        self.status("VmRSS:")
    }

    fn status(&self, size: &str) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).expect("the process");
        let kib = status.lines().find_map(|l| l.strip_prefix(size)).expect("a size");
        kib.trim().trim_end_matches(" kB").parse::<f64>().expect("a number") / 1024.0
    }

    /// Names of the threads that the kernel lists.
    pub fn threads(&self) -> Vec<String> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.process.id())).expect("the process");
        let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).ok();
        tasks.filter_map(|task| Some(name(task.ok()?)?.trim().to_string())).collect()
    }

    /// Ends it as an operator does.
    pub fn stop(self) {
        let status = self.end();
        assert!(status.success(), "the server ended with {status}");
    }

    /// The same, however it ends.
    pub fn end(mut self) -> ExitStatus {
        let told = Command::new("kill").args(["-TERM", &self.process.id().to_string()]).status();
        assert!(told.expect("kill runs").success());
        self.process.wait().expect("its end")
    }
}

/// What is at `q` of the way through sorted values.
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * q).round() as usize]
}

pub fn median(values: &[f64]) -> f64 {
    quantile(&sorted(values), 0.5)
}

pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Median, spread, and between which of the values the true median is in 95 of 100 cases, whatever they are distributed like.
pub fn spread(values: &[f64]) -> Value {
    let (sorted, n) = (sorted(values), values.len() as f64);
    let beside = 0.98 / n.sqrt();
    json!({
        "n": values.len(),
        "median": quantile(&sorted, 0.5),
        "median_95": [quantile(&sorted, (0.5 - beside).max(0.0)), quantile(&sorted, (0.5 + beside).min(1.0))],
        "p10": quantile(&sorted, 0.1),
        "p90": quantile(&sorted, 0.9),
    })
}
