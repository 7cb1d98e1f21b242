//! What a user decides about OTLP.

use super::headers::Headers;
use candlescope_core::RedactedUrl;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Settings of the [`OtlpExporter`](super::OtlpExporter) and the [`OtlpMetricsExporter`](super::OtlpMetricsExporter).
///
/// What is `None` or empty is taken from the standard `OTEL_*` variables: `OTEL_EXPORTER_OTLP_ENDPOINT`, `_PROTOCOL`, `_HEADERS`,
/// `_TIMEOUT`, `_COMPRESSION`, `_CERTIFICATE`, `_CLIENT_CERTIFICATE`, `_CLIENT_KEY` and their `_TRACES_` and `_METRICS_` forms,
/// `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_METRIC_EXPORT_INTERVAL`, `OTEL_METRIC_EXPORT_TIMEOUT`, `OTEL_TRACES_SAMPLER`,
/// `OTEL_TRACES_SAMPLER_ARG`. What is set here wins.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct OtlpConfig {
    /// The collector's address, such as `http://localhost:4318` (the default; port 4317 for gRPC). Over HTTP `/v1/traces` or
    /// `/v1/metrics` is added where there is no path. A user and a password in it, and the values of its query, are
    /// used and never shown; gRPC has no use for them, there a header is needed.
    pub endpoint: Option<RedactedUrl>,
    /// How messages travel. By default over HTTP.
    pub protocol: Option<OtlpProtocol>,
    /// Headers of every request, for example `authorization`. Their values are never shown.
    pub headers: BTreeMap<String, String>,
    /// Longest time that one export may take, retries included. By default 5 s instead of OpenTelemetry's 10 s, because ending a session
    /// takes at most 10 s and the exporter must be heard of before that.
    pub timeout: Option<Duration>,
    /// `service.name`; by default `unknown_service:` and the program's name, as OpenTelemetry has it.
    pub service_name: Option<String>,
    /// Further attributes of the resource.
    pub resource: BTreeMap<String, String>,
    /// Whether requests are compressed with gzip. Off by default: on the loopback interface it costs more than it saves.
    pub gzip: Option<bool>,
    /// Certificates, in PEM, of the authority that is trusted for `https` addresses, instead of the public ones.
    pub ca_certificate: Option<PathBuf>,
    /// A certificate of our own, in PEM, for collectors that want to know who calls. Needs its key.
    pub client_certificate: Option<PathBuf>,
    /// The key of that certificate, in PEM.
    pub client_key: Option<PathBuf>,
    /// Which traces are sent. By default all but those of callers who do not record theirs.
    pub sampler: Option<OtlpSampler>,
    /// How much is sent of traces.
    pub limits: OtlpLimits,
    /// Time between two exports of metrics, by default 60 s. The last one is made when the session ends.
    pub interval: Option<Duration>,
}

impl std::fmt::Debug for OtlpConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OtlpConfig")
            .field("endpoint", &self.endpoint)
            .field("protocol", &self.protocol)
            .field("headers", &Headers(self.headers.clone()))
            .field("timeout", &self.timeout)
            .field("service_name", &self.service_name)
            .field("resource", &self.resource)
            .field("gzip", &self.gzip)
            .field("ca_certificate", &self.ca_certificate)
            .field("client_certificate", &self.client_certificate)
            .field("client_key", &self.client_key)
            .field("sampler", &self.sampler)
            .field("limits", &self.limits)
            .field("interval", &self.interval)
            .finish()
    }
}

/// How messages travel to the collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OtlpProtocol {
    /// Protobuf in HTTP requests.
    HttpProtobuf,
    /// gRPC. Needs the feature `otlp-grpc`.
    Grpc,
}

/// Which traces are sent, as OpenTelemetry's samplers of the same names decide it. Metrics and runs have all requests nevertheless.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OtlpSampler {
    /// Share of the traces that are sent, from 0 to 1, chosen by their ids: `always_on` is 1, `always_off` 0, `traceidratio` what is
    /// between.
    pub ratio: f64,
    /// Whether a caller's decision, the flag of its `traceparent`, goes before the ratio.
    pub parent_based: bool,
}

impl Default for OtlpSampler {
    /// OpenTelemetry's `parentbased_always_on`.
    fn default() -> Self {
        Self { ratio: 1.0, parent_based: true }
    }
}

impl OtlpConfig {
    /// The defaults, for the collector at `endpoint`.
    pub fn new(endpoint: impl Into<RedactedUrl>) -> Self {
        Self { endpoint: Some(endpoint.into()), ..Self::default() }
    }
}

/// How much is sent of traces. What is left out is counted as dropped for
/// [`Limit`](candlescope_core::DropReason::Limit), and said on the request's span.
///
/// Trace stores are made for traces of tens to hundreds of spans, while a small model makes 400 intervals a token: Jaeger struggles
/// from 10,000 spans a trace on. The whole of a run belongs into Parquet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct OtlpLimits {
    /// Levels below a step that are sent: 0 is steps alone, 3 reaches `decode/block[0]/attn/linear[0]`.
    pub max_depth: u32,
    /// Spans of one trace. Where there are more, deeper ones go first and of one level the later ones, so that what is sent is a tree.
    pub max_spans: usize,
    /// Every Nth decode step of a request is sent in full, beginning with the first; of the others only the step itself. 1 is every step,
    /// 0 none. Steps of a request are alike, so a few of them say what there is to say. Prefill and everything else is always sent in full.
    pub detail_every: u64,
    /// Requests that take at least this long are sent with all their steps in full, up to `slow_max_spans`. By default none are. With
    /// a threshold all spans of a request are kept in memory until it ends, or the first levels of them if they are more than twice
    /// `slow_max_spans`.
    pub slow_request: Option<Duration>,
    /// Spans of a slow request's trace.
    pub slow_max_spans: usize,
    /// Spans kept in memory for requests that have not ended, all together. Over it the request that was quiet the longest loses its
    /// details first and then all it has.
    pub max_held: usize,
    /// Spans a second in the long run; ten seconds' worth may go out at once. Beyond it requests are sent as one span each, with their
    /// sums and without their steps, and steps outside of requests not at all. Slow requests are sent in any case.
    pub spans_per_second: u64,
}

impl Default for OtlpLimits {
    fn default() -> Self {
        Self {
            max_depth: 6,
            max_spans: 1_000,
            detail_every: 16,
            slow_request: None,
            slow_max_spans: 10_000,
            max_held: 100_000,
            spans_per_second: 2_000,
        }
    }
}

impl OtlpLimits {
    /// No limit at all: for tests and very short runs.
    pub fn none() -> Self {
        Self {
            max_depth: u32::MAX,
            max_spans: usize::MAX,
            detail_every: 1,
            slow_request: None,
            slow_max_spans: usize::MAX,
            max_held: usize::MAX,
            spans_per_second: u64::MAX,
        }
    }
}
