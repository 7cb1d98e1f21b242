//! gRPC against servers that are not gRPC collectors. Sending is tested against a real Jaeger.
#![allow(missing_docs, reason = "a test")]

use candlescope_core::llm;
use candlescope_core::run::ExporterReport;
use candlescope_core::{MemoryExporter, Session};
use candlescope_exporters::otlp::{OtlpConfig, OtlpExporter, OtlpProtocol};
use candlescope_testkit::collector::{nobody, ok, serve};
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};
use tracing_subscriber::prelude::*;

fn profile(address: SocketAddr) -> (u64, ExporterReport, Duration) {
    let started = Instant::now();
    let config =
        OtlpConfig::new(format!("http://{address}")).protocol(OtlpProtocol::Grpc).timeout(Duration::from_secs(1));
    let memory = MemoryExporter::new();
    let builder = Session::builder().exporter(memory.clone()).exporter(OtlpExporter::new(config));
    let (layer, session) = builder.start().expect("starts");
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        for _ in 0..3 {
            let _phase = llm::decode(llm::Tokens::new(1).context(1));
            tracing::info_span!("linear").in_scope(|| ());
        }
    });
    let manifest = session.finish();
    let report = manifest.exporters.iter().find(|e| e.name == "otlp").expect("an account").clone();
    assert!(report.conserved(), "{report:?}");
    (memory.batch().spans.len() as u64, report, started.elapsed())
}

#[test]
fn whoever_does_not_speak_grpc_costs_spans_and_little_time() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (http, _) = serve(ok);
    for (name, address) in
        [("nobody", nobody()), ("an HTTP/1 server", http), ("silence", silent.local_addr().expect("an address"))]
    {
        let (spans, report, took) = profile(address);
        let lost: u64 =
            report.dropped["spans"].iter().filter(|(r, _)| *r == "io" || *r == "limit").map(|(_, n)| n).sum();
        assert_eq!((report.exported["spans"], lost), (0, spans), "{name}: {report:?}");
        assert!(took < Duration::from_secs(15), "{name}: {took:?}");
        let error = report.last_error.expect("an error");
        assert!(error.contains(&address.to_string()), "{name}: {error}");
    }
}

/// A session may start and end on a thread of the application's runtime, where another runtime can neither be entered
/// nor waited for.
#[test]
fn a_runtime_of_the_applications_is_left_alone() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (spans, report, _) = runtime.block_on(async { profile(nobody()) });
    assert_eq!(report.exported["spans"], 0);
    assert!(spans > 0);
}
