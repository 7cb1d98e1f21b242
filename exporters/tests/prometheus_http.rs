//! The metrics endpoint over real sockets: what it serves, what it refuses, and that no client can block it.
#![allow(missing_docs, reason = "a test")]

use candlescope_core::run::RunManifest;
use candlescope_core::{Batch, ExportError, Exporter, Ledger, RecordKind, SampleRecord, Session};
use candlescope_exporters::prometheus::{PrometheusConfig, PrometheusExporter};
use candlescope_testkit::Decoder;
use candlescope_testkit::records::many_paths;
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use tracing_subscriber::prelude::*;

fn started(max_paths: usize) -> (PrometheusExporter, SocketAddr) {
    let mut exporter = PrometheusExporter::new(PrometheusConfig::new("127.0.0.1:0").max_paths(max_paths));
    exporter.start(&RunManifest::default()).expect("starts");
    let address = exporter.endpoint().address().expect("listens");
    (exporter, address)
}

/// Sends `request` and returns all that comes back.
fn ask(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // A server that has answered already may close while a long request is still being sent.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    String::from_utf8(answer).expect("text")
}

fn get(address: SocketAddr, path: &str) -> String {
    ask(address, format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes())
}

#[test]
fn metrics_health_and_refusals() {
    let (mut exporter, address) = started(500);
    let mut made = Decoder::new(1);
    let mut batch = made.step("prefill");
    batch.samples = made.samples();
    let ledger = Ledger::new();
    ledger.received(&batch);
    exporter.export(&batch, &ledger).unwrap();

    let metrics = get(address, "/metrics?name=ignored");
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n"), "{metrics}");
    assert!(
        metrics
            .contains("candlescope_span_duration_seconds_bucket{clock=\"host\",path=\"prefill/block/attn/linear\",le=")
    );
    assert!(metrics.contains("\nprocess_resident_memory_bytes "));
    assert!(get(address, "/healthz").ends_with("\r\n\r\nok\n"));
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "404 Not Found"),
        ("GET /metricsx HTTP/1.1\r\nHost: localhost\r\n\r\n", "404 Not Found"),
        ("POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405 Method Not Allowed"),
        ("hello\r\n\r\n", "400 Bad Request"),
    ] {
        let answer = ask(address, request.as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request:?}: {answer}");
    }
    let head = ask(address, b"HEAD /metrics HTTP/1.1\r\nHost: [::1]:9464\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.ends_with("\r\n\r\n"), "no body: {head}");

    let report = ledger.report("prometheus");
    assert!(report.conserved() && report.dropped.is_empty() && report.exported["spans"] == batch.spans.len() as u64);
    exporter.finish(&RunManifest::default()).unwrap();
    assert!(TcpStream::connect(address).is_err(), "the port is free when the session has ended");
}

#[test]
fn a_page_whose_name_points_here_reads_nothing() {
    let config = || PrometheusConfig::new("127.0.0.1:0");
    let status = |config: PrometheusConfig, request: &str| {
        let mut exporter = PrometheusExporter::new(config);
        exporter.start(&RunManifest::default()).expect("starts");
        let address = exporter.endpoint().address().expect("listens");
        let address = SocketAddr::new([127, 0, 0, 1].into(), address.port());
        ask(address, request.as_bytes())
    };
    let named = |host: &str| format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n");
    for host in ["evil.example", "localhost.evil.example:9464", "evil.example\r\nHost: localhost", "192.168.1.1", ""] {
        let answer = status(config(), &named(host));
        assert!(answer.starts_with("HTTP/1.1 421 ") || answer.starts_with("HTTP/1.1 400 "), "{host}: {answer}");
        assert!(!answer.contains("candlescope_paths"), "{host}: {answer}");
    }
    assert!(status(config(), &named("evil.example")).contains("allow the name"), "the remedy is said");
    for host in ["localhost", "LocalHost:9464", "127.0.0.1:1", "127.1.2.3", "[::1]:9464"] {
        assert!(status(config(), &named(host)).starts_with("HTTP/1.1 200 "), "{host}");
    }
    assert!(status(config(), "GET /metrics HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200 "), "an old client");
    assert!(status(config(), "GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 400 "), "must say a host");
    assert!(status(config().allow_host("proxy.lan"), &named("PROXY.lan:80")).starts_with("HTTP/1.1 200 "));
    assert!(status(PrometheusConfig::new("0.0.0.0:0"), &named("gpu-7.lan")).starts_with("HTTP/1.1 200 "));
}

#[test]
fn oversized_requests_are_refused_and_the_refusal_arrives() {
    let (_exporter, address) = started(1);
    for size in [8 * 1024, 64 * 1024, 4 << 20] {
        let mut request = b"GET /metrics HTTP/1.1\r\nX: ".to_vec();
        request.resize(size, b'x');
        let answer = ask(address, &request);
        assert!(answer.starts_with("HTTP/1.1 431 "), "{size}: {answer}");
    }
}

#[test]
fn slow_and_idle_clients_hold_up_nobody() {
    let (_exporter, address) = started(1);
    // More than are allowed at once, each stuck in the middle of its request.
    let stuck: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = TcpStream::connect(address).expect("connects");
            let _ = stream.write_all(b"GET /metrics HTT");
            stream
        })
        .collect();
    for _ in 0..20 {
        let start = Instant::now();
        assert!(get(address, "/metrics").starts_with("HTTP/1.1 200 OK"));
        // A client that is stuck is disconnected after five seconds.
        assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    }
    drop(stuck);
}

#[test]
fn a_client_that_never_finishes_is_told_and_let_go() {
    let (_exporter, address) = started(1);
    let start = Instant::now();
    let answer = ask(address, b"GET /metr");
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
}

#[test]
fn a_reader_that_stops_reading_does_not_stop_the_others() {
    let (mut exporter, address) = started(500);
    let ledger = Ledger::new();
    exporter.export(&many_paths(500), &ledger).unwrap();
    // The response is larger than the sockets' buffers, so the server cannot finish sending it.
    let mut lazy = TcpStream::connect(address).unwrap();
    lazy.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let start = Instant::now();
    assert!(get(address, "/healthz").ends_with("ok\n"));
    // A client that is stuck is disconnected after five seconds.
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
}

#[test]
fn a_slow_reader_gets_all_of_its_answer_whoever_else_connects() {
    let (mut exporter, address) = started(5_000);
    exporter.export(&many_paths(5_000), &Ledger::new()).unwrap();
    // Twelve megabytes with small buffers: most of the response is still in the server.
    let reader = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    reader.set_recv_buffer_size(4_096).unwrap();
    reader.connect(&address.into()).unwrap();
    let mut reader = TcpStream::from(reader);
    reader.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    reader.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = vec![0; 1_000];
    reader.read_exact(&mut answer).expect("the beginning");
    // This connection is being answered, so idle ones are closed to make room for each other.
    let idle: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(address).expect("connects")).collect();
    assert!(get(address, "/healthz").ends_with("ok\n"));
    // If the server has closed it, the rest is lost.
    let _ = reader.read_to_end(&mut answer);
    let text = String::from_utf8(answer).expect("text");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let length = head.lines().find_map(|l| l.strip_prefix("Content-Length: ")).expect("a length");
    assert_eq!(length.parse(), Ok(body.len()), "cut off");
    drop(idle);
}

/// Connections that the server at `address` has accepted and not closed, according to the operating system.
#[cfg(target_os = "linux")]
fn taken(address: SocketAddr) -> usize {
    let port = format!(":{:04X}", address.port());
    let table = std::fs::read_to_string("/proc/net/tcp").expect("Linux");
    let of = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // Established or closed by the client, and held by a process.
        fields[1].ends_with(&port) && matches!(fields[3], "01" | "08") && fields[9] != "0"
    };
    table.lines().skip(1).filter(of).count()
}

#[test]
#[cfg(target_os = "linux")]
fn a_flood_of_connections_takes_few_sockets() {
    let (_exporter, address) = started(1);
    let mut garbage = [0; 800];
    StdRng::seed_from_u64(1).fill_bytes(&mut garbage);
    let mut most = 0;
    let clients: Vec<TcpStream> = (0..600_u32)
        .map(|round| {
            let mut stream = TcpStream::connect(address).expect("connects");
            let _ = match round % 6 {
                0 => stream.shutdown(std::net::Shutdown::Write),
                1 => stream.write_all(&garbage),
                2 => stream.write_all(&b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(50)),
                _ => stream.write_all(b"GET /metr"),
            };
            most = most.max(taken(address));
            stream
        })
        .collect();
    let start = Instant::now();
    assert!(get(address, "/metrics").starts_with("HTTP/1.1 200 OK"));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    // The table changes while it is read.
    assert!((10..=80).contains(&most), "{most} connections at once");
    drop(clients);
}

#[test]
fn what_there_is_no_room_for_shares_the_overflows_series() {
    let (mut exporter, address) = started(10);
    let mut batch = many_paths(25);
    let model = |n: u64| {
        let mut request = Decoder::new(1).request(n, candlescope_core::HostNs(0));
        request.model = format!("model-{n}").as_str().into();
        request
    };
    batch.requests = (0..130).map(model).collect();
    let ledger = Ledger::new();
    ledger.received(&batch);
    exporter.export(&batch, &ledger).unwrap();
    let text = get(address, "/metrics");
    let of = |name: &str, label: &str| -> Vec<(String, String)> {
        let lines = text.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        lines
            .map(|line| {
                let (_, rest) = line.split_once(&format!("{label}=\"")).expect("the label");
                let (label, _) = rest.split_once('"').expect("a value");
                (label.to_string(), line.rsplit(' ').next().unwrap_or_default().to_string())
            })
            .collect()
    };
    for (name, label, own, shared) in [
        ("candlescope_span_duration_seconds_count", "path", 10, "15"),
        ("gen_ai_server_request_duration_seconds_count", "gen_ai_request_model", 100, "30"),
    ] {
        let series = of(name, label);
        assert_eq!(series.len(), own + 1, "{name}");
        let overflow: Vec<&str> = series.iter().filter(|(l, _)| l == "(overflow)").map(|(_, n)| n.as_str()).collect();
        assert_eq!(overflow, [shared], "{name}");
    }
    assert!(text.contains("\ncandlescope_paths_overflow_total 15\n") && text.contains("\ncandlescope_paths 10\n"));
    assert!(ledger.report("prometheus").conserved());
}

#[test]
fn only_this_machine_reaches_it_unless_told_otherwise() {
    assert_eq!(PrometheusConfig::default(), PrometheusConfig::new("127.0.0.1:9464"));
    // The address of this machine that others see; finding it sends no packet.
    let outside = std::net::UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9")?;
        Ok(socket.local_addr()?.ip())
    });
    let outside = outside.ok().filter(|ip| !ip.is_loopback() && !ip.is_unspecified());
    for (address, open) in [("0", false), (":0", false), ("localhost:0", false), ("0.0.0.0:0", true)] {
        let mut exporter = PrometheusExporter::new(PrometheusConfig::new(address));
        exporter.start(&RunManifest::default()).expect("starts");
        let bound = exporter.endpoint().address().expect("listens");
        assert_eq!(bound.ip().is_loopback(), !open, "{address} listens on {bound}");
        if let Some(ip) = outside {
            let there = TcpStream::connect_timeout(&SocketAddr::new(ip, bound.port()), Duration::from_secs(2));
            assert_eq!(there.is_ok(), open, "{address} from {ip}");
        }
    }
}

#[test]
fn samples_without_room_are_dropped_for_the_limit_and_the_account_is_exact() {
    let (mut exporter, _) = started(1);
    let ledger = Ledger::new();
    let mut batch = Batch::default();
    batch.samples = (0..2_500)
        .map(|n| SampleRecord::new(candlescope_core::HostNs(0), format!("GPU-{n}"), "hw_power_watts", 1.0, "watts"))
        .collect();
    ledger.received(&batch);
    exporter.export(&batch, &ledger).unwrap();
    let report = ledger.report("prometheus");
    assert!(report.conserved(), "{report:?}");
    assert_eq!((report.exported["samples"], report.dropped["samples"]["limit"]), (2_000, 500));
    assert_eq!(ledger.pending(RecordKind::Sample), 0);
}

/// Takes what comes and accounts for it only at the end, as one that writes large segments does.
struct Keeps;

impl Exporter for Keeps {
    fn name(&self) -> &'static str {
        "keeps"
    }
    fn export(&mut self, _: &Batch, _: &Ledger) -> Result<(), ExportError> {
        Ok(())
    }
    fn close(&mut self, ledger: &Ledger) -> Result<(), ExportError> {
        RecordKind::ALL.into_iter().for_each(|kind| ledger.exported(kind, ledger.pending(kind)));
        Ok(())
    }
}

#[test]
fn a_session_shows_its_own_account_and_a_taken_port_stops_it_from_starting() {
    let exporter = PrometheusExporter::new(PrometheusConfig::new("127.0.0.1:0"));
    let endpoint = exporter.endpoint();
    let memory = candlescope_core::MemoryExporter::new();
    let builder = Session::builder().exporter(memory).exporter(Keeps).exporter(exporter);
    let (layer, session) = builder.start().expect("starts");
    let address = endpoint.address().expect("listens");
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let request = candlescope_core::llm::Request::new("chat", "tiny").prompt_tokens(3);
        let _in_request = request.enter();
        for n in 0..50 {
            let _step = candlescope_core::llm::decode(candlescope_core::llm::Tokens::new(1).context(n));
            tracing::trace_span!("linear").in_scope(|| ());
            request.token();
        }
    });
    session.handle().flush(Duration::from_secs(5)).expect("flushes");
    // Flush once more, because the account is read while the last records are under way.
    session.handle().flush(Duration::from_secs(5)).expect("flushes");
    let text = get(address, "/metrics");
    for line in [
        "candlescope_tokens_total{type=\"output\"} 50",
        "candlescope_intervals_total{outcome=\"recorded\"} 101",
        "candlescope_span_duration_seconds_count{clock=\"host\",path=\"decode/linear\"} 50",
        "gen_ai_server_request_duration_seconds_count{gen_ai_request_model=\"tiny\"} 1",
        "candlescope_records_total{exporter=\"memory\",outcome=\"exported\"} 152",
        "candlescope_records_pending{exporter=\"memory\"} 0",
        "candlescope_records_total{exporter=\"keeps\",outcome=\"exported\"} 0",
        "candlescope_records_pending{exporter=\"keeps\"} 0",
        "candlescope_records_pending_limit{exporter=\"keeps\"} 262144",
    ] {
        assert!(text.contains(&format!("\n{line}\n")), "{line} is not in\n{text}");
    }
    assert!(text.contains("\ncandlescope_overhead_ratio 0."), "{text}");

    let second = PrometheusExporter::new(PrometheusConfig::new(address.to_string()));
    let error = Session::builder().exporter(second).start().expect_err("the port is taken").to_string();
    assert!(error.contains(&address.to_string()) && error.contains("choose another port"), "{error}");

    let manifest = session.finish();
    assert!(manifest.exporters.iter().all(|e| e.conserved() && e.dropped.is_empty()), "{:?}", manifest.exporters);
}
