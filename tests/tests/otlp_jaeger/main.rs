//! Sends a request through a session to a real Jaeger and to Parquet, and compares both: the same tree, the same
//! nanoseconds.
#![allow(missing_docs, reason = "a test")]

mod metrics;
mod sdk_exporter;
mod server;
mod tls;

use candlescope_core::llm::{self, Request};
use candlescope_core::{Batch, RecordKind, Session};
use candlescope_exporters::otlp::{OtlpConfig, OtlpExporter, OtlpLimits, OtlpProtocol};
use candlescope_exporters::parquet::{ParquetConfig, ParquetExporter};
use candlescope_reader::Run;
use candlescope_testkit::records::join;
use candlescope_testkit::services::Jaeger;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use tracing_subscriber::prelude::*;

/// The caller's span, which is never sent to Jaeger.
const PARENT: &str = "00f067aa0ba902b7";

pub(crate) fn spans_of(resources: &Value) -> Vec<&Value> {
    let list = |value: &'_ Value, key: &str| value[key].as_array().map(|a| a.len()).unwrap_or(0);
    let mut all = Vec::new();
    for resource in resources.as_array().into_iter().flatten() {
        for scope in 0..list(resource, "scopeSpans") {
            all.extend(resource["scopeSpans"][scope]["spans"].as_array().into_iter().flatten());
        }
    }
    all
}

/// An attribute's value as text, whatever its type.
fn attribute(of: &Value, key: &str) -> Option<String> {
    let found = of["attributes"].as_array()?.iter().find(|a| a["key"] == key)?;
    let value = found["value"].as_object()?.values().next()?;
    Some(value.as_str().map_or_else(|| value.to_string(), str::to_string))
}

/// What both must agree on: id → (parent, name, start, end).
type Tree = BTreeMap<String, (String, String, i64, i64)>;

fn tree_in_jaeger(trace: &Value) -> Tree {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_string();
    let time = |v: &Value| text(v).parse().expect("nanoseconds");
    let one = |s: &&Value| {
        let times = (time(&s["startTimeUnixNano"]), time(&s["endTimeUnixNano"]));
        (text(&s["spanId"]), (text(&s["parentSpanId"]), text(&s["name"]), times.0, times.1))
    };
    spans_of(trace).iter().map(one).collect()
}

/// The same from the run on disk: the request's record is the span above its steps, and its entries are not spans of
/// their own.
fn tree_on_disk(run: &Batch) -> Tree {
    let by_seq: BTreeMap<u64, _> = run.spans.iter().map(|s| (s.seq, s)).collect();
    let request = &run.requests[0];
    let mut tree = Tree::new();
    let name = format!("{} {}", request.operation, request.model);
    let end = request.host_start.plus_ns(request.host_dur_ns);
    tree.insert(request.span_id.to_string(), (PARENT.to_string(), name, request.host_start.0, end.0));
    for s in run.spans.iter().filter(|s| s.step.is_some()) {
        let parent = s.parent_seq.and_then(|seq| by_seq.get(&seq)).filter(|p| p.step.is_some());
        let parent = parent.map_or(request.span_id, |p| p.span_id);
        let end = s.host_start.plus_ns(s.host_dur_ns);
        tree.insert(s.span_id.to_string(), (parent.to_string(), s.path.name.to_string(), s.host_start.0, end.0));
    }
    tree
}

pub(crate) fn work(caller: &str) {
    work_for(&format!("00-{caller}-{PARENT}-01"));
}

fn work_for(caller: &str) {
    let (block, linear) = (tracing::info_span!("block"), tracing::info_span!("linear"));
    let request = Request::new("text_completion", "tiny").prompt_tokens(5).traceparent(caller);
    let _in_request = request.enter();
    for step in 0..20 {
        let _phase = if step == 0 {
            llm::prefill(llm::Tokens::new(5).context(5))
        } else {
            llm::decode(llm::Tokens::new(1).context(5 + step))
        };
        for _ in 0..4 {
            block.in_scope(|| (0..3).for_each(|_| linear.in_scope(|| std::hint::black_box(()))));
        }
        request.token();
    }
}

fn config(to: (OtlpProtocol, SocketAddr), limits: OtlpLimits) -> OtlpConfig {
    OtlpConfig::new(format!("http://{}", to.1)).protocol(to.0).service_name("candlescope-test").limits(limits)
}

fn profile(exporter: OtlpExporter, dir: &Path, caller: &str) -> (Batch, candlescope_core::run::RunManifest) {
    let (layer, session) = Session::builder()
        .exporter(ParquetExporter::new(ParquetConfig::new(dir)))
        .exporter(exporter)
        .start()
        .expect("starts");
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || work_for(caller));
    let manifest = session.finish();
    for exporter in &manifest.exporters {
        assert!(exporter.conserved(), "{exporter:?}");
    }
    (join(Run::open(dir).expect("a run").batches()), manifest)
}

#[test]
fn a_trace_sent_over_http_is_the_run_on_disk() {
    let jaeger = Jaeger::start();
    compare(&jaeger, (OtlpProtocol::HttpProtobuf, jaeger.http));
}

#[test]
fn a_trace_sent_by_grpc_is_the_run_on_disk() {
    let jaeger = Jaeger::start();
    compare(&jaeger, (OtlpProtocol::Grpc, jaeger.grpc));
}

fn compare(jaeger: &Jaeger, to: (OtlpProtocol, SocketAddr)) {
    let dir = tempfile::tempdir().expect("a directory");
    let exporter = |limits| OtlpExporter::new(config(to, limits));

    // Everything: the two trees are the same, to the nanosecond.
    let caller = "4bf92f3577b34da6a3ce929d0e0e4736";
    let (run, manifest) =
        profile(exporter(OtlpLimits::none()), &dir.path().join("whole"), &format!("00-{caller}-{PARENT}-01"));
    let expected = tree_on_disk(&run);
    assert_eq!(expected.len(), 1 + 20 * (1 + 4 + 12));
    let trace = server::trace(jaeger, caller, expected.len());
    let found = tree_in_jaeger(&trace);
    for (id, span) in &expected {
        assert_eq!(found.get(id), Some(span), "span {id}");
    }
    let otlp = manifest.exporters.iter().find(|e| e.name == "otlp").expect("an account");
    assert_eq!(otlp.exported["spans"], run.spans.len() as u64);
    assert_eq!(otlp.dropped_total(RecordKind::Span), 0, "{otlp:?}");

    let resource = &trace[0]["resource"];
    assert_eq!(attribute(resource, "service.name").as_deref(), Some("candlescope-test"));
    assert_eq!(attribute(resource, "candlescope.run_id"), Some(manifest.run_id));
    let spans = spans_of(&trace);
    let top = spans.iter().find(|s| s["name"] == "text_completion tiny").expect("the request");
    assert_eq!(attribute(top, "gen_ai.request.model").as_deref(), Some("tiny"));
    assert_eq!(attribute(top, "gen_ai.usage.output_tokens").as_deref(), Some("20"));
    let paths: Vec<String> = spans.iter().filter_map(|s| attribute(s, "candlescope.path")).collect();
    for record in &run.spans {
        let there = record.step.is_none() || paths.contains(&record.path.path);
        assert!(there, "{}", record.path.path);
    }

    // With limits: what was sent is the same, and what was not is accounted for.
    let caller = "4bf92f3577b34da6a3ce929d0e0e4737";
    let (run, manifest) =
        profile(exporter(OtlpLimits::default()), &dir.path().join("limited"), &format!("00-{caller}-{PARENT}-01"));
    let expected = tree_on_disk(&run);
    // The request, the prefill, decode steps 0 and 16 in full, the seventeen other decode steps.
    let sent = 1 + 3 * (1 + 4 + 12) + 17;
    let found = tree_in_jaeger(&server::trace(jaeger, caller, sent));
    for (id, span) in &found {
        assert_eq!(expected.get(id), Some(span), "span {id}");
    }
    let otlp = manifest.exporters.iter().find(|e| e.name == "otlp").expect("an account");
    assert_eq!(otlp.dropped["spans"]["limit"], (expected.len() - sent) as u64);

    // A caller that does not record its trace: nothing is sent, but everything is on disk.
    let caller = "4bf92f3577b34da6a3ce929d0e0e4738";
    let not_recorded = format!("00-{caller}-{PARENT}-00");
    let (run, manifest) = profile(exporter(OtlpLimits::default()), &dir.path().join("unsampled"), &not_recorded);
    assert_eq!(tree_on_disk(&run).len(), expected.len());
    let otlp = manifest.exporters.iter().find(|e| e.name == "otlp").expect("an account");
    assert_eq!((otlp.exported["spans"], otlp.dropped["requests"]["limit"]), (0, 1), "{otlp:?}");
    assert!(spans_of(&server::stored(jaeger, caller)).is_empty());
}
