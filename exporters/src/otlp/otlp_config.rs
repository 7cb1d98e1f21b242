//! The user's settings for OTLP.

use super::headers::Headers;
use candlescope_core::RedactedUrl;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Settings of the [`OtlpExporter`](super::OtlpExporter) and the [`OtlpMetricsExporter`](super::OtlpMetricsExporter).
///
/// Settings that are not made are taken from the standard `OTEL_*` variables: `OTEL_EXPORTER_OTLP_ENDPOINT`,
/// `_PROTOCOL`, `_HEADERS`, `_TIMEOUT`, `_COMPRESSION`, `_CERTIFICATE`, `_CLIENT_CERTIFICATE`, `_CLIENT_KEY` and their
/// `_TRACES_` and `_METRICS_` forms, `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_METRIC_EXPORT_INTERVAL`,
/// `OTEL_METRIC_EXPORT_TIMEOUT`, `OTEL_TRACES_SAMPLER`, `OTEL_TRACES_SAMPLER_ARG`. Settings made here have precedence.
#[derive(Clone, Default)]
#[must_use]
pub struct OtlpConfig {
    pub(super) endpoint: Option<RedactedUrl>,
    pub(super) protocol: Option<OtlpProtocol>,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) timeout: Option<Duration>,
    pub(super) service_name: Option<String>,
    pub(super) resource: BTreeMap<String, String>,
    pub(super) gzip: Option<bool>,
    pub(super) ca_certificate: Option<PathBuf>,
    /// Our own certificate with its key.
    pub(super) client: Option<(PathBuf, PathBuf)>,
    pub(super) sampler: Option<OtlpSampler>,
    pub(super) limits: OtlpLimits,
    pub(super) interval: Option<Duration>,
}

impl OtlpConfig {
    /// The defaults, for the collector at `endpoint`, such as `http://localhost:4318` (port 4317 for gRPC). Over HTTP
    /// `/v1/traces` or `/v1/metrics` is added if there is no path. A user and password in it, and the values of its
    /// query, are used but never shown; gRPC cannot use them and needs a header instead. Without an endpoint
    /// ([`OtlpConfig::default`]) it is the one that the variables name, or the local collector.
    pub fn new(endpoint: impl Into<RedactedUrl>) -> Self {
        Self { endpoint: Some(endpoint.into()), ..Self::default() }
    }

    /// How messages travel. By default over HTTP.
    pub fn protocol(mut self, protocol: OtlpProtocol) -> Self {
        self.protocol = Some(protocol);
        self
    }

    /// One more header of every request, for example `authorization`. Its value is never shown.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Longest time that one export may take, retries included. By default 5 s instead of OpenTelemetry's 10 s, because
    /// ending a session takes at most 10 s and the exporter must report its result before that.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// `service.name`; by default `unknown_service:` and the program's name, as in OpenTelemetry.
    pub fn service_name(mut self, name: impl Into<String>) -> Self {
        self.service_name = Some(name.into());
        self
    }

    /// One more attribute of the resource; it replaces one of candlescope's own, such as `service.instance.id`, which is
    /// host, process, rank and run.
    pub fn resource(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.resource.insert(key.into(), value.into());
        self
    }

    /// Whether requests are compressed with gzip. Off by default: on the loopback interface it costs more than it
    /// saves.
    pub fn gzip(mut self, on: bool) -> Self {
        self.gzip = Some(on);
        self
    }

    /// Certificates, in PEM, of the authority that is trusted for `https` addresses, instead of the public ones.
    pub fn ca_certificate(mut self, file: impl Into<PathBuf>) -> Self {
        self.ca_certificate = Some(file.into());
        self
    }

    /// A certificate of our own and its key, both in PEM, for collectors that require client certificates.
    pub fn client_certificate(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.client = Some((certificate.into(), key.into()));
        self
    }

    /// Which traces are sent. By default all, except those whose caller does not record its trace.
    pub fn sampler(mut self, sampler: OtlpSampler) -> Self {
        self.sampler = Some(sampler);
        self
    }

    /// How much of traces is sent.
    pub fn limits(mut self, limits: OtlpLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Time between two exports of metrics, by default 60 s. The last one is made when the session ends.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = Some(interval);
        self
    }
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
            .field("client", &self.client)
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

/// Which traces are sent, by the rules of OpenTelemetry's samplers. Metrics and runs have all requests nevertheless.
#[derive(Debug, Clone, Copy, PartialEq)]
#[must_use]
pub struct OtlpSampler {
    pub(super) ratio: f64,
    pub(super) parent_based: bool,
}

impl OtlpSampler {
    /// Sends this share of the traces, from 0 to 1, chosen by their ids: `always_on` is 1, `always_off` 0,
    /// `traceidratio` anything between. A caller's decision has precedence, see
    /// [`parent_based`](OtlpSampler::parent_based).
    pub fn new(ratio: f64) -> Self {
        Self { ratio, parent_based: true }
    }

    /// Whether a caller's decision, the flag in its `traceparent`, has precedence over the ratio. It does by default.
    pub fn parent_based(mut self, on: bool) -> Self {
        self.parent_based = on;
        self
    }
}

impl Default for OtlpSampler {
    /// OpenTelemetry's `parentbased_always_on`.
    fn default() -> Self {
        Self::new(1.0)
    }
}

/// How much of traces is sent. What is left out is counted as dropped for
/// [`Limit`](candlescope_core::DropReason::Limit), and an attribute of the request's span has the number.
///
/// Trace stores are made for traces of tens to hundreds of spans, while a small model makes 400 intervals a token:
/// Jaeger struggles from 10,000 spans per trace on. Use Parquet for a complete run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct OtlpLimits {
    pub(super) max_depth: u32,
    pub(super) max_spans: usize,
    pub(super) detail_every: u64,
    pub(super) slow_request: Option<Duration>,
    pub(super) slow_max_spans: usize,
    pub(super) max_held: usize,
    pub(super) spans_per_second: u64,
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

    /// Levels below a step that are sent: 0 is steps alone, 3 reaches `decode/block[0]/attn/linear[0]`. 6 by default.
    pub fn max_depth(mut self, levels: u32) -> Self {
        self.max_depth = levels;
        self
    }

    /// Spans of one trace, 1,000 by default. If there are more, deeper ones are left out first, and within one level
    /// the later ones, so that what is sent is a tree.
    pub fn max_spans(mut self, spans: usize) -> Self {
        self.max_spans = spans;
        self
    }

    /// Every Nth decode step of a request is sent in full, beginning with the first; of the others only the step
    /// itself. 16 by default; 1 is every step, 0 none. Steps of a request are alike, so a few of them are enough.
    /// Prefill and everything else is always sent in full.
    pub fn detail_every(mut self, steps: u64) -> Self {
        self.detail_every = steps;
        self
    }

    /// Requests that take at least this long are sent with all their steps in full, up to
    /// [`slow_max_spans`](OtlpLimits::slow_max_spans). By default none are. With a threshold all spans of a request are
    /// kept in memory until it ends, or the first levels of them if they are more than twice `slow_max_spans`.
    pub fn slow_request(mut self, at_least: impl Into<Option<Duration>>) -> Self {
        self.slow_request = at_least.into();
        self
    }

    /// Spans of a slow request's trace, 10,000 by default.
    pub fn slow_max_spans(mut self, spans: usize) -> Self {
        self.slow_max_spans = spans;
        self
    }

    /// Spans kept in memory for all requests that have not ended, 100,000 by default. Beyond that, the request without
    /// a step for the longest time loses first its details and then everything.
    pub fn max_held(mut self, spans: usize) -> Self {
        self.max_held = spans;
        self
    }

    /// Spans a second in the long run, 2,000 by default; ten seconds' worth may go out at once. Beyond it requests
    /// are sent as one span each, with their sums and without their steps, and steps outside of requests not at all.
    /// Slow requests are sent in any case.
    pub fn spans_per_second(mut self, spans: u64) -> Self {
        self.spans_per_second = spans;
        self
    }
}
