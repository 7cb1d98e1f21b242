//! Sends metrics over OTLP to a real OpenTelemetry collector, which exposes them to Prometheus: the same series and
//! values as on our own page.

use crate::server;
use crate::work;
use candlescope_core::{Batch, MemoryExporter, Session};
use candlescope_exporters::otlp::{OtlpConfig, OtlpMetricsExporter, OtlpProtocol};
use candlescope_exporters::prometheus::{PrometheusConfig, PrometheusExporter};
use candlescope_testkit::services::{Jaeger, get};
use candlescope_testkit::wait_for;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tracing_subscriber::prelude::*;

/// Series → value, without the labels that the OpenTelemetry collector adds.
type Page = BTreeMap<String, f64>;

fn page(text: &str) -> Page {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.starts_with("target_info"));
    lines
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').expect("a series and a value");
            let (name, labels) = series.split_once('{').map_or((series, ""), |(n, l)| (n, l.trim_end_matches('}')));
            // No value here has a comma in it.
            let mut labels: Vec<String> = labels.split(',').filter(|l| !l.is_empty()).map(bound_as_number).collect();
            labels.retain(|label| !["job=", "instance=", "otel_scope_"].iter().any(|added| label.starts_with(added)));
            labels.sort_unstable();
            (format!("{name}{{{}}}", labels.join(",")), value.parse().expect("a number"))
        })
        .collect()
}

/// Go writes a microsecond as `1e-06` and Rust as `0.000001`.
fn bound_as_number(label: &str) -> String {
    match label.strip_prefix("le=").and_then(|bound| bound.trim_matches('"').parse::<f64>().ok()) {
        Some(bound) => format!("le=\"{bound}\""),
        None => label.to_string(),
    }
}

/// The profiler's metrics about itself change between two reads.
fn of_the_profiler(series: &str) -> bool {
    let names = ["records", "overhead_ratio", "intervals_total", "lost_total", "steps_begun_total"];
    names.iter().any(|name| series.strip_prefix("candlescope_").is_some_and(|rest| rest.starts_with(name)))
}

fn check(page: &Page, all: &Batch) {
    let value = |series: &str| *page.get(series).unwrap_or_else(|| panic!("no {series} in {:#?}", page.keys()));
    assert_eq!(value("candlescope_steps_total{phase=\"decode\"}"), 38.0);
    assert_eq!(value("candlescope_steps_total{phase=\"prefill\"}"), 2.0);
    assert_eq!(value("candlescope_tokens_total{type=\"output\"}"), 40.0);
    assert_eq!(value("candlescope_tokens_total{type=\"input\"}"), 10.0);
    let model = "gen_ai_request_model=\"tiny\"";
    assert_eq!(value(&format!("gen_ai_server_request_duration_seconds_count{{{model}}}")), 2.0);
    let seconds: f64 = all.requests.iter().map(|r| r.host_dur_ns as f64 / 1e9).sum();
    assert_eq!(value(&format!("gen_ai_server_request_duration_seconds_sum{{{model}}}")), seconds);
    // Intervals by path and by bucket, counted independently from the records.
    let mut expected: BTreeMap<String, f64> = BTreeMap::new();
    // Entries of a request's span stand above steps and are no intervals of the model.
    for span in all.spans.iter().filter(|span| span.step.is_some()) {
        let path = &span.path.rollup;
        *expected
            .entry(format!("candlescope_span_duration_seconds_count{{clock=\"host\",path=\"{path}\"}}"))
            .or_default() += 1.0;
        let below = span.host_dur_ns <= 100_000;
        let bucket =
            format!("candlescope_span_duration_seconds_bucket{{clock=\"host\",le=\"0.0001\",path=\"{path}\"}}");
        *expected.entry(bucket).or_default() += f64::from(u8::from(below));
    }
    assert!(expected.len() > 8, "{expected:?}");
    for (series, n) in expected {
        assert_eq!(value(&series), n, "{series}");
    }
}

fn compare(protocol: OtlpProtocol) {
    let jaeger = Jaeger::start();
    let address = if protocol == OtlpProtocol::Grpc { jaeger.grpc } else { jaeger.http };
    let config = OtlpConfig::new(format!("http://{address}"))
        .protocol(protocol)
        .service_name("candlescope-test")
        // The first export is the one asked for below, and the second the one at the end.
        .interval(Duration::from_secs(3_600));
    let (memory, sent) = (MemoryExporter::new(), OtlpMetricsExporter::new(config));
    let served = PrometheusExporter::new(PrometheusConfig::new("127.0.0.1:0"));
    let endpoint = served.endpoint();
    let builder = Session::builder().exporter(memory.clone()).exporter(sent).exporter(served);
    let (layer, session) = builder.start().expect("starts");
    let subscriber = tracing_subscriber::registry().with(layer);
    let ours = tracing::subscriber::with_default(subscriber, || {
        work("4bf92f3577b34da6a3ce929d0e0e4736");
        session.handle().flush(Duration::from_secs(20)).expect("flushed");
        let half = shown(&jaeger, |page| page.get("candlescope_steps_total{phase=\"decode\"}") == Some(&19.0));
        assert_eq!(half["candlescope_tokens_total{type=\"output\"}"], 20.0);
        work("4bf92f3577b34da6a3ce929d0e0e4737");
        session.handle().flush(Duration::from_secs(20)).expect("flushed");
        page(&get(endpoint.address().expect("serves"), "/metrics").expect("metrics"))
    });
    let manifest = session.finish();
    let theirs = shown(&jaeger, |page| page.get("candlescope_steps_total{phase=\"decode\"}") == Some(&38.0));
    check(&theirs, &memory.batch());

    // Every series of our own page, by the same name and with the same value.
    let names = |page: &Page| page.keys().filter(|s| !of_the_profiler(s)).cloned().collect::<BTreeSet<_>>();
    assert_eq!(names(&theirs), names(&ours));
    for (series, value) in ours.iter().filter(|(series, _)| !of_the_profiler(series)) {
        assert_eq!(theirs[series], *value, "{series}");
    }
    let recorded = "candlescope_intervals_total{outcome=\"recorded\"}";
    assert_eq!(theirs[recorded], memory.batch().spans.len() as f64);

    let account = manifest.exporters.iter().find(|e| e.name == "otlp-metrics").expect("an account");
    assert!(account.conserved() && account.dropped.is_empty() && account.last_error.is_none(), "{account:?}");
    assert_eq!(account.exported, account.received);
}

fn shown(jaeger: &Jaeger, done: impl Fn(&Page) -> bool) -> Page {
    wait_for(|| Some(page(&server::metrics(jaeger))).filter(|page| done(page)), "the collector shows what was sent")
}

#[test]
fn metrics_sent_over_http_are_those_that_prometheus_sees() {
    compare(OtlpProtocol::HttpProtobuf);
}

#[test]
fn metrics_sent_by_grpc_are_those_that_prometheus_sees() {
    compare(OtlpProtocol::Grpc);
}
