//! Real servers as child processes of a test, and the little HTTP that talking to them takes.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The repository.
pub const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// How long a server has to come up.
const SOON: Duration = Duration::from_secs(60);

/// What a script below `tests/` prints: a program, a directory, a library, fetched on first use.
///
/// # Panics
/// When the script fails; it says why on standard error.
pub fn from_script(script: &str) -> PathBuf {
    let output = Command::new(format!("{ROOT}/tests/{script}")).stderr(Stdio::inherit()).output();
    let output = output.unwrap_or_else(|error| panic!("{script}: {error}"));
    assert!(output.status.success(), "{script} says above what is missing");
    String::from_utf8(output.stdout).expect("a path").trim().into()
}

/// Addresses on the loopback interface that were free a moment ago, and differ.
///
/// # Panics
/// Where there are none.
pub fn free_addresses<const N: usize>() -> [SocketAddr; N] {
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
    listeners.each_ref().map(|listener| listener.local_addr().expect("an address"))
}

/// The body of an answer with status 200. HTTP/1.0, so that nothing comes in chunks.
///
/// # Errors
/// When there is no answer within 30 s, it is not HTTP, or it has another status: then with its head and body.
pub fn get(address: SocketAddr, target: &str) -> io::Result<String> {
    ask(address, &format!("GET {target} HTTP/1.0\r\nHost: {address}\r\n\r\n"))
}

/// Sends JSON; the body of the answer.
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
    /// Starts it, silenced.
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
            // Gone already is as good.
            let _ = child.kill().and_then(|()| child.wait());
        }
    }

    /// Starts it again after it was killed.
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
        let deadline = Instant::now() + SOON;
        while !up() {
            let ended = self.child.as_mut().and_then(|child| child.try_wait().expect("its state"));
            let program = self.command.get_program();
            assert!(ended.is_none() && Instant::now() < deadline, "{program:?} does not come up: {ended:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
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
    // The name, which may have anything in it, is in brackets; behind it stand the state and, 11 fields on, both times.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    // A hundred a second on every Linux of the last decades.
    Some(Duration::from_millis((ticks()? + ticks()?) * 10))
}

/// A Jaeger of the test's own, with nothing in its memory.
#[derive(Debug)]
pub struct Jaeger {
    /// The process.
    pub service: Service,
    /// Where it takes OTLP over HTTP.
    pub http: SocketAddr,
    /// Where it takes OTLP by gRPC.
    pub grpc: SocketAddr,
    /// Where it answers questions about traces.
    pub query: SocketAddr,
    /// Where it shows the metrics that it was sent.
    pub metrics: SocketAddr,
}

impl Jaeger {
    /// Starts one and waits until it is up; building it, the first time, takes minutes.
    ///
    /// # Panics
    /// When it cannot be built or does not come up.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// As [`start`](Self::start), with more files of configuration, which go before its own.
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
