//! What a user decides about OTLP, and what the standard environment variables say where he decides nothing.

use opentelemetry_otlp::Compression;
use std::collections::BTreeMap;
use std::time::Duration;

/// Settings of the [`OtlpExporter`](super::OtlpExporter).
///
/// What is `None` or empty is taken from the standard `OTEL_*` variables: `OTEL_EXPORTER_OTLP_ENDPOINT`, `_HEADERS`, `_TIMEOUT`,
/// `_COMPRESSION`, `_PROTOCOL` and their `_TRACES_` forms, `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`. What is set here wins.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct OtlpConfig {
    /// The collector's address, such as `http://localhost:4318` (the default). `/v1/traces` is added where there is no path.
    pub endpoint: Option<String>,
    /// Headers of every request, for example `authorization`.
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
    /// How much of each trace is sent.
    pub limits: OtlpLimits,
}

impl OtlpConfig {
    /// The defaults, for the collector at `endpoint`.
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self { endpoint: Some(endpoint.into()), ..Self::default() }
    }
}

/// How much of each trace is sent. What is left out is counted as dropped for
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
    /// a threshold all spans of a request are kept in memory until it ends.
    pub slow_request: Option<Duration>,
    /// Spans of a slow request's trace.
    pub slow_max_spans: usize,
    /// Spans kept in memory for requests that have not ended, all together. Over it the request that was quiet the longest loses its
    /// details first and then all it has.
    pub max_held: usize,
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
        }
    }
}

/// Settings as resolved.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) endpoint: String,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) timeout: Duration,
    pub(super) service_name: String,
    pub(super) resource: BTreeMap<String, String>,
    pub(super) compression: Option<Compression>,
}

/// The settings cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SettingsError {
    #[error("`{0}` is no address of a collector: it should look like http://localhost:4318")]
    Endpoint(String),
    #[error(
        "{0}: the protocol `{1}` is not supported; set it to http/protobuf and name the collector's HTTP port, usually 4318"
    )]
    Protocol(&'static str, String),
    #[error("{0}: `{1}` is not a number of milliseconds")]
    Timeout(&'static str, String),
    #[error("{0}: the compression `{1}` is not supported; use gzip or none")]
    Compression(&'static str, String),
}

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

impl Settings {
    /// Puts the variables, read through `env`, below what the configuration says. `program` is the executable's name.
    pub(super) fn resolve(
        config: &OtlpConfig,
        program: &str,
        env: impl Fn(&'static str) -> Option<String>,
    ) -> Result<Self, SettingsError> {
        // Set but empty counts as unset.
        let get = |name| env(name).map(|v| v.trim().to_string()).filter(|v| !v.is_empty()).map(|v| (name, v));
        let either = |signal, general| get(signal).or_else(|| get(general));

        if let Some((name, protocol)) = either("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
            && config.endpoint.is_none()
            && protocol != "http/protobuf"
        {
            return Err(SettingsError::Protocol(name, protocol));
        }
        let endpoint = match (&config.endpoint, get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")) {
            (Some(endpoint), _) => with_default_path(endpoint.trim()),
            // The signal's own variable is taken as it is, the general one is a base.
            (None, Some((_, endpoint))) => endpoint,
            (None, None) => {
                let base = get("OTEL_EXPORTER_OTLP_ENDPOINT").map(|(_, base)| base);
                format!("{}/v1/traces", base.as_deref().unwrap_or("http://localhost:4318").trim_end_matches('/'))
            }
        };
        if !is_http_url(&endpoint) {
            return Err(SettingsError::Endpoint(endpoint));
        }
        let timeout = match (config.timeout, either("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"))
        {
            (Some(timeout), _) => timeout,
            (None, Some((name, text))) => {
                text.parse().map(Duration::from_millis).map_err(|_| SettingsError::Timeout(name, text))?
            }
            (None, None) => DEFAULT_TIMEOUT,
        };
        let compression = match config.gzip {
            Some(on) => on.then_some(Compression::Gzip),
            None => match either("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION") {
                None => None,
                Some((_, word)) if word == "none" => None,
                Some((_, word)) if word == "gzip" => Some(Compression::Gzip),
                Some((name, word)) => return Err(SettingsError::Compression(name, word)),
            },
        };
        let mut headers = either("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
            .map(|(_, list)| pairs(&list))
            .unwrap_or_default();
        headers.extend(config.headers.iter().map(|(k, v)| (k.to_ascii_lowercase(), v.clone())));
        let mut resource = get("OTEL_RESOURCE_ATTRIBUTES").map(|(_, list)| pairs(&list)).unwrap_or_default();
        resource.extend(config.resource.clone());
        let service_name = config
            .service_name
            .clone()
            .or_else(|| config.resource.get("service.name").cloned())
            .or_else(|| get("OTEL_SERVICE_NAME").map(|(_, name)| name))
            .or_else(|| resource.get("service.name").cloned())
            .unwrap_or_else(|| format!("unknown_service:{program}"));
        Ok(Self { endpoint, headers, timeout, service_name, resource, compression })
    }
}

fn is_http_url(text: &str) -> bool {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    rest.is_some_and(|r| !r.is_empty() && !r.starts_with('/'))
        && opentelemetry_http::Request::post(text).body(()).is_ok()
}

fn with_default_path(endpoint: &str) -> String {
    let has_path =
        endpoint.split_once("://").and_then(|(_, rest)| rest.split_once('/')).is_some_and(|(_, p)| !p.is_empty());
    if has_path { endpoint.to_string() } else { format!("{}/v1/traces", endpoint.trim_end_matches('/')) }
}

/// `k1=v1,k2=v2` with percent-encoded values, as W3C Baggage writes it. What is no pair is passed over.
fn pairs(list: &str) -> BTreeMap<String, String> {
    list.split(',')
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| (key.trim().to_string(), percent_decoded(value.trim())))
        .filter(|(key, _)| !key.is_empty())
        .collect()
}

fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let code = text.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (byte, code) {
            (b'%', Some(code)) => {
                out.push(code);
                at += 3;
            }
            _ => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(config: &OtlpConfig, vars: &[(&'static str, &str)]) -> Result<Settings, SettingsError> {
        Settings::resolve(config, "app", |name| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| v.to_string()))
    }

    #[test]
    fn without_anything_the_local_collector_is_used() {
        let s = resolve(&OtlpConfig::default(), &[]).unwrap();
        assert_eq!(s.endpoint, "http://localhost:4318/v1/traces");
        assert_eq!(s.service_name, "unknown_service:app");
        assert_eq!((s.timeout, s.compression), (DEFAULT_TIMEOUT, None));
    }

    #[test]
    fn variables_count_and_the_signals_own_come_first() {
        let vars = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/base/"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Basic%20abc, x-tenant = t1,nonsense"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "1500"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_SERVICE_NAME", "chatbot"),
            ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=prod,service.name=other"),
        ];
        let s = resolve(&OtlpConfig::default(), &vars).unwrap();
        assert_eq!(s.endpoint, "http://collector:4318/base/v1/traces");
        assert_eq!(s.headers["authorization"], "Basic abc");
        assert_eq!(s.headers["x-tenant"], "t1");
        assert_eq!(s.headers.len(), 2);
        assert_eq!(s.timeout, Duration::from_millis(1500));
        assert_eq!(s.compression, Some(Compression::Gzip));
        assert_eq!(s.service_name, "chatbot");
        assert_eq!(s.resource["deployment.environment.name"], "prod");

        let own = [("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t:1/as/is"), vars[0]];
        assert_eq!(resolve(&OtlpConfig::default(), &own).unwrap().endpoint, "http://t:1/as/is");
    }

    #[test]
    fn what_the_program_says_wins() {
        let mut config = OtlpConfig::new("http://mine:9");
        config.headers.insert("X-Tenant".into(), "mine".into());
        config.timeout = Some(Duration::from_secs(1));
        config.service_name = Some("mine".into());
        config.gzip = Some(false);
        let vars = [
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://theirs:1"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=theirs"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "9999"),
            ("OTEL_SERVICE_NAME", "theirs"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ];
        let s = resolve(&config, &vars).unwrap();
        assert_eq!(s.endpoint, "http://mine:9/v1/traces");
        assert_eq!(s.headers["x-tenant"], "mine");
        assert_eq!((s.timeout, s.compression), (Duration::from_secs(1), None));
        assert_eq!(s.service_name, "mine");
        assert_eq!(resolve(&OtlpConfig::new("http://h:1/v1/traces"), &[]).unwrap().endpoint, "http://h:1/v1/traces");
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let bad = |name, value| resolve(&OtlpConfig::default(), &[(name, value)]).unwrap_err().to_string();
        assert!(bad("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4317").contains("localhost:4317"));
        assert!(bad("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc").contains("http/protobuf"));
        assert!(bad("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "soon").contains("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT"));
        assert!(bad("OTEL_EXPORTER_OTLP_COMPRESSION", "brotli").contains("gzip"));
        assert_eq!(
            resolve(&OtlpConfig::new("http://"), &[]).unwrap_err(),
            SettingsError::Endpoint("http:/v1/traces".into())
        );
    }
}
