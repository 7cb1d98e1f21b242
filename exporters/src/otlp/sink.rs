//! Where spans go: our own transport, an exporter of the OpenTelemetry SDK, or a program's own provider.

use super::attempt::{Message, SendError};
use super::transport::{Transport, quietly};
use candlescope_core::RedactedUrl;
use opentelemetry::Context;
use opentelemetry::trace::{Span as _, SpanBuilder, SpanContext, SpanId, TraceContextExt, TraceId, TracerProvider};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator, SdkTracer, SdkTracerProvider, SpanData, SpanExporter};
use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Most spans in one request, as in OpenTelemetry's own batch processor.
const MAX_BATCH: usize = 512;

/// Number of a provider's spans whose ids are remembered for later spans below them; at most twice as many.
const REMEMBERED: usize = 1 << 15;

/// The result for spans that arrived.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct DeliveryResult {
    /// Rejected all the same.
    pub(super) rejected: u64,
    /// Left out by the provider's sampler.
    pub(super) sampled_out: u64,
}

/// Takes finished spans.
pub(super) trait SpanSink: Send + fmt::Debug {
    /// The destination, for messages.
    fn place(&self) -> String;

    /// Most spans that it takes at once.
    fn most(&self) -> usize {
        MAX_BATCH
    }

    /// Sets the resource of the spans. Called before the first of them, and again when more is known.
    fn describe(&mut self, resource: &Resource);

    /// Delivers spans on the calling thread, by `deadline`.
    fn deliver(&mut self, spans: Vec<SpanData>, deadline: Instant) -> Result<DeliveryResult, SendError>;

    /// No more spans come.
    fn end(&mut self, _deadline: Instant) {}
}

/// Our own transport to the collector at `endpoint`.
#[derive(Debug)]
pub(super) struct OwnTransport {
    pub(super) transport: Transport,
    pub(super) endpoint: RedactedUrl,
    pub(super) resource: ResourceAttributesWithSchema,
}

impl SpanSink for OwnTransport {
    fn place(&self) -> String {
        self.endpoint.to_string()
    }

    fn describe(&mut self, resource: &Resource) {
        self.resource = resource.into();
    }

    fn deliver(&mut self, spans: Vec<SpanData>, deadline: Instant) -> Result<DeliveryResult, SendError> {
        let resource_spans = group_spans_by_resource_and_scope(spans, &self.resource);
        let message = Message::Traces(ExportTraceServiceRequest { resource_spans });
        self.transport.send(message, deadline).map(|rejected| DeliveryResult { rejected, sampled_out: 0 })
    }
}

/// An exporter of the OpenTelemetry SDK.
pub(super) struct Sdk<E>(pub(super) E);

impl<E> fmt::Debug for Sdk<E> {
    /// Without the exporter, which may show its credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sdk").finish_non_exhaustive()
    }
}

impl<E: SpanExporter> SpanSink for Sdk<E> {
    fn place(&self) -> String {
        "the span exporter".to_string()
    }

    fn describe(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }

    fn deliver(&mut self, spans: Vec<SpanData>, deadline: Instant) -> Result<DeliveryResult, SendError> {
        // A blocking client is done when it is first polled, however long that takes.
        if Instant::now() >= deadline {
            return Err(SendError::NoTime);
        }
        let exported = quietly(|| block_until(self.0.export(spans), deadline)).ok_or(SendError::NoTime)?;
        answered(exported).map(|()| DeliveryResult::default())
    }

    fn end(&mut self, deadline: Instant) {
        // Losses up to now were reported by `export`.
        let _ = quietly(|| self.0.shutdown_with_timeout(deadline.saturating_duration_since(Instant::now())));
    }
}

fn answered(result: OTelSdkResult) -> Result<(), SendError> {
    result.map_err(|error| match error {
        OTelSdkError::Timeout(after) => SendError::Exporter(format!("it gave up after {after:?}")),
        OTelSdkError::AlreadyShutdown => SendError::Exporter("it was shut down already".to_string()),
        OTelSdkError::InternalFailure(why) => SendError::Exporter(without_credentials(&why)),
    })
}

/// The message of a library, with passwords and queries removed from addresses.
fn without_credentials(text: &str) -> String {
    // Only these characters cannot be part of an address.
    let ends = |c: char| c.is_whitespace() || c == '"';
    let part = |part: &str| {
        let Some(scheme) = part.find("://") else { return part.to_string() };
        let before = part[..scheme].trim_end_matches(|c: char| c.is_ascii_alphanumeric() || c == '+').len();
        let address = part[before..].trim_end_matches([')', '>', ',', '\'', '`', '.', ':', ';']);
        let after = &part[before + address.len()..];
        format!("{}{}{after}", &part[..before], RedactedUrl::new(address))
    };
    text.split_inclusive(ends)
        .map(|piece| {
            let end = piece.len() - piece.chars().next_back().filter(|c| ends(*c)).map_or(0, char::len_utf8);
            part(&piece[..end]) + &piece[end..]
        })
        .collect()
}

/// Waits for `future` on this thread. At `deadline` it is dropped, which cancels it.
fn block_until<T>(future: impl Future<Output = T>, deadline: Instant) -> Option<T> {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(outcome) = future.as_mut().poll(&mut context) {
            return Some(outcome);
        }
        match deadline.saturating_duration_since(Instant::now()) {
            Duration::ZERO => return None,
            left => std::thread::park_timeout(left),
        }
    }
}

thread_local! {
    /// The record whose span is being made on this thread.
    static IDS: Cell<Option<(TraceId, SpanId)>> = const { Cell::new(None) };
}

/// An id generator that gives spans which a provider makes for candlescope the ids of their records, and all others
/// random ones. A provider that is passed to
/// [`OtlpExporter::with_tracer_provider`](super::OtlpExporter::with_tracer_provider) should be built with it: then a
/// span, a row of a Parquet run and an NVTX range have the same id.
#[derive(Debug, Clone, Default)]
pub struct RecordIds(RandomIdGenerator);

impl IdGenerator for RecordIds {
    fn new_trace_id(&self) -> TraceId {
        IDS.get().map_or_else(|| self.0.new_trace_id(), |(trace, _)| trace)
    }

    fn new_span_id(&self) -> SpanId {
        IDS.get().map_or_else(|| self.0.new_span_id(), |(_, span)| span)
    }
}

/// A program's own provider, which makes new spans, with its own sampler, limits, processors and resource.
pub(super) struct Provider {
    provider: SdkTracerProvider,
    tracer: Option<SdkTracer>,
    /// The spans that it made, by the ids of their records, in two generations: the current and the previous one.
    made: [HashMap<SpanId, SpanContext>; 2],
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `Debug` of the provider would show its exporters, and those their headers.
        f.debug_struct("Provider").finish_non_exhaustive()
    }
}

impl Provider {
    pub(super) fn new(provider: SdkTracerProvider) -> Self {
        Self { provider, tracer: None, made: Default::default() }
    }

    /// The context for making a span: that of its parent, as made by the provider, or as sent by the caller.
    fn parent(&self, span: &SpanData) -> Context {
        if span.parent_span_id == SpanId::INVALID {
            return Context::new();
        }
        let made = self.made.iter().find_map(|made| made.get(&span.parent_span_id));
        let parent = made.cloned().unwrap_or_else(|| {
            let own = &span.span_context;
            let (flags, state) = (own.trace_flags(), own.trace_state().clone());
            SpanContext::new(own.trace_id(), span.parent_span_id, flags, span.parent_span_is_remote, state)
        });
        Context::new().with_remote_span_context(parent)
    }

    fn remember(&mut self, id: SpanId, made: SpanContext) {
        if self.made[0].len() >= REMEMBERED {
            self.made[1] = std::mem::take(&mut self.made[0]);
        }
        self.made[0].insert(id, made);
    }

    /// Makes a new span. Returns whether the provider's sampler accepts it, or `None` if the provider no longer makes
    /// spans.
    fn make(&mut self, span: SpanData) -> Option<bool> {
        let scope = || span.instrumentation_scope.clone();
        let tracer = self.tracer.get_or_insert_with(|| self.provider.tracer_with_scope(scope())).clone();
        let parent = self.parent(&span);
        let id = span.span_context.span_id();
        let builder = SpanBuilder::from_name(span.name)
            .with_kind(span.span_kind)
            .with_start_time(span.start_time)
            .with_attributes(span.attributes)
            .with_events(span.events.events)
            .with_links(span.links.links);
        IDS.set(Some((span.span_context.trace_id(), id)));
        let mut made = builder.start_with_context(&tracer, &parent);
        IDS.set(None);
        if !made.span_context().is_valid() {
            return None;
        }
        self.remember(id, made.span_context().clone());
        made.set_status(span.status);
        // Processors pass on sampled spans only, not all recorded ones.
        let taken = made.is_recording() && made.span_context().is_sampled();
        made.end_with_timestamp(span.end_time);
        Some(taken)
    }
}

impl SpanSink for Provider {
    fn place(&self) -> String {
        "the tracer provider".to_string()
    }

    /// Fewer than a full batch of its processor, which would be sent at once without reporting the result.
    fn most(&self) -> usize {
        MAX_BATCH / 2
    }

    fn describe(&mut self, _: &Resource) {
        // It has a resource of its own.
    }

    fn deliver(&mut self, spans: Vec<SpanData>, deadline: Instant) -> Result<DeliveryResult, SendError> {
        if Instant::now() >= deadline {
            return Err(SendError::NoTime);
        }
        quietly(|| {
            let sampled_out = spans.into_iter().map(|span| self.make(span).map(|taken| u64::from(!taken)));
            let sampled_out = sampled_out.sum::<Option<u64>>();
            let sampled_out = sampled_out.ok_or_else(|| SendError::Exporter("it was shut down".to_string()))?;
            // A batch fits into its processor's queue, so that nothing is lost there unnoticed, and flushing reports
            // the result.
            answered(self.provider.force_flush()).map(|()| DeliveryResult { rejected: 0, sampled_out })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_a_librarys_message_lose_their_secrets() {
        for (said, shown) in [
            ("no route to http://me:pw@host:4318/v1, try later", "no route to http://***@host:4318/v1, try later"),
            ("POST (https://host/v1?key=a,SECRET) failed", "POST (https://host/v1?***) failed"),
            ("at 'http://me:12(34@host'", "at 'http://***@host'"),
            ("nothing of the kind: 3 spans", "nothing of the kind: 3 spans"),
        ] {
            assert_eq!(without_credentials(said), shown);
        }
    }

    #[test]
    fn a_provider_that_was_shut_down_takes_nothing() {
        let provider = SdkTracerProvider::builder().build();
        let _ = provider.shutdown();
        let mut sink = Provider::new(provider);
        let spans = crate::otlp::tests::made_spans();
        assert!(!spans.is_empty());
        let soon = Instant::now() + Duration::from_secs(10);
        assert!(matches!(sink.deliver(spans, soon), Err(SendError::Exporter(why)) if why.contains("shut down")));
        assert!(matches!(sink.deliver(Vec::new(), Instant::now()), Err(SendError::NoTime)), "its time is over");
    }
}
