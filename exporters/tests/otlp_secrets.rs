//! Credentials reach the collector and appear nowhere else: not in the manifest, errors, problems, log lines or
//! `Debug`.
#![allow(missing_docs, reason = "a test")]

use candlescope_core::run::RunManifest;
use candlescope_core::{MemoryExporter, Session, llm};
use candlescope_exporters::otlp::{OtlpConfig, OtlpExporter, OtlpMetricsExporter, OtlpProtocol};
use candlescope_testkit::collector::{self, nobody, reply, serve};
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tracing_subscriber::prelude::*;

/// Each of these is in an address or a header below.
const SECRETS: &[&str] = &["hunter-user", "hunter-pass", "hunter-key", "hunter-token"];

/// All events and spans that subscribers get, on any thread.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<String>>);

impl Heard {
    fn add(&self, text: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
    }
}

impl tracing::field::Visit for Heard {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.add(&format!("{}={value:?}\n", field.name()));
    }
}

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Heard {
    fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        event.record(&mut self.clone());
    }

    fn on_new_span(
        &self,
        attrs: &tracing::span::Attributes<'_>,
        _: &tracing::Id,
        _: tracing_subscriber::layer::Context<'_, S>,
    ) {
        attrs.record(&mut self.clone());
    }
}

/// Messages of libraries to the `log` crate, at every level and on every thread.
struct Log(Heard);

impl log::Log for Log {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        self.0.add(&format!("log {} {}: {}\n", record.level(), record.target(), record.args()));
    }

    fn flush(&self) {}
}

fn config(address: SocketAddr, protocol: OtlpProtocol) -> OtlpConfig {
    OtlpConfig::new(format!("http://hunter-user:hunter-pass@{address}/v1/all?api_key=hunter-key&v=2"))
        .header("x-api-key", "Bearer hunter-token")
        .protocol(protocol)
        .timeout(Duration::from_millis(300))
}

/// Everything that a session, its exporters and its subscriber output while it sends to `address`.
fn everything_said(address: SocketAddr, protocol: OtlpProtocol, heard: &Heard) -> String {
    let mut said = String::new();
    let config = config(address, protocol);
    let (traces, metrics) = (OtlpExporter::new(config.clone()), OtlpMetricsExporter::new(config.clone()));
    write!(said, "{config:?} {config:#?} {traces:?} {metrics:?}").unwrap();
    // The state of a running exporter, with its client and headers.
    let mut running = OtlpExporter::new(config);
    candlescope_core::Exporter::start(&mut running, &RunManifest::default()).expect("starts");
    write!(said, "{running:?}").unwrap();
    let told = heard.clone();
    let (layer, session) = Session::builder()
        .exporter(traces)
        .exporter(metrics)
        .exporter(MemoryExporter::new())
        .on_problem(move |problem| told.add(&format!("{problem} {problem:?}\n")))
        .start()
        .expect("starts");
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let _phase = llm::decode(llm::Tokens::new(1).context(1));
        tracing::info_span!("linear").in_scope(|| ());
    });
    let handle = session.handle().clone();
    let _ = handle.flush(Duration::from_secs(5));
    write!(said, "{:?}", handle.stats()).unwrap();
    let manifest = session.finish();
    write!(said, "{} {manifest:?}", serde_json::to_string(&manifest).unwrap()).unwrap();
    said
}

/// Responds with everything that it was sent, as an error text of one line.
fn echo(status: &'static str) -> impl Fn(usize, &mut TcpStream) + Send + 'static {
    move |_, stream| {
        let text = "no: hunter-user:hunter-pass, api_key=hunter-key, x-api-key Bearer hunter-token, token hunter-token";
        reply(stream, status, "", text.as_bytes());
    }
}

#[test]
fn secrets_go_to_the_collector_and_nowhere_else() {
    // Installed globally, because exporters work on threads of their own.
    let heard = Heard::default();
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(heard.clone())).expect("the only one");
    log::set_logger(Box::leak(Box::new(Log(heard.clone())))).expect("the only one");
    log::set_max_level(log::LevelFilter::Trace);
    let mut said = String::new();

    let (good, got) = serve(collector::ok);
    said.push_str(&everything_said(good, OtlpProtocol::HttpProtobuf, &heard));
    let got = std::mem::take(&mut *got.lock().unwrap());
    assert!(got.len() >= 2, "traces and metrics");
    for request in &got {
        assert_eq!(request.path, "/v1/all?api_key=hunter-key&v=2");
        assert_eq!(request.headers["x-api-key"], "Bearer hunter-token");
        // hunter-user:hunter-pass
        assert_eq!(request.headers["authorization"], "Basic aHVudGVyLXVzZXI6aHVudGVyLXBhc3M=");
    }

    for status in ["400 Bad Request", "401 Unauthorized", "503 Service Unavailable", "307 Temporary Redirect"] {
        let (address, _) = serve(echo(status));
        said.push_str(&everything_said(address, OtlpProtocol::HttpProtobuf, &heard));
    }
    let (nonsense, _) = serve(|_, stream| _ = stream.write_all(b"hunter-key hunter-token\r\n\r\n"));
    said.push_str(&everything_said(nonsense, OtlpProtocol::HttpProtobuf, &heard));
    said.push_str(&everything_said(nobody(), OtlpProtocol::HttpProtobuf, &heard));
    let reached = if cfg!(feature = "otlp-grpc") {
        for address in [nobody(), nonsense, good] {
            said.push_str(&everything_said(address, OtlpProtocol::Grpc, &heard));
        }
        10
    } else {
        7
    };
    said.push_str(&heard.0.lock().unwrap_or_else(PoisonError::into_inner));

    // The checked text really contains all of these outputs.
    assert!(said.matches("\"exporters\"").count() >= reached, "a manifest of each session");
    for part in ["cannot reach it", "status 401", "http://***@127.0.0.1", "?***", "message=otlp", "log DEBUG ureq"] {
        assert!(said.contains(part), "{part} is not said");
    }
    for secret in SECRETS {
        if let Some(at) = said.find(secret) {
            let from = (0..=at.saturating_sub(300)).rev().find(|i| said.is_char_boundary(*i)).unwrap_or(0);
            panic!("{secret} is said: …{}…", said[from..].chars().take(500).collect::<String>());
        }
    }
}

#[test]
fn an_address_that_cannot_be_used_is_named_without_its_secrets() {
    for (endpoint, part) in [
        ("hunter-user:hunter-pass@collector:4318", "`***@collector:4318/v1/traces` is not the address"),
        ("ftp://hunter-user:hunter-pass@collector", "`ftp://***@collector/v1/traces`"),
        ("http://hunter-user:hunter/pass@collector?k=hunter-key", "`http://***` is not the address"),
        ("http://?api_key=hunter-key", "is not the address"),
    ] {
        let config = OtlpConfig::new(endpoint).header("x-api-key", "hunter-token");
        let error = Session::builder().exporter(OtlpExporter::new(config)).start().expect_err("refused");
        let text = format!("{error} {error:?}");
        assert!(text.contains(part), "{text}");
        assert!(!text.contains("hunter"), "{text}");
    }
}

#[test]
fn a_header_that_cannot_be_sent_is_not_shown() {
    let config = OtlpConfig::new(format!("http://{}", nobody())).header("x-api-key", "hunter-token\nx: y");
    let error = Session::builder().exporter(OtlpExporter::new(config)).start().expect_err("refused");
    let text = format!("{error} {error:?}");
    assert!(text.contains("`x-api-key` and its value are no header") && !text.contains("hunter"), "{text}");
}
