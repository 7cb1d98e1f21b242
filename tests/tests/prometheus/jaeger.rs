//! One trace in a real Jaeger, to follow links to.

use candlescope_testkit::services::{Jaeger, get, post};
use candlescope_testkit::wait_until;
use serde_json::{Value, json};

/// Stores a trace of one span.
pub(crate) fn store(jaeger: &Jaeger, service: &str, start_ms: u64, duration_ms: u64) {
    let nanoseconds = |ms: u64| format!("{}000000", ms);
    let span = json!({
        "traceId": "4bf92f3577b34da6a3ce929d0e0e4736", "spanId": "00f067aa0ba902b7", "name": "chat tiny", "kind": 1,
        "startTimeUnixNano": nanoseconds(start_ms), "endTimeUnixNano": nanoseconds(start_ms + duration_ms),
    });
    let resource = json!({ "attributes": [{ "key": "service.name", "value": { "stringValue": service } }] });
    let body = json!({ "resourceSpans": [{ "resource": resource, "scopeSpans": [{ "spans": [span] }] }] });
    let answer = post(jaeger.http, "/v1/traces", &body.to_string()).expect("Jaeger takes traces");
    assert!(!answer.contains("rejectedSpans"), "{answer}");
    wait_until(|| jaeger.knows(service), "Jaeger knows the service");
}

/// Traces that a search finds, or why it is refused. The query string of Jaeger's own search page is passed to its API.
pub(crate) fn found(jaeger: &Jaeger, search: &str) -> Result<usize, String> {
    let body = get(jaeger.query, &format!("/api/traces?{search}")).map_err(|e| e.to_string())?;
    let answer: Value = serde_json::from_str(&body).map_err(|e| format!("{e}: {body}"))?;
    match &answer["errors"] {
        Value::Null => Ok(answer["data"].as_array().map_or(0, Vec::len)),
        errors => Err(errors.to_string()),
    }
}
