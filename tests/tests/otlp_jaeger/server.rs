//! Queries to a Jaeger.

use crate::spans_of;
use candlescope_testkit::services::{Jaeger, get};
use candlescope_testkit::wait_for;
use serde_json::Value;

/// The metrics that it was sent, as Prometheus would see them.
pub(crate) fn metrics(jaeger: &Jaeger) -> String {
    get(jaeger.metrics, "/metrics").expect("metrics")
}

/// The spans that it has of a trace now, in OTLP JSON.
pub(crate) fn stored(jaeger: &Jaeger, id: &str) -> Value {
    // One JSON object after another, as gRPC's gateway streams them.
    let body = get(jaeger.query, &format!("/api/v3/traces/{id}")).unwrap_or_default();
    let parts = serde_json::Deserializer::from_str(&body).into_iter::<Value>();
    let resources: Vec<Value> = parts
        .filter_map(Result::ok)
        .filter_map(|part| Some(part["result"]["resourceSpans"].as_array()?.clone()))
        .flatten()
        .collect();
    Value::Array(resources)
}

/// Waits until the trace has `spans` spans, because storing takes a moment.
pub(crate) fn trace(jaeger: &Jaeger, id: &str, spans: usize) -> Value {
    let whole = || Some(stored(jaeger, id)).filter(|trace| spans_of(trace).len() >= spans);
    let trace = wait_for(whole, &format!("Jaeger has {spans} spans of trace {id}"));
    assert_eq!(spans_of(&trace).len(), spans, "spans that Jaeger has of trace {id}");
    trace
}
