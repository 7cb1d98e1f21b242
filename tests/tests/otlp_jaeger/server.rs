//! A Jaeger for a test: started, asked, ended.

use crate::spans_of;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// A Jaeger of our own, ended with the test.
pub(crate) struct Jaeger {
    process: Child,
    /// `HOST:PORT` of the receivers.
    pub(crate) http: String,
    pub(crate) grpc: String,
    query: String,
    /// Where it shows the metrics that it was sent.
    metrics: String,
}

impl Drop for Jaeger {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = self.process.kill().and_then(|()| self.process.wait());
    }
}

impl Jaeger {
    pub(crate) fn start() -> Self {
        let built = Command::new(format!("{ROOT}/tests/otlp/jaeger.sh"))
            .stderr(Stdio::inherit())
            .output()
            .expect("the script runs");
        assert!(built.status.success(), "tests/otlp/jaeger.sh failed");
        let program = String::from_utf8(built.stdout).expect("a path");
        // All are open at once, so that they differ.
        let free = [(); 5].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
        let [http, grpc, query, query_grpc, metrics] =
            free.each_ref().map(|listener| listener.local_addr().expect("an address").to_string());
        drop(free);
        let process = Command::new(program.trim())
            .args(["--config", &format!("{ROOT}/tests/otlp/jaeger.yaml")])
            .envs([("JAEGER_OTLP_HTTP", &http), ("JAEGER_OTLP_GRPC", &grpc), ("JAEGER_METRICS", &metrics)])
            .envs([("JAEGER_QUERY_HTTP", &query), ("JAEGER_QUERY_GRPC", &query_grpc)])
            .env("OTEL_TRACES_SAMPLER", "always_off")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("Jaeger starts");
        let mut jaeger = Self { process, http, grpc, query, metrics };
        let began = Instant::now();
        let listens = |address: &String| TcpStream::connect(address).is_ok();
        while !([&jaeger.http, &jaeger.grpc, &jaeger.metrics].into_iter().all(listens)
            && get(&jaeger.query, "/api/services").is_some())
        {
            let ended = jaeger.process.try_wait().expect("its state");
            assert!(ended.is_none() && began.elapsed() < Duration::from_secs(60), "Jaeger did not come up: {ended:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
        jaeger
    }

    /// The metrics that it was sent, as Prometheus would see them.
    pub(crate) fn metrics(&self) -> String {
        get(&self.metrics, "/metrics").expect("metrics")
    }

    /// The trace as OTLP JSON, once it has `spans` spans: storing takes a moment.
    pub(crate) fn trace(&self, id: &str, spans: usize) -> Value {
        let began = Instant::now();
        loop {
            // One JSON object after another, as gRPC's gateway streams them.
            let body = get(&self.query, &format!("/api/v3/traces/{id}")).unwrap_or_default();
            let parts = serde_json::Deserializer::from_str(&body).into_iter::<Value>();
            let resources: Vec<Value> = parts
                .filter_map(Result::ok)
                .filter_map(|part| Some(part["result"]["resourceSpans"].as_array()?.clone()))
                .flatten()
                .collect();
            let trace = Value::Array(resources);
            let n = spans_of(&trace).len();
            if n >= spans || began.elapsed() > Duration::from_secs(20) {
                assert_eq!(n, spans, "spans that Jaeger has of trace {id}");
                return trace;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// The body of a successful answer.
pub(crate) fn get(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    // HTTP/1.0, so that the end of the answer is the end of the connection.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.lines().next()?.contains(" 200 ").then(|| body.to_string())
}
