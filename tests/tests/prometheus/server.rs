//! Prometheus as a child process, and its tool.

use candlescope_tests::services::{ROOT, free_addresses, from_script, get};
use serde_json::Value;
use std::fmt::Write as _;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Where the programs are, fetched on first use.
fn programs() -> &'static Path {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| from_script("services/prometheus.sh"))
}

pub(crate) fn promtool() -> PathBuf {
    programs().join("promtool")
}

/// Runs a program with `input` on its standard input; whether it was content, and all it said.
pub(crate) fn stdin_to(program: &Path, arguments: &[&str], input: &[u8]) -> (bool, String) {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    child.stdin.take().expect("stdin").write_all(input).expect("reads");
    let output = child.wait_with_output().expect("ends");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.success(), said)
}

pub(crate) struct Prometheus {
    pub(crate) address: SocketAddr,
    targets: usize,
    child: Child,
    _dir: tempfile::TempDir,
}

impl Prometheus {
    /// Scrapes `targets` twice a second, with the rules of the repository.
    pub(crate) fn start(targets: &[SocketAddr]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let listed: Vec<String> = targets.iter().map(|t| format!("\"{t}\"")).collect();
        let rules = Path::new(ROOT).join("grafana/prometheus/rules.yml");
        std::fs::copy(rules, dir.path().join("rules.yml")).expect("rules");
        let config = format!(
            "global:\n  scrape_interval: 500ms\n  scrape_timeout: 500ms\n  evaluation_interval: 1s\nrule_files: [rules.yml]\n\
             scrape_configs:\n  - job_name: candlescope\n    static_configs:\n      - targets: [{}]\n",
            listed.join(", ")
        );
        std::fs::write(dir.path().join("prometheus.yml"), config).expect("written");
        let program = programs().join("prometheus");
        let [address] = free_addresses();
        let child = Command::new(program)
            .arg(format!("--config.file={}", dir.path().join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--log.level=warn")
            .current_dir(dir.path())
            .spawn()
            .expect("prometheus starts");
        let this = Self { address, targets: targets.len(), child, _dir: dir };
        let deadline = Instant::now() + Duration::from_secs(60);
        while !get(address, "/-/ready").is_ok_and(|body| body.contains("Ready")) {
            assert!(Instant::now() < deadline, "prometheus does not get ready");
            std::thread::sleep(Duration::from_millis(100));
        }
        this
    }

    /// The values that a query gives now, each with its labels.
    pub(crate) fn query(&self, expr: &str) -> Result<Vec<(String, f64)>, String> {
        let mut encoded = String::new();
        for byte in expr.bytes() {
            let _ = write!(encoded, "%{byte:02X}");
        }
        let body = get(self.address, &format!("/api/v1/query?query={encoded}")).map_err(|e| e.to_string())?;
        let answer: Value = serde_json::from_str(&body).map_err(|e| format!("{e}: {body}"))?;
        if answer["status"] != "success" {
            return Err(body);
        }
        let values = answer["data"]["result"].as_array().into_iter().flatten();
        Ok(values.filter_map(|v| Some((v["metric"].to_string(), v["value"][1].as_str()?.parse().ok()?))).collect())
    }

    /// Waits until every target has been scraped anew, beginning now.
    pub(crate) fn wait_for_scrapes(&self) {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs_f64();
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            // A scrape's samples carry the time when it began.
            let scraped = self.query("timestamp(up == 1)").expect("answers");
            if scraped.len() == self.targets && scraped.iter().all(|(_, at)| *at > now) {
                return;
            }
            assert!(Instant::now() < deadline, "not all targets are scraped: {scraped:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
