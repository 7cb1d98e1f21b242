//! What steps for several requests did for one of them. Such a step is a trace of its own; the request's span has links
//! to those that were sent, and sums over all of them. Pure.

use candlescope_core::{Served, StepRecord};
use opentelemetry::trace::{Link, SpanContext};
use opentelemetry::{KeyValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanLinks};

/// Most links of a request: OpenTelemetry's limit. The first steps are linked, and the number of others is told.
const MAX_LINKS: usize = 128;

/// Most requests that a step's span names.
const MAX_NAMED: usize = 128;

/// Sums over the steps that served a request with others.
#[derive(Debug, Default)]
pub(super) struct SharedSteps {
    steps: u64,
    share_ns: f64,
    prefill_ns: u64,
    decode_ns: u64,
    output_tokens: u64,
    links: Vec<Link>,
    unlinked: u32,
}

impl SharedSteps {
    /// Adds what `step` did for the request; `sent` is the step's span, if it was sent.
    pub(super) fn add(&mut self, step: &StepRecord, served: Served, sent: Option<&SpanContext>) {
        self.steps += 1;
        self.share_ns += step.host_dur_ns as f64 * Served::share(&step.serves, served.request).unwrap_or(0.0);
        // As the request sees it: its prompt up to the step with its first token.
        match self.output_tokens {
            0 => self.prefill_ns = self.prefill_ns.saturating_add(step.host_dur_ns),
            _ => self.decode_ns = self.decode_ns.saturating_add(step.host_dur_ns),
        }
        self.output_tokens += u64::from(served.output_tokens);
        match sent {
            Some(span) if self.links.len() < MAX_LINKS => {
                let tokens =
                    [("candlescope.tokens", served.tokens), ("candlescope.output_tokens", served.output_tokens)];
                let attributes = tokens.map(|(key, n)| KeyValue::new(key, i64::from(n)));
                self.links.push(Link::new(span.clone(), attributes.into(), 0));
            }
            _ => self.unlinked = self.unlinked.saturating_add(1),
        }
    }

    /// Adds links and sums to the request's span.
    pub(super) fn describe(self, span: &mut SpanData) {
        if self.steps == 0 {
            return;
        }
        let mut put = |key: &'static str, value: Value| span.attributes.push(KeyValue::new(key, value));
        put("candlescope.shared.steps", i64::try_from(self.steps).unwrap_or(i64::MAX).into());
        put("candlescope.shared.step_share", (self.share_ns / 1e9).into());
        put("candlescope.shared.prefill_duration", (self.prefill_ns as f64 / 1e9).into());
        put("candlescope.shared.decode_duration", (self.decode_ns as f64 / 1e9).into());
        let mut links = SpanLinks::default();
        links.links = self.links;
        links.dropped_count = self.unlinked;
        span.links = links;
    }
}

/// Names the requests in the span of a step that serves several.
pub(super) fn name_requests(step: &StepRecord, span: &mut SpanData) {
    if step.serves.is_empty() {
        return;
    }
    let numbers = step.serves.iter().take(MAX_NAMED).map(|served| i64::try_from(served.request).unwrap_or(i64::MAX));
    let numbers: Vec<i64> = numbers.collect();
    let requests = i64::try_from(step.serves.len()).unwrap_or(i64::MAX);
    span.attributes.push(KeyValue::new("candlescope.shared.requests", requests));
    span.attributes.push(KeyValue::new("candlescope.shared.request_numbers", Value::Array(numbers.into())));
}
