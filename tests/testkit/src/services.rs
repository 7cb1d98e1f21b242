//! Real servers as child processes of a test, and a minimal HTTP client to talk to them.

use crate::{ROOT, wait_until};
use serde_json::Value;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The path that a script below `tests/` prints: a program, a directory or a library, fetched on first use.
///
/// # Panics
/// If the script fails; it says why on standard error.
pub fn from_script(script: &str) -> PathBuf {
    let output = Command::new(format!("{ROOT}/tests/{script}")).stderr(Stdio::inherit()).output();
    let output = output.unwrap_or_else(|error| panic!("{script}: {error}"));
    assert!(output.status.success(), "{script} says above what is missing");
    String::from_utf8(output.stdout).expect("a path").trim().into()
}

/// Different addresses on the loopback interface that were free a moment ago.
///
/// # Panics
/// If there are none.
pub fn free_addresses<const N: usize>() -> [SocketAddr; N] {
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
    listeners.each_ref().map(|listener| listener.local_addr().expect("an address"))
}

/// The body of a response with status 200. Uses HTTP/1.0, so that nothing is chunked.
///
/// # Errors
/// If there is no response within 30 s, it is not HTTP, or it has another status; the error then has its head and body.
pub fn get(address: SocketAddr, target: &str) -> io::Result<String> {
    ask(address, &format!("GET {target} HTTP/1.0\r\nHost: {address}\r\n\r\n"))
}

/// Sends JSON; returns the body of the response.
///
/// # Errors
/// As for [`get`].
pub fn post(address: SocketAddr, target: &str, json: &str) -> io::Result<String> {
    let length = json.len();
    let head = format!("POST {target} HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json");
    ask(address, &format!("{head}\r\nContent-Length: {length}\r\n\r\n{json}"))
}

fn ask(address: SocketAddr, request: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.lines().next().and_then(|line| line.split(' ').nth(1));
    if status == Some("200") { Ok(body.to_string()) } else { Err(io::Error::other(answer)) }
}

/// A program that ends with the test, and can be killed and started again before that.
#[derive(Debug)]
pub struct Service {
    command: Command,
    child: Option<Child>,
}

impl Service {
    /// Starts it, with its output discarded.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(mut command: Command) -> Self {
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut service = Self { command, child: None };
        service.restart();
        service
    }

    /// Kills it, if it runs.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended already.
            let _ = child.kill().and_then(|()| child.wait());
        }
    }

    /// Starts it again after it was killed; does not wait until it is up.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn restart(&mut self) {
        self.child.get_or_insert_with(|| self.command.spawn().expect("starts"));
    }

    /// Waits until it is `up`.
    ///
    /// # Panics
    /// When it ends instead, or takes more than a minute.
    pub fn wait_until(&mut self, up: impl Fn() -> bool) {
        let program = self.command.get_program();
        let alive_and_up = || {
            let ended = self.child.as_mut().and_then(|child| child.try_wait().expect("its state"));
            assert!(ended.is_none(), "{program:?} does not come up: {ended:?}");
            up()
        };
        wait_until(alive_and_up, &format!("{program:?} comes up"));
    }

    /// CPU time so far, user and system, of a process that runs.
    pub fn cpu(&self) -> Option<Duration> {
        cpu_of(self.child.as_ref()?.id())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.kill();
    }
}

/// CPU time of a process so far, user and system.
pub fn cpu_of(process: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, which may contain anything, is in brackets; it is followed by the state and, 11 fields later, both
    // times.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    // A hundred ticks per second on every Linux of the last decades.
    Some(Duration::from_millis((ticks()? + ticks()?) * 10))
}

/// A Jaeger of the test's own, with nothing in its memory.
#[derive(Debug)]
pub struct Jaeger {
    /// The process.
    pub service: Service,
    /// Address for OTLP over HTTP.
    pub http: SocketAddr,
    /// Address for OTLP over gRPC.
    pub grpc: SocketAddr,
    /// Address for queries of traces.
    pub query: SocketAddr,
    /// Address of a page with the metrics that it was sent.
    pub metrics: SocketAddr,
}

impl Jaeger {
    /// Starts one and waits until it is up. Building it takes minutes, the first time.
    ///
    /// # Panics
    /// When it cannot be built or does not come up.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// As [`start`](Self::start), with further configuration files, which come before its own.
    ///
    /// # Panics
    /// As for [`start`](Self::start).
    pub fn start_with(more: &[PathBuf]) -> Self {
        let program = from_script("otlp/jaeger.sh");
        let [http, grpc, query, query_grpc, metrics] = free_addresses();
        let mut command = Command::new(program);
        command
            .args(["--config", &format!("{ROOT}/tests/otlp/jaeger.yaml")])
            .args(more.iter().flat_map(|file| [OsStr::new("--config"), file.as_os_str()]))
            .env("JAEGER_OTLP_HTTP", http.to_string())
            .env("JAEGER_OTLP_GRPC", grpc.to_string())
            .env("JAEGER_QUERY_HTTP", query.to_string())
            .env("JAEGER_QUERY_GRPC", query_grpc.to_string())
            .env("JAEGER_METRICS", metrics.to_string())
            .env("OTEL_TRACES_SAMPLER", "always_off");
        let mut service = Service::start(command);
        service.wait_until(|| {
            [http, grpc, metrics].iter().all(|a| TcpStream::connect(a).is_ok()) && get(query, "/api/services").is_ok()
        });
        Self { service, http, grpc, query, metrics }
    }

    /// Whether it has traces of a service.
    pub fn knows(&self, service: &str) -> bool {
        get(self.query, "/api/services").is_ok_and(|body| body.contains(&format!("\"{service}\"")))
    }
}

/// Where Prometheus and `promtool` are, fetched on first use.
///
/// # Panics
/// When they cannot be fetched.
pub fn prometheus_programs() -> &'static Path {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| from_script("services/prometheus.sh"))
}

/// A Prometheus of the test's own, with the rules of the repository.
#[derive(Debug)]
pub struct Prometheus {
    /// The process.
    pub service: Service,
    /// Address for queries.
    pub address: SocketAddr,
    targets: usize,
    _dir: tempfile::TempDir,
}

impl Prometheus {
    /// Starts one that scrapes `targets` twice a second, and waits until it is up.
    ///
    /// # Panics
    /// When it cannot be fetched or does not come up.
    pub fn start(targets: &[SocketAddr]) -> Self {
        Self::start_in(tempfile::tempdir().expect("a directory"), targets)
    }

    /// Starts one that has what OpenMetrics texts with times say, as `promtool` makes blocks of it, and scrapes nothing.
    ///
    /// # Panics
    /// When `promtool` refuses a text, or as for [`start`](Self::start).
    pub fn start_of(texts: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        for text in texts {
            let file = dir.path().join("metrics.txt");
            std::fs::write(&file, text).expect("written");
            let mut command = Command::new(prometheus_programs().join("promtool"));
            command.args(["tsdb", "create-blocks-from", "openmetrics"]).arg(&file).arg(dir.path().join("data"));
            let output = command.output().expect("promtool runs");
            assert!(output.status.success(), "{}\n{text}", crate::text(&output.stderr));
        }
        Self::start_in(dir, &[])
    }

    fn start_in(dir: tempfile::TempDir, targets: &[SocketAddr]) -> Self {
        let listed: Vec<String> = targets.iter().map(|t| format!("\"{t}\"")).collect();
        let rules = Path::new(ROOT).join("grafana/prometheus/rules.yml");
        std::fs::copy(rules, dir.path().join("rules.yml")).expect("rules");
        let config = format!(
            "global:\n  scrape_interval: 500ms\n  scrape_timeout: 500ms\n  evaluation_interval: 1s\nrule_files: [rules.yml]\n\
             scrape_configs:\n  - job_name: candlescope\n    static_configs:\n      - targets: [{}]\n",
            listed.join(", ")
        );
        std::fs::write(dir.path().join("prometheus.yml"), config).expect("written");
        let [address] = free_addresses();
        let mut command = Command::new(prometheus_programs().join("prometheus"));
        command
            .arg(format!("--config.file={}", dir.path().join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()))
            // What is older than this goes: 15 days where nothing is said.
            .arg("--storage.tsdb.retention.time=10y")
            .arg(format!("--web.listen-address={address}"))
            .current_dir(dir.path());
        let mut service = Service::start(command);
        service.wait_until(|| get(address, "/-/ready").is_ok_and(|body| body.contains("Ready")));
        Self { service, address, targets: targets.len(), _dir: dir }
    }

    /// The current values of a query, each with its labels.
    ///
    /// # Errors
    /// If there is none; the error has the response.
    pub fn query(&self, expr: &str) -> Result<Vec<(String, f64)>, String> {
        self.ask(expr, "")
    }

    /// The values of a query at a time in seconds since 1970.
    ///
    /// # Errors
    /// As for [`query`](Self::query).
    pub fn query_at(&self, expr: &str, seconds: i64) -> Result<Vec<(String, f64)>, String> {
        self.ask(expr, &format!("&time={seconds}"))
    }

    fn ask(&self, expr: &str, more: &str) -> Result<Vec<(String, f64)>, String> {
        let mut encoded = String::new();
        for byte in expr.bytes() {
            let _ = write!(encoded, "%{byte:02X}");
        }
        let body = get(self.address, &format!("/api/v1/query?query={encoded}{more}")).map_err(|e| e.to_string())?;
        let answer: Value = serde_json::from_str(&body).map_err(|e| format!("{e}: {body}"))?;
        if answer["status"] != "success" {
            return Err(body);
        }
        let values = answer["data"]["result"].as_array().into_iter().flatten();
        Ok(values.filter_map(|v| Some((v["metric"].to_string(), v["value"][1].as_str()?.parse().ok()?))).collect())
    }

    /// Waits until every target has been scraped again, by a scrape that begins after this call.
    ///
    /// # Panics
    /// When it takes too long.
    pub fn wait_for_scrapes(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64();
        let all_anew = || {
            // The samples of a scrape carry the time at which it began.
            let scraped = self.query("timestamp(up == 1)").expect("answers");
            scraped.len() == self.targets && scraped.iter().all(|(_, at)| *at > now)
        };
        wait_until(all_anew, "all targets are scraped");
    }
}
