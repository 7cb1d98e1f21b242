//! A real Jaeger with one trace in it, to follow links to.

use super::ROOT;
use super::server::{get, post};
use serde_json::{Value, json};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) struct Jaeger {
    pub(crate) address: SocketAddr,
    otlp: SocketAddr,
    child: Child,
}

impl Jaeger {
    pub(crate) fn start() -> Self {
        let script = Command::new(format!("{ROOT}/tests/otlp/jaeger.sh")).stderr(Stdio::inherit()).output();
        let script = script.expect("jaeger.sh runs");
        assert!(script.status.success(), "jaeger.sh says above what is missing");
        let program = String::from_utf8(script.stdout).expect("a path");
        // All three are open at once, so that they differ.
        let free: Vec<TcpListener> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
        let [otlp, address, grpc] = [0, 1, 2].map(|n| free[n].local_addr().expect("an address"));
        drop(free);
        let child = Command::new(program.trim())
            .args(["--config", &format!("{ROOT}/tests/otlp/jaeger.yaml")])
            .env("JAEGER_OTLP_HTTP", otlp.to_string())
            .env("JAEGER_QUERY_HTTP", address.to_string())
            .env("JAEGER_QUERY_GRPC", grpc.to_string())
            .env("OTEL_TRACES_SAMPLER", "always_off")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("Jaeger starts");
        let mut this = Self { address, otlp, child };
        let deadline = Instant::now() + Duration::from_secs(60);
        while get(address, "/api/services").is_err() || std::net::TcpStream::connect(otlp).is_err() {
            let ended = this.child.try_wait().expect("its state");
            assert!(ended.is_none() && Instant::now() < deadline, "Jaeger does not come up: {ended:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
        this
    }

    /// Stores a trace of one span.
    pub(crate) fn store(&self, service: &str, start_ms: u64, duration_ms: u64) {
        let nanoseconds = |ms: u64| format!("{}000000", ms);
        let span = json!({
            "traceId": "4bf92f3577b34da6a3ce929d0e0e4736", "spanId": "00f067aa0ba902b7", "name": "chat tiny", "kind": 1,
            "startTimeUnixNano": nanoseconds(start_ms), "endTimeUnixNano": nanoseconds(start_ms + duration_ms),
        });
        let resource = json!({ "attributes": [{ "key": "service.name", "value": { "stringValue": service } }] });
        let body = json!({ "resourceSpans": [{ "resource": resource, "scopeSpans": [{ "spans": [span] }] }] });
        let answer = post(self.otlp, "/v1/traces", &body.to_string()).expect("Jaeger takes traces");
        assert!(!answer.contains("rejectedSpans"), "{answer}");
        let deadline = Instant::now() + Duration::from_secs(20);
        while !get(self.address, "/api/services").is_ok_and(|body| body.contains(service)) {
            assert!(Instant::now() < deadline, "Jaeger does not know {service}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Traces that a search finds, or why it is refused: what stands behind the `?` of Jaeger's own search page goes to its API.
    pub(crate) fn found(&self, search: &str) -> Result<usize, String> {
        let body = get(self.address, &format!("/api/traces?{search}")).map_err(|e| e.to_string())?;
        let answer: Value = serde_json::from_str(&body).map_err(|e| format!("{e}: {body}"))?;
        match &answer["errors"] {
            Value::Null => Ok(answer["data"].as_array().map_or(0, Vec::len)),
            errors => Err(errors.to_string()),
        }
    }
}

impl Drop for Jaeger {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
