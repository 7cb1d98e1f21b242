//! What a test asks a Jaeger.

use crate::spans_of;
use candlescope_tests::services::{Jaeger, get};
use serde_json::Value;
use std::time::{Duration, Instant};

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

/// The trace once it has `spans` spans: storing takes a moment.
pub(crate) fn trace(jaeger: &Jaeger, id: &str, spans: usize) -> Value {
    let began = Instant::now();
    loop {
        let trace = stored(jaeger, id);
        let n = spans_of(&trace).len();
        if n >= spans || began.elapsed() > Duration::from_secs(20) {
            assert_eq!(n, spans, "spans that Jaeger has of trace {id}");
            return trace;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
