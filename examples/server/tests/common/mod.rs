//! The server as a process of a test.
#![allow(dead_code, unreachable_pub, reason = "shared by several test binaries")]

use candlescope_testkit::SOON;
use candlescope_testkit::services::{cpu_of, from_script};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

pub struct Server {
    process: Child,
    pub url: String,
    said: Receiver<String>,
    /// Captures are made in `captures` below it.
    pub dir: Arc<tempfile::TempDir>,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill().and_then(|()| self.process.wait());
    }
}

impl Server {
    /// Starts one that computes on one thread, unless `RAYON_NUM_THREADS` says otherwise, and waits until it listens.
    pub fn start<A: AsRef<OsStr>>(arguments: &[A]) -> Self {
        Self::launch(arguments, None).listening()
    }

    /// A server whose time can be set by writing into the file `clock`, which makes reading the time more expensive.
    pub fn start_with_clock(arguments: &[impl AsRef<OsStr>], clock: &Path) -> Self {
        Self::launch(arguments, Some(clock)).listening()
    }

    /// Does not wait until it listens.
    pub fn launch(arguments: &[impl AsRef<OsStr>], clock: Option<&Path>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_candlescope-server"));
        if let Some(clock) = clock {
            command
                .env("LD_PRELOAD", from_script("services/faketime.sh"))
                .env("FAKETIME_TIMESTAMP_FILE", clock)
                .env("FAKETIME_CACHE_DURATION", "1")
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        let dir = Arc::new(tempfile::tempdir().expect("a directory"));
        let mut process = command
            .args(["--listen", "127.0.0.1:0", "--captures"])
            .arg(dir.path().join("captures"))
            .args(arguments)
            .env("RAYON_NUM_THREADS", std::env::var("RAYON_NUM_THREADS").unwrap_or_else(|_| "1".to_string()))
            .env("OTEL_SERVICE_NAME", "candlescope-soak")
            .env_remove("CAPTURE_TOKEN")
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let errors = BufReader::new(process.stderr.take().expect("piped"));
        let (tell, said) = channel();
        std::thread::spawn(move || {
            for line in errors.lines().map_while(Result::ok) {
                eprintln!("server: {line}");
                // The output has to be read even if nobody listens any more.
                let _ = tell.send(line);
            }
        });
        Self { process, url: String::new(), said, dir }
    }

    /// Waits until it listens.
    pub fn listening(mut self) -> Self {
        self.url = self.hears("listening on ").trim_start_matches("listening on ").to_string();
        self
    }

    /// The next line that contains `text`.
    pub fn hears(&self, text: &str) -> String {
        let deadline = Instant::now() + SOON;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.said.recv_timeout(left).unwrap_or_else(|e| panic!("the server never said `{text}`: {e}"));
            if line.contains(text) {
                return line;
            }
        }
    }

    /// What clients measured in `seconds` of load.
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

    /// The address that it listens on.
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

    /// Number of its open sockets, files and other descriptors.
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

    pub fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.process.id().to_string()]).status();
        assert!(status.expect("kill runs").success());
    }

    /// Stops it as an operator does, which must succeed, and returns its last lines of output.
    pub fn stop(self) -> Vec<String> {
        let (status, said) = self.end();
        assert!(status.success(), "the server ended with {status}: {said:?}");
        said
    }

    /// The same, however it ends.
    pub fn end(mut self) -> (ExitStatus, Vec<String>) {
        self.signal("-TERM");
        (self.process.wait().expect("its end"), self.said.iter().collect())
    }
}

/// The quantile `q` of sorted values.
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

/// Median, spread, and the 95 % interval of the median, which is valid for any distribution.
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
