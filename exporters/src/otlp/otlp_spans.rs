//! Converts records to OpenTelemetry spans, with the same ids, parents and nanoseconds as everywhere else. Pure.

use candlescope_core::estimate::{MeasuredBySource, MeasuredTime};
use candlescope_core::llm::SEMCONV_VERSION;
use candlescope_core::run::{RunManifest, env_key, option_key};
use candlescope_core::{
    GpuSource, GpuTime, HostNs, Outcome, Phase, RequestRecord, SpanId, SpanRecord, StepRecord, TraceId,
};
use opentelemetry::trace::{Event, SpanContext, SpanKind, Status, TraceFlags, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use super::decodes::Group;
use super::settings::Common;

/// Most entries of threads that a request's span has as events. Together with the groups of decode steps these are 128,
/// OpenTelemetry's limit.
pub(super) const MAX_ENTRIES: usize = 64;

/// Sums over all steps of a request, those that are not sent included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) steps: u64,
    pub(super) intervals: u64,
    pub(super) decode_steps: u64,
    pub(super) decode_ns: u64,
    pub(super) prefill_ns: u64,
    /// GPU time by kind of step, because a prefill says nothing about a decode step.
    gpu: BTreeMap<Option<Phase>, OfKind>,
    pub(super) flops: Option<u64>,
    pub(super) bytes: Option<u64>,
}

/// Steps of one kind, and their measured GPU times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct OfKind {
    steps: u64,
    measured: MeasuredBySource,
}

/// GPU time of several steps from one source.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct StepsOnGpu {
    source: GpuSource,
    measured: MeasuredTime,
    /// Estimate for all steps, in nanoseconds, by [`candlescope_core::estimate`]; `None` if a kind of step was never
    /// measured.
    total_ns: Option<f64>,
}

impl StepsOnGpu {
    /// Steps of one kind.
    pub(super) fn of(steps: u64, measured: MeasuredBySource) -> Option<Self> {
        let source = measured.shown()?;
        let measured = measured.of(source);
        Some(Self { source, measured, total_ns: measured.total_of(steps) })
    }
}

impl Totals {
    /// GPU time of all steps from the source that measured more of them.
    pub(super) fn gpu(&self) -> Option<StepsOnGpu> {
        // If there are phases, a step without one may be around others, and their time would count twice.
        let phased = self.gpu.keys().any(Option::is_some);
        let kinds = || self.gpu.iter().filter(|(phase, _)| phase.is_some() || !phased).map(|(_, kind)| kind);
        let mut all = MeasuredBySource::default();
        kinds().for_each(|kind| all.absorb(kind.measured));
        let source = all.shown()?;
        let totals = kinds().map(|kind| kind.measured.of(source).total_of(kind.steps));
        Some(StepsOnGpu { source, measured: all.of(source), total_ns: totals.sum() })
    }

    pub(super) fn add(&mut self, step: &StepRecord) {
        let sum = |total: &mut Option<u64>, more: Option<u64>| {
            if let Some(more) = more {
                *total = Some(total.unwrap_or(0).saturating_add(more));
            }
        };
        self.steps += 1;
        self.intervals += step.intervals;
        match step.phase {
            Some(Phase::Decode) => {
                self.decode_steps += 1;
                self.decode_ns += step.host_dur_ns;
            }
            Some(Phase::Prefill) => self.prefill_ns += step.host_dur_ns,
            _ => {}
        }
        let kind = self.gpu.entry(step.phase).or_default();
        kind.steps += 1;
        if let Some(gpu) = step.gpu {
            kind.measured.of_mut(gpu.source).add(gpu.dur_ns);
        }
        sum(&mut self.flops, step.flops);
        sum(&mut self.bytes, step.bytes);
    }
}

/// The instrumentation scope of the spans.
pub(super) fn scope() -> InstrumentationScope {
    InstrumentationScope::builder("candlescope")
        .with_version(env!("CARGO_PKG_VERSION"))
        .with_schema_url(format!("https://opentelemetry.io/schemas/{SEMCONV_VERSION}"))
        .build()
}

/// Nanoseconds since the Unix epoch as `SystemTime`, which represents them exactly.
pub(super) fn system_time(time: HostNs) -> SystemTime {
    let distance = Duration::from_nanos(time.0.unsigned_abs());
    match time.0 {
        0.. => SystemTime::UNIX_EPOCH + distance,
        _ => SystemTime::UNIX_EPOCH - distance,
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// OTLP has signed integers; what does not fit is not a plausible count.
fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn context(trace: TraceId, span: SpanId) -> SpanContext {
    SpanContext::new(
        opentelemetry::trace::TraceId::from(trace.0),
        opentelemetry::trace::SpanId::from(span.0),
        TraceFlags::SAMPLED,
        false,
        TraceState::NONE,
    )
}

fn parent_id(parent: Option<SpanId>) -> opentelemetry::trace::SpanId {
    parent.map_or(opentelemetry::trace::SpanId::INVALID, |id| opentelemetry::trace::SpanId::from(id.0))
}

/// Collects attributes, leaving out what is not known.
struct Attributes(Vec<KeyValue>);

impl Attributes {
    fn put(&mut self, key: &'static str, value: impl Into<Value>) {
        self.0.push(KeyValue::new(key, value));
    }

    fn maybe(&mut self, key: &'static str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.put(key, value);
        }
    }

    fn gpu(&mut self, gpu: Option<GpuTime>) {
        if let Some(gpu) = gpu {
            self.put("candlescope.gpu.duration", seconds(gpu.dur_ns));
            self.put("candlescope.gpu.start_time_unix_nano", gpu.start.0);
            self.put("candlescope.gpu.source", gpu.source.as_str());
        }
    }

    /// GPU time of several steps: what was measured, on how many of them, and the estimate for all.
    fn steps_on_gpu(&mut self, gpu: Option<StepsOnGpu>) {
        if let Some(gpu) = gpu {
            self.maybe("candlescope.gpu.duration", gpu.total_ns.map(|ns| ns / 1e9));
            self.put("candlescope.gpu.measured_duration", seconds(gpu.measured.total_ns));
            self.put("candlescope.gpu.measured_steps", int(gpu.measured.n));
            self.put("candlescope.gpu.source", gpu.source.as_str());
        }
    }
}

/// An interval as a span below `parent`. `step` is given for the interval that is the step, and adds the step's
/// attributes.
pub(super) fn span(
    record: &SpanRecord,
    parent: Option<SpanId>,
    step: Option<&StepRecord>,
    scope: &InstrumentationScope,
) -> SpanData {
    let mut a = Attributes(Vec::with_capacity(16));
    a.put("candlescope.path", record.path.path.clone());
    a.maybe("candlescope.module", record.path.module.as_ref().map(ToString::to_string));
    a.maybe("candlescope.phase", record.phase.map(|p| p.as_str()));
    a.gpu(step.and_then(|s| s.gpu).or(record.gpu));
    // A step's figures are sums over everything in it; an interval's are its own.
    a.maybe("candlescope.flops", step.map_or(record.flops, |s| s.flops).map(int));
    a.maybe("candlescope.bytes", step.map_or(record.bytes, |s| s.bytes).map(int));
    a.maybe("candlescope.io_bytes", step.map_or(record.io_bytes, |s| s.io_bytes).map(int));
    a.maybe("candlescope.tokens", record.tokens.map(i64::from));
    a.maybe("candlescope.context_len", record.context_len.map(i64::from));
    a.maybe("candlescope.batch", record.batch.map(i64::from));
    a.maybe("candlescope.dtype", record.dtype.map(|d| d.as_str()));
    a.maybe("candlescope.shape", record.shape.map(|s| s.to_string()));
    a.maybe("candlescope.step", record.step.map(int));
    a.put("candlescope.seq", int(record.seq));
    a.maybe("candlescope.graph", record.graph.map(i64::from));
    a.maybe("candlescope.derived", record.derived);
    a.maybe("candlescope.payload", record.payload);
    if let Some(step) = step {
        a.put("candlescope.intervals", int(step.intervals));
        a.maybe("candlescope.intervals_lost", step.intervals_lost.filter(|n| *n > 0).map(int));
        a.maybe("candlescope.energy_joules", step.energy_mj.map(|mj| mj / 1e3));
        a.maybe("candlescope.ran", step.ran.map(|ran| ran.as_str()));
    }
    a.put("candlescope.target", record.path.target.to_string());
    a.put("thread.name", record.thread.name.to_string());
    if record.thread.os_id > 0 {
        a.put("thread.id", int(record.thread.os_id));
    }
    let name = record.path.name.to_string();
    finish(record.trace_id, record.span_id, parent, name, (record.host_start, record.host_dur_ns), a, scope)
}

/// A request as a span. Its events are `entries`, the intervals during which a thread worked for it, and `course`,
/// its decode steps in groups.
pub(super) fn request(
    record: &RequestRecord,
    totals: &Totals,
    course: &[Group],
    entries: &[SpanRecord],
    spans_omitted: u64,
    scope: &InstrumentationScope,
) -> SpanData {
    let mut a = Attributes(Vec::with_capacity(20));
    a.put("gen_ai.operation.name", record.operation.to_string());
    a.put("gen_ai.provider.name", "candle");
    a.put("gen_ai.request.model", record.model.to_string());
    a.maybe("gen_ai.usage.input_tokens", record.input_tokens().map(int));
    a.maybe("gen_ai.usage.output_tokens", record.output_tokens.map(int));
    a.maybe("gen_ai.response.time_to_first_chunk", record.ttft_ns.map(seconds));
    a.maybe("candlescope.time_to_last_token", record.last_token_ns.map(seconds));
    a.maybe("candlescope.queue_time", record.queue_ns.map(seconds));
    a.put("candlescope.request", int(record.request));
    a.maybe("candlescope.batch", record.batch.map(i64::from));
    if totals.steps > 0 {
        a.put("candlescope.steps", int(totals.steps));
        a.put("candlescope.intervals", int(totals.intervals));
        a.put("candlescope.prefill.duration", seconds(totals.prefill_ns));
        a.put("candlescope.decode.steps", int(totals.decode_steps));
        a.put("candlescope.decode.duration", seconds(totals.decode_ns));
        a.steps_on_gpu(totals.gpu());
        a.maybe("candlescope.flops", totals.flops.map(int));
        a.maybe("candlescope.bytes", totals.bytes.map(int));
    }
    // What it caused: of steps for several requests its share.
    a.maybe("candlescope.account.steps", record.step_count.map(int));
    a.maybe("candlescope.account.step_time", record.step_share_ns.map(seconds));
    a.maybe("candlescope.account.device_steps", record.device_step_count.map(int));
    a.maybe("candlescope.account.device_time", record.device_share_ns.map(seconds));
    let joules = |mj: Option<f64>| mj.map(|mj| mj / 1e3);
    a.maybe("candlescope.account.energy_joules", joules(record.energy_mj));
    a.maybe("candlescope.account.energy_low_joules", joules(record.energy_low_mj));
    a.maybe("candlescope.account.energy_high_joules", joules(record.energy_high_mj));
    if spans_omitted > 0 {
        // So that a reader of the trace can see that it is incomplete.
        a.put("candlescope.spans_omitted", int(spans_omitted));
    }
    a.maybe("candlescope.perturbed", record.perturbed);
    a.maybe("candlescope.outcome", record.outcome.map(|outcome| outcome.as_str()));
    let failed = record.outcome == Some(Outcome::Failed);
    if failed {
        // The conventions' word for an error of which no more is known.
        a.put("error.type", "_OTHER");
    }
    let name = format!("{} {}", record.operation, record.model);
    let time = (record.host_start, record.host_dur_ns);
    let mut span = finish(record.trace_id, record.span_id, record.parent_span_id, name, time, a, scope);
    span.parent_span_is_remote = record.parent_span_id.is_some();
    if failed {
        span.status = Status::error("");
    }
    span.events = SpanEvents::default();
    span.events.events = entries.iter().map(entered).chain(course.iter().map(decoded)).collect();
    span
}

/// Sums over several decode steps, for those that are not sent as spans.
fn decoded(group: &Group) -> Event {
    let mut a = Attributes(Vec::with_capacity(8));
    a.put("candlescope.decode.first", int(group.first));
    a.put("candlescope.decode.steps", int(group.steps));
    a.put("candlescope.decode.duration", seconds(group.total_ns));
    a.put("candlescope.decode.max_duration", seconds(group.max_ns));
    a.steps_on_gpu(StepsOnGpu::of(group.steps, group.gpu));
    Event::new("candlescope.decoded", system_time(group.start), a.0, 0)
}

fn entered(entry: &SpanRecord) -> Event {
    let attributes = vec![
        KeyValue::new("candlescope.duration", seconds(entry.host_dur_ns)),
        KeyValue::new("candlescope.seq", int(entry.seq)),
        KeyValue::new("thread.name", entry.thread.name.to_string()),
    ];
    Event::new("candlescope.entered", system_time(entry.host_start), attributes, 0)
}

fn finish(
    trace: TraceId,
    id: SpanId,
    parent: Option<SpanId>,
    name: String,
    (start, dur_ns): (HostNs, u64),
    attributes: Attributes,
    scope: &InstrumentationScope,
) -> SpanData {
    SpanData {
        span_context: context(trace, id),
        parent_span_id: parent_id(parent),
        parent_span_is_remote: false,
        span_kind: SpanKind::Internal,
        name: Cow::Owned(name),
        start_time: system_time(start),
        end_time: system_time(start.plus_ns(dur_ns)),
        attributes: attributes.0,
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: Status::Unset,
        instrumentation_scope: scope.clone(),
    }
}

/// Attributes of all spans of the run: service, host, process, GPU, driver, model.
pub(super) fn resource(run: &RunManifest, common: &Common) -> Resource {
    let mut facts: BTreeMap<String, Value> = BTreeMap::new();
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            facts.insert(key.to_string(), value);
        }
    };
    let environment = &run.environment;
    put("telemetry.sdk.name", Some("candlescope".into()));
    put("telemetry.sdk.language", Some("rust".into()));
    put("telemetry.sdk.version", Some(env!("CARGO_PKG_VERSION").into()));
    put("host.name", Some(run.host.clone().into()));
    put("host.arch", env_key::ARCH.raw(environment).and_then(value_of));
    put("os.type", env_key::OS.raw(environment).and_then(value_of));
    put("process.pid", env_key::PID.raw(environment).and_then(value_of));
    put("service.instance.id", Some(instance(run).into()));
    put("candlescope.run_id", Some(run.run_id.clone().into()));
    put("candlescope.rank", Some(i64::from(run.rank).into()));
    put("candlescope.gpu.driver", env_key::NVIDIA_DRIVER.raw(environment).and_then(value_of));
    put("candlescope.cuda.driver", env_key::CUDA_DRIVER.raw(environment).and_then(value_of));
    // Shows that steps are missing from a trace by design.
    put(
        "candlescope.schedule",
        option_key::SCHEDULE.raw(&run.options).filter(|s| s.is_object()).map(|s| s.to_string().into()),
    );
    for (key, field) in [("candlescope.gpu.name", "name"), ("candlescope.gpu.uuid", "uuid")] {
        let words = run.gpus().iter().filter_map(|gpu| gpu.get(field)?.as_str());
        let words: Vec<opentelemetry::StringValue> = words.map(|word| word.to_string().into()).collect();
        put(key, (!words.is_empty()).then(|| Value::Array(words.into())));
    }
    for (key, value) in &run.model {
        put(&format!("candlescope.model.{key}"), value_of(value));
    }
    // The user's resource attributes have precedence over detected ones.
    for (key, value) in &common.resource {
        put(key, Some(value.clone().into()));
    }
    put("service.name", Some(common.service_name.clone().into()));
    let attributes = facts.into_iter().map(|(key, value)| KeyValue::new(key, value));
    let schema = format!("https://opentelemetry.io/schemas/{SEMCONV_VERSION}");
    Resource::builder_empty().with_schema_url(attributes, schema).build()
}

/// What tells this process from others of its service. Prometheus' label `instance` comes from it: without one, the
/// counters of several processes would be one series. It stays the same throughout a session, and when a run is sent
/// later.
fn instance(run: &RunManifest) -> String {
    let process = env_key::PID.of(&run.environment).map(|pid| pid.to_string());
    let words = [run.host.clone(), process.unwrap_or_default(), run.rank.to_string(), run.run_id.clone()];
    words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(":")
}

/// A fact of the manifest as an attribute; lists and objects cannot be represented.
fn value_of(value: &serde_json::Value) -> Option<Value> {
    match value {
        serde_json::Value::Bool(b) => Some((*b).into()),
        serde_json::Value::String(s) if !s.is_empty() => Some(s.clone().into()),
        serde_json::Value::Number(n) => n.as_i64().map(Value::I64).or_else(|| n.as_f64().map(Value::F64)),
        _ => None,
    }
}
