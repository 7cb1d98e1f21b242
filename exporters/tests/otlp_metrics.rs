//! Metrics over OTLP against scripted collectors in this process: good ones, bad ones and none.
#![allow(missing_docs, reason = "a test")]

use candlescope_core::llm;
use candlescope_core::run::ExporterReport;
use candlescope_core::{MemoryExporter, Session};
use candlescope_exporters::otlp::{OtlpConfig, OtlpMetricsExporter};
use candlescope_testkit::collector::{Got, nobody, ok, reply, serve};
use candlescope_testkit::wait_until;
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use prost::Message;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tracing_subscriber::prelude::*;

fn config(address: SocketAddr) -> OtlpConfig {
    OtlpConfig::new(format!("http://{address}")).timeout(Duration::from_millis(500)).service_name("tester")
}

/// The sum of a counter over all its series.
fn total(got: &Got, name: &str) -> f64 {
    let request = ExportMetricsServiceRequest::decode(got.body.as_slice()).expect("OTLP");
    let metrics = request.resource_metrics.into_iter().flat_map(|r| r.scope_metrics).flat_map(|s| s.metrics);
    let Some(Data::Sum(sum)) = metrics.filter(|m| m.name == name).find_map(|m| m.data) else { return 0.0 };
    sum.data_points.iter().map(|p| if let Some(Value::AsDouble(v)) = p.value { v } else { f64::NAN }).sum()
}

/// Runs `steps` steps, with `between` after each, and returns how many intervals there were and the exporter's account.
fn profile(config: OtlpConfig, steps: usize, between: impl Fn(usize)) -> (u64, ExporterReport) {
    let memory = MemoryExporter::new();
    let session = Session::builder().exporter(memory.clone()).exporter(OtlpMetricsExporter::new(config));
    let (layer, session) = session.start().expect("starts");
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let span = tracing::info_span!("linear");
        for step in 0..steps {
            {
                let _phase = llm::decode(llm::Tokens::new(1).context(1));
                (0..3).for_each(|_| span.in_scope(|| ()));
            }
            between(step);
        }
    });
    let manifest = session.finish();
    let report = manifest.exporters.iter().find(|e| e.name == "otlp-metrics").expect("an account").clone();
    assert!(report.conserved(), "{report:?}");
    assert!(!report.dropped.values().flatten().any(|(reason, _)| reason == "unaccounted"), "{report:?}");
    (memory.batch().spans.len() as u64, report)
}

/// Waits until the collector has got `n` requests.
fn requests(got: &Mutex<Vec<Got>>, n: usize) {
    wait_until(|| got.lock().unwrap().len() >= n, "an export");
}

#[test]
fn metrics_go_out_in_time_and_a_last_time_at_the_end() {
    let (address, got) = serve(ok);
    let often = config(address).interval(Duration::from_millis(100)).header("X-Tenant", "t1");
    let (spans, report) = profile(often, 10, |step| requests(&got, step.min(3)));
    let got = got.lock().unwrap();
    assert!(got.len() >= 3, "{} exports", got.len());
    assert_eq!((got[0].path.as_str(), got[0].headers["x-tenant"].as_str()), ("/v1/metrics", "t1"));
    let steps: Vec<f64> = got.iter().map(|got| total(got, "candlescope.steps")).collect();
    assert!(steps.windows(2).all(|w| w[0] <= w[1]) && steps[0] < 10.0, "cumulative: {steps:?}");
    assert_eq!(steps.last(), Some(&10.0));
    assert_eq!(report.exported["spans"], spans);
    assert!(report.dropped.is_empty(), "{report:?}");
    drop(got);

    // Nothing is sent before the end of a short run, and the export at the end is enough.
    let (address, got) = serve(ok);
    let (spans, report) = profile(config(address), 5, |_| ());
    let got = got.lock().unwrap();
    assert_eq!(got.len(), 1);
    assert_eq!(total(&got[0], "candlescope.steps"), 5.0);
    assert_eq!((report.exported["spans"], report.exported["steps"]), (spans, 5));
}

#[test]
fn what_one_export_could_not_bring_the_next_one_does() {
    // The first export fails with all its attempts.
    let (address, got) = serve(|n, stream| match n {
        0 => reply(stream, "500 Internal Server Error", "", b""),
        _ => ok(n, stream),
    });
    let often = config(address).interval(Duration::from_millis(50));
    let (spans, report) = profile(often, 10, |_| requests(&got, 1));
    assert!(report.last_error.as_deref().is_some_and(|e| e.contains("status 500")), "{report:?}");
    assert_eq!(report.exported["spans"], spans, "{report:?}");
    assert!(report.dropped.is_empty(), "{report:?}");
    let got = got.lock().unwrap();
    assert_eq!(got.last().map(|got| total(got, "candlescope.steps")), Some(10.0));
    assert!(got.len() <= 3, "{} exports: a collector that is not well is left alone for a while", got.len());
}

#[test]
fn what_never_arrives_is_lost_and_counted() {
    let started = Instant::now();
    let (spans, report) = profile(config(nobody()), 5, |_| ());
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    assert_eq!((report.exported["spans"], report.dropped["spans"]["io"]), (0, spans));
    assert_eq!(report.dropped["steps"]["io"], 5);

    // An export that was partly accepted does not count as arrived either: it is not known what is missing.
    let (address, _) = serve(|_, stream| {
        let partial = ExportMetricsPartialSuccess { rejected_data_points: 2, error_message: "no".into() };
        reply(stream, "200 OK", "", &ExportMetricsServiceResponse { partial_success: Some(partial) }.encode_to_vec());
    });
    let (spans, report) = profile(config(address), 5, |_| ());
    assert_eq!((report.exported["spans"], report.dropped["spans"]["io"]), (0, spans));
    assert!(report.last_error.as_deref().is_some_and(|e| e.contains("rejected 2 points")), "{report:?}");
}

#[test]
fn a_collector_that_never_answers_is_given_up() {
    let (address, got) = serve(|_, _| std::thread::sleep(Duration::from_secs(60)));
    let often = config(address).interval(Duration::from_millis(10));
    let started = Instant::now();
    let (spans, report) = profile(often, 5, |_| requests(&got, 1));
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    assert_eq!(report.dropped["spans"]["io"], spans, "{report:?}");
}
