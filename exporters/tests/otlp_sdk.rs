//! Spans handed to an exporter of the OpenTelemetry SDK, and to a program's own provider.
#![allow(missing_docs, reason = "a test")]

use candlescope_core::llm::{self, Request};
use candlescope_core::run::ExporterReport;
use candlescope_core::{Batch, MemoryExporter, RecordKind, Session};
use candlescope_exporters::otlp::{OtlpConfig, OtlpExporter, OtlpLimits, OtlpSampler, RecordIds};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, SpanData, SpanExporter};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tracing_subscriber::prelude::*;

const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

type Answer = fn() -> OTelSdkResult;

/// An exporter that keeps its spans and returns a scripted result.
#[derive(Debug, Clone, Default)]
struct Kept {
    spans: Arc<Mutex<Vec<SpanData>>>,
    service: Arc<Mutex<Option<String>>>,
    shut_down: Arc<Mutex<u32>>,
    answer: Option<Answer>,
}

impl SpanExporter for Kept {
    fn export(&self, batch: Vec<SpanData>) -> impl Future<Output = OTelSdkResult> + Send {
        self.spans.lock().unwrap().extend(batch);
        std::future::ready(self.answer.map_or(Ok(()), |answer| answer()))
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        *self.shut_down.lock().unwrap() += 1;
        Ok(())
    }

    fn set_resource(&mut self, resource: &Resource) {
        let name = resource.get(&opentelemetry::Key::from("service.name"));
        *self.service.lock().unwrap() = name.map(|name| name.to_string());
    }
}

fn config() -> OtlpConfig {
    OtlpConfig::default().service_name("tester").limits(OtlpLimits::none())
}

/// A request of four steps and a step outside of it.
fn profile(exporter: OtlpExporter) -> (Batch, ExporterReport) {
    let memory = MemoryExporter::new();
    let (layer, session) = Session::builder().exporter(memory.clone()).exporter(exporter).start().expect("starts");
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let linear = tracing::info_span!("linear");
        {
            let request = Request::new("text_completion", "tiny").prompt_tokens(5).traceparent(CALLER);
            let _in_request = request.enter();
            for step in 0..4 {
                let _phase = llm::decode(llm::Tokens::new(1).context(step));
                (0..3).for_each(|_| linear.in_scope(|| ()));
            }
        }
        let _phase = llm::decode(llm::Tokens::new(1).context(9));
        linear.in_scope(|| ());
    });
    let manifest = session.finish();
    let report = manifest.exporters.iter().find(|e| e.name == "otlp").expect("an account").clone();
    assert!(report.conserved(), "{report:?}");
    assert!(!report.dropped.values().any(|reasons| reasons.contains_key("unaccounted")), "{report:?}");
    (memory.batch(), report)
}

/// Span id → (trace id, parent's id, name, start), as recorded by candlescope.
fn recorded(batch: &Batch) -> BTreeMap<u64, (u128, u64, String, i64)> {
    let by_seq: BTreeMap<u64, _> = batch.spans.iter().map(|s| (s.seq, s)).collect();
    let request = &batch.requests[0];
    let name = format!("{} {}", request.operation, request.model);
    let caller = request.parent_span_id.expect("a caller").0;
    let mut all = BTreeMap::from([(request.span_id.0, (request.trace_id.0, caller, name, request.host_start.0))]);
    for s in batch.spans.iter().filter(|s| s.step.is_some()) {
        let above = s.parent_seq.and_then(|seq| by_seq.get(&seq));
        let parent = match above {
            Some(parent) if parent.step.is_some() => parent.span_id.0,
            Some(_) => request.span_id.0,
            None => 0,
        };
        all.insert(s.span_id.0, (s.trace_id.0, parent, s.path.name.to_string(), s.host_start.0));
    }
    all
}

/// The same as it arrived.
fn arrived(spans: &[SpanData]) -> BTreeMap<u64, (u128, u64, String, i64)> {
    let number = |id: opentelemetry::trace::SpanId| u64::from_be_bytes(id.to_bytes());
    let one = |s: &SpanData| {
        let start = s.start_time.duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_nanos() as i64;
        let trace = u128::from_be_bytes(s.span_context.trace_id().to_bytes());
        (number(s.span_context.span_id()), (trace, number(s.parent_span_id), s.name.to_string(), start))
    };
    spans.iter().map(one).collect()
}

#[test]
fn an_exporter_of_the_sdk_gets_what_was_recorded() {
    let kept = Kept::default();
    let (batch, report) = profile(OtlpExporter::new(config()).with_span_exporter(kept.clone()));
    assert_eq!(arrived(&kept.spans.lock().unwrap()), recorded(&batch));
    assert_eq!(report.exported["spans"], batch.spans.len() as u64);
    assert_eq!((report.exported["steps"], report.exported["requests"]), (5, 1));
    assert_eq!(kept.service.lock().unwrap().as_deref(), Some("tester"));
    assert_eq!(*kept.shut_down.lock().unwrap(), 1);
}

#[test]
fn what_an_exporter_of_the_sdk_loses_is_counted_and_named() {
    let answer: Answer = || {
        Err(OTelSdkError::InternalFailure("POST (http://me:hunter@collector:4318/v1?key=hunter2): refused".to_string()))
    };
    let kept = Kept { answer: Some(answer), ..Kept::default() };
    let (batch, report) = profile(OtlpExporter::new(config()).with_span_exporter(kept));
    assert_eq!((report.exported["spans"], report.dropped["spans"]["io"]), (0, batch.spans.len() as u64));
    let error = report.last_error.expect("an error");
    assert!(error.contains("collector:4318") && error.contains("): refused"), "{error}");
    assert!(!error.contains("hunter"), "{error}");
}

/// Never completes, and notices when it is dropped.
#[derive(Debug)]
struct Silent(Arc<Mutex<u32>>);

struct Noticed(Arc<Mutex<u32>>);

impl Drop for Noticed {
    fn drop(&mut self) {
        *self.0.lock().unwrap() += 1;
    }
}

impl SpanExporter for Silent {
    async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
        let _noticed = Noticed(self.0.clone());
        std::future::pending().await
    }
}

#[test]
fn an_export_that_takes_too_long_is_cancelled() {
    let cancelled = Arc::new(Mutex::new(0));
    let config = config().timeout(Duration::from_millis(50));
    let started = Instant::now();
    let (batch, report) = profile(OtlpExporter::new(config).with_span_exporter(Silent(cancelled.clone())));
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    assert_eq!(report.dropped["spans"]["io"], batch.spans.len() as u64);
    assert!(*cancelled.lock().unwrap() > 0, "the export goes on");
}

fn provider(kept: &Kept) -> opentelemetry_sdk::trace::TracerProviderBuilder {
    SdkTracerProvider::builder().with_batch_exporter(kept.clone())
}

#[test]
fn a_provider_that_is_handed_over_keeps_ids_and_parents() {
    let kept = Kept::default();
    let provider = provider(&kept).with_id_generator(RecordIds::default()).build();
    let (batch, report) = profile(OtlpExporter::new(config()).with_tracer_provider(provider.clone()));
    assert_eq!(arrived(&kept.spans.lock().unwrap()), recorded(&batch));
    assert_eq!(report.exported["spans"], batch.spans.len() as u64);
    assert_eq!(*kept.shut_down.lock().unwrap(), 0, "the provider is the program's");
    // The program's own spans still have random ids.
    use opentelemetry::trace::{Span, Tracer, TracerProvider};
    let of_program = || provider.tracer("program").start("work").span_context().span_id();
    assert_ne!(of_program(), of_program());
}

#[test]
fn a_provider_with_ids_of_its_own_keeps_the_tree() {
    let kept = Kept::default();
    let (batch, _) = profile(OtlpExporter::new(config()).with_tracer_provider(provider(&kept).build()));
    // Two trees are the same if every span has the same names up to its root.
    fn ways(spans: BTreeMap<u64, (u128, u64, String, i64)>) -> Vec<(i64, String)> {
        let way = |mut id: u64| {
            let mut way = String::new();
            while let Some((_, parent, name, _)) = spans.get(&id) {
                way = format!("{name}/{way}");
                id = *parent;
            }
            way
        };
        let mut all: Vec<_> = spans.iter().map(|(id, (.., start))| (*start, way(*id))).collect();
        all.sort();
        all
    }
    let spans = arrived(&kept.spans.lock().unwrap());
    let request = &batch.requests[0];
    let of_caller = spans.values().filter(|(trace, ..)| *trace == request.trace_id.0).count();
    assert_eq!(of_caller, 1 + 4 * (1 + 3), "in the caller's trace");
    assert_eq!(ways(spans), ways(recorded(&batch)));
}

#[test]
fn what_a_providers_sampler_or_exporter_refuses_is_counted() {
    let kept = Kept::default();
    let off = provider(&kept).with_sampler(Sampler::AlwaysOff).build();
    let (batch, report) = profile(OtlpExporter::new(config()).with_tracer_provider(off));
    assert_eq!(report.dropped["spans"]["limit"], batch.spans.len() as u64, "{report:?}");
    assert!(kept.spans.lock().unwrap().is_empty() && report.last_error.is_none(), "{report:?}");

    let kept = Kept { answer: Some(|| Err(OTelSdkError::InternalFailure("full".to_string()))), ..Kept::default() };
    let (batch, report) = profile(OtlpExporter::new(config()).with_tracer_provider(provider(&kept).build()));
    assert_eq!(report.dropped["spans"]["io"], batch.spans.len() as u64, "{report:?}");
    assert!(report.last_error.is_some_and(|e| e.contains("the tracer provider") && e.contains("full")));
}

#[test]
fn our_own_sampler_goes_before() {
    let kept = Kept::default();
    let config = config().sampler(OtlpSampler::new(0.0).parent_based(false));
    let (batch, report) = profile(OtlpExporter::new(config).with_span_exporter(kept.clone()));
    assert!(kept.spans.lock().unwrap().is_empty());
    assert_eq!(report.dropped_total(RecordKind::Span), batch.spans.len() as u64);
}
