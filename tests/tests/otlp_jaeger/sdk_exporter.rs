//! A trace sent through `opentelemetry-otlp`, an exporter that the program configures.

use crate::{PARENT, attribute, profile, server, tree_in_jaeger, tree_on_disk};
use candlescope_exporters::otlp::{OtlpConfig, OtlpExporter, OtlpLimits};
use candlescope_testkit::services::Jaeger;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};

#[test]
fn a_trace_sent_by_the_ecosystems_exporter_is_the_run_on_disk() {
    let jaeger = Jaeger::start();
    // Its connection needs an async runtime of the program.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let theirs = {
        let _inside = runtime.enter();
        let endpoint = format!("http://{}", jaeger.grpc);
        SpanExporter::builder().with_tonic().with_endpoint(endpoint).build().expect("an exporter")
    };
    std::thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
    let config = OtlpConfig::default().service_name("candlescope-test").limits(OtlpLimits::none());
    let exporter = OtlpExporter::new(config).with_span_exporter(theirs);

    let dir = tempfile::tempdir().expect("a directory");
    let caller = "4bf92f3577b34da6a3ce929d0e0e4740";
    let (run, manifest) = profile(exporter, &dir.path().join("run"), &format!("00-{caller}-{PARENT}-01"));
    let expected = tree_on_disk(&run);
    let trace = server::trace(&jaeger, caller, expected.len());
    assert_eq!(tree_in_jaeger(&trace), expected);
    let resource = &trace[0]["resource"];
    assert_eq!(attribute(resource, "service.name").as_deref(), Some("candlescope-test"));
    assert_eq!(attribute(resource, "candlescope.run_id"), Some(manifest.run_id));
    let otlp = manifest.exporters.iter().find(|e| e.name == "otlp").expect("an account");
    assert_eq!(otlp.exported["spans"], run.spans.len() as u64, "{otlp:?}");
}
