//! Settings from the configuration, completed by the standard environment variables.

use super::headers::Headers;
use super::otlp_config::{OtlpConfig, OtlpProtocol, OtlpSampler};
use super::tls::{Tls, TlsError};
use candlescope_core::RedactedUrl;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// What kind of telemetry is sent. Each has its own variables and its own path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    Traces,
    Metrics,
}

impl Signal {
    fn path(self) -> &'static str {
        match self {
            Signal::Traces => "/v1/traces",
            Signal::Metrics => "/v1/metrics",
        }
    }

    /// Its word in the names of variables.
    fn word(self) -> &'static str {
        match self {
            Signal::Traces => "TRACES",
            Signal::Metrics => "METRICS",
        }
    }
}

/// Settings that do not depend on the transport.
#[derive(Debug, Clone)]
pub(super) struct Common {
    pub(super) service_name: String,
    pub(super) resource: BTreeMap<String, String>,
    pub(super) timeout: Duration,
    pub(super) sampler: OtlpSampler,
    /// Settings that cannot be applied, and what is used instead.
    pub(super) warnings: Vec<String>,
}

/// Settings as resolved.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) common: Common,
    pub(super) protocol: OtlpProtocol,
    pub(super) endpoint: RedactedUrl,
    pub(super) headers: Headers,
    pub(super) gzip: bool,
    /// Time between two exports of metrics.
    pub(super) interval: Duration,
    pub(super) tls: Tls,
}

/// The settings cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SettingsError {
    #[error("`{0}` is not the address of a collector: it should look like {1}")]
    Endpoint(RedactedUrl, &'static str),
    #[error(
        "{0}: the protocol `{1}` is not supported; use http/protobuf (usually port 4318) or grpc (usually port 4317)"
    )]
    Protocol(String, String),
    #[error(
        "gRPC needs the feature `otlp-grpc` of the crate candlescope, which this build lacks; enable it and rebuild, \
         or use http/protobuf (usually port 4318)"
    )]
    NoGrpc,
    #[error("{0}: `{1}` is not a number of milliseconds")]
    Milliseconds(String, String),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("{0}: the compression `{1}` is not supported; use gzip or none")]
    Compression(String, String),
    #[error("the sampler's ratio {0} is not from 0 to 1")]
    Ratio(String),
    #[error("{0}: `{1}` is not supported: metrics are sent as cumulative; set it to cumulative")]
    Temporality(String, String),
}

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

const DEFAULT_INTERVAL: Duration = Duration::from_secs(60);

/// The values of a variable, and their meanings.
const PROTOCOLS: &[(&str, OtlpProtocol)] =
    &[("http/protobuf", OtlpProtocol::HttpProtobuf), ("grpc", OtlpProtocol::Grpc)];
const COMPRESSIONS: &[(&str, bool)] = &[("gzip", true), ("none", false)];
const TEMPORALITIES: &[(&str, ())] = &[("cumulative", ())];

/// A variable that is set, and its value.
struct Variable {
    name: String,
    text: String,
}

/// The variables of one signal.
struct Variables<E> {
    signal: Signal,
    env: E,
}

impl<E: Fn(&str) -> Option<String>> Variables<E> {
    /// Set but empty counts as unset.
    fn get(&self, name: &str) -> Option<Variable> {
        let text = (self.env)(name)?.trim().to_string();
        (!text.is_empty()).then(|| Variable { name: name.to_string(), text })
    }

    /// A variable that applies to one signal only.
    fn of(&self, signal: Signal, name: &str) -> Option<Variable> {
        if self.signal == signal { self.get(name) } else { None }
    }

    /// The signal's own form of a variable of the exporter.
    fn own(&self, name: &str) -> Option<Variable> {
        self.get(&format!("OTEL_EXPORTER_OTLP_{}_{name}", self.signal.word()))
    }

    /// The general form of a variable of the exporter.
    fn general(&self, name: &str) -> Option<Variable> {
        self.get(&format!("OTEL_EXPORTER_OTLP_{name}"))
    }

    /// A variable of the exporter: the signal's own form has precedence over the general one.
    fn either(&self, name: &str) -> Option<Variable> {
        self.own(name).or_else(|| self.general(name))
    }
}

/// The program's setting, else that of a variable, parsed by `read`, else the default.
fn pick<T>(
    program: Option<T>,
    variable: Option<Variable>,
    read: impl Fn(&str) -> Option<T>,
    wrong: fn(String, String) -> SettingsError,
    default: T,
) -> Result<T, SettingsError> {
    match (program, variable) {
        (Some(value), _) => Ok(value),
        (None, Some(Variable { name, text })) => read(&text).ok_or_else(|| wrong(name, text)),
        (None, None) => Ok(default),
    }
}

fn word<T: Copy>(words: &[(&str, T)], text: &str) -> Option<T> {
    words.iter().find(|(word, _)| *word == text).map(|(_, meaning)| *meaning)
}

fn milliseconds(text: &str) -> Option<Duration> {
    text.parse().ok().map(Duration::from_millis)
}

/// This program's name, from its executable.
fn program() -> String {
    let program = std::env::current_exe().ok();
    program.as_deref().and_then(|p| p.file_name()).and_then(|n| n.to_str()).unwrap_or("rust").to_string()
}

impl Common {
    fn resolve<E: Fn(&str) -> Option<String>>(
        config: &OtlpConfig,
        program: &str,
        vars: &Variables<E>,
    ) -> Result<Self, SettingsError> {
        let timeout = vars.either("TIMEOUT").or_else(|| vars.of(Signal::Metrics, "OTEL_METRIC_EXPORT_TIMEOUT"));
        let mut warnings = Vec::new();
        let said = || vars.of(Signal::Traces, "OTEL_TRACES_SAMPLER");
        let sampler = config.sampler.unwrap_or_else(|| {
            said().map_or_else(OtlpSampler::default, |said| {
                sampler(&said, vars.get("OTEL_TRACES_SAMPLER_ARG"), &mut warnings)
            })
        });
        if !(0.0..=1.0).contains(&sampler.ratio) {
            return Err(SettingsError::Ratio(sampler.ratio.to_string()));
        }
        let mut resource = vars.get("OTEL_RESOURCE_ATTRIBUTES").map(|said| pairs(&said.text)).unwrap_or_default();
        resource.extend(config.resource.clone());
        // From highest to lowest precedence.
        let names = [
            config.service_name.clone(),
            config.resource.get("service.name").cloned(),
            vars.get("OTEL_SERVICE_NAME").map(|said| said.text),
            resource.get("service.name").cloned(),
        ];
        let service_name = names.into_iter().flatten().next().unwrap_or_else(|| format!("unknown_service:{program}"));
        let wrong = SettingsError::Milliseconds;
        let timeout = pick(config.timeout, timeout, milliseconds, wrong, DEFAULT_TIMEOUT)?;
        Ok(Self { service_name, resource, timeout, sampler, warnings })
    }

    /// For traces sent by an exporter other than ours, with this process's variables and name.
    pub(super) fn of_process(config: &OtlpConfig) -> Result<Self, SettingsError> {
        Self::resolve(
            config,
            &program(),
            &Variables { signal: Signal::Traces, env: |name: &str| std::env::var(name).ok() },
        )
    }
}

impl Settings {
    /// Completes the configuration by the variables, read through `env`. `program` is the executable's name.
    pub(super) fn resolve(
        config: &OtlpConfig,
        signal: Signal,
        program: &str,
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, SettingsError> {
        let vars = Variables { signal, env };
        let read = |text: &str| word(PROTOCOLS, text);
        let wrong = SettingsError::Protocol;
        let protocol = pick(config.protocol, vars.either("PROTOCOL"), read, wrong, OtlpProtocol::HttpProtobuf)?;
        if protocol == OtlpProtocol::Grpc && !cfg!(feature = "otlp-grpc") {
            return Err(SettingsError::NoGrpc);
        }
        // A backend that needs deltas would misread cumulative sums.
        let temporality = vars.of(Signal::Metrics, "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE");
        let read = |text: &str| word(TEMPORALITIES, &text.to_ascii_lowercase());
        pick(None, temporality, read, SettingsError::Temporality, ())?;
        let read = |text: &str| word(COMPRESSIONS, text);
        let gzip = pick(config.gzip, vars.either("COMPRESSION"), read, SettingsError::Compression, false)?;
        let interval = vars.of(Signal::Metrics, "OTEL_METRIC_EXPORT_INTERVAL");
        let wrong = SettingsError::Milliseconds;
        let interval = pick(config.interval, interval, milliseconds, wrong, DEFAULT_INTERVAL)?;
        let file = |said: Option<PathBuf>, name| said.or_else(|| vars.either(name).map(|said| said.text.into()));
        let (certificate, key) = config.client.clone().unzip();
        let headers = vars.either("HEADERS").map(|said| pairs(&said.text)).unwrap_or_default();
        // Of two with the same name, the later one is kept.
        let headers = headers.into_iter().chain(config.headers.clone());
        Ok(Self {
            endpoint: endpoint(config, protocol, &vars)?,
            common: Common::resolve(config, program, &vars)?,
            tls: Tls::read(
                file(config.ca_certificate.clone(), "CERTIFICATE").as_deref(),
                file(certificate, "CLIENT_CERTIFICATE").as_deref(),
                file(key, "CLIENT_KEY").as_deref(),
            )?,
            headers: Headers(headers.map(|(name, value)| (name.to_ascii_lowercase(), value)).collect()),
            protocol,
            gzip,
            interval,
        })
    }

    /// As [`resolve`](Settings::resolve), with this process's variables and name.
    pub(super) fn of_process(config: &OtlpConfig, signal: Signal) -> Result<Self, SettingsError> {
        Self::resolve(config, signal, &program(), |name| std::env::var(name).ok())
    }
}

fn endpoint<E: Fn(&str) -> Option<String>>(
    config: &OtlpConfig,
    protocol: OtlpProtocol,
    vars: &Variables<E>,
) -> Result<RedactedUrl, SettingsError> {
    let said = config.endpoint.as_ref().map(|endpoint| endpoint.expose().trim().to_string());
    let own = vars.own("ENDPOINT").map(|said| said.text);
    let general = vars.general("ENDPOINT").map(|said| said.text);
    let path = vars.signal.path();
    let (endpoint, example) = match protocol {
        OtlpProtocol::Grpc => {
            let example = "http://localhost:4317";
            (said.or(own).or(general).unwrap_or_else(|| example.into()), example)
        }
        OtlpProtocol::HttpProtobuf => {
            let example = "http://localhost:4318";
            let endpoint = match (said, own) {
                (Some(endpoint), _) => with_default_path(&endpoint, path),
                // The signal's own variable is used as it is, the general one is a base URL.
                (None, Some(endpoint)) => endpoint,
                (None, None) => with_path(general.as_deref().unwrap_or(example), path),
            };
            (endpoint, example)
        }
    };
    let usable = is_http_url(&endpoint);
    let endpoint = RedactedUrl::new(endpoint);
    if usable { Ok(endpoint) } else { Err(SettingsError::Endpoint(endpoint, example)) }
}

/// An unknown value becomes a warning and the default, as the standard demands: these variables may be meant for
/// another SDK in the process, which knows more samplers.
fn sampler(said: &Variable, argument: Option<Variable>, warnings: &mut Vec<String>) -> OtlpSampler {
    let Variable { name, text } = said;
    let (parent_based, root) = text.strip_prefix("parentbased_").map_or((false, text.as_str()), |root| (true, root));
    let ratio = match (root, argument) {
        ("always_on", _) | ("traceidratio", None) => 1.0,
        ("always_off", _) => 0.0,
        ("traceidratio", Some(Variable { name, text })) => {
            let ratio = text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
            ratio.unwrap_or_else(|| {
                warnings.push(format!("{name}: `{text}` is not a ratio from 0 to 1; 1 is used"));
                1.0
            })
        }
        _ => {
            warnings.push(format!(
                "{name}: the sampler `{text}` is not supported, parentbased_always_on is used; there are always_on, \
                 always_off and traceidratio, and each of them with parentbased_ before it"
            ));
            return OtlpSampler::default();
        }
    };
    OtlpSampler { ratio, parent_based }
}

fn is_http_url(text: &str) -> bool {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    rest.is_some_and(|r| !r.is_empty() && !r.starts_with('/')) && ureq::post(text).request_url().is_ok()
}

fn with_default_path(endpoint: &str, path: &str) -> String {
    let place = &endpoint[..query_start(endpoint)];
    let has_path =
        place.split_once("://").and_then(|(_, rest)| rest.split_once('/')).is_some_and(|(_, p)| !p.is_empty());
    if has_path { endpoint.to_string() } else { with_path(endpoint, path) }
}

/// The address with `path` appended to its own path, before the query.
fn with_path(endpoint: &str, path: &str) -> String {
    let (place, query) = endpoint.split_at(query_start(endpoint));
    format!("{}{path}{query}", place.trim_end_matches('/'))
}

fn query_start(endpoint: &str) -> usize {
    endpoint.find(['?', '#']).unwrap_or(endpoint.len())
}

/// `k1=v1,k2=v2` with percent-encoded values, as in W3C Baggage. Anything that is not a pair is skipped.
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
        resolve_for(Signal::Traces, config, vars)
    }

    fn resolve_for(
        signal: Signal,
        config: &OtlpConfig,
        vars: &[(&'static str, &str)],
    ) -> Result<Settings, SettingsError> {
        Settings::resolve(config, signal, "app", |name| {
            vars.iter().find(|(n, _)| *n == name).map(|(_, v)| v.to_string())
        })
    }

    #[test]
    fn without_anything_the_local_collector_is_used() {
        let s = resolve(&OtlpConfig::default(), &[]).unwrap();
        assert_eq!(s.endpoint.expose(), "http://localhost:4318/v1/traces");
        assert_eq!(s.common.service_name, "unknown_service:app");
        assert_eq!((s.protocol, s.common.timeout, s.gzip), (OtlpProtocol::HttpProtobuf, DEFAULT_TIMEOUT, false));
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
        assert_eq!(s.endpoint.expose(), "http://collector:4318/base/v1/traces");
        assert_eq!(s.headers["authorization"], "Basic abc");
        assert_eq!(s.headers["x-tenant"], "t1");
        assert_eq!(s.headers.len(), 2);
        assert_eq!(s.common.timeout, Duration::from_millis(1500));
        assert!(s.gzip);
        assert_eq!(s.common.service_name, "chatbot");
        assert_eq!(s.common.resource["deployment.environment.name"], "prod");

        let own = [("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t:1/as/is"), vars[0]];
        assert_eq!(resolve(&OtlpConfig::default(), &own).unwrap().endpoint.expose(), "http://t:1/as/is");
    }

    #[test]
    fn samplers_are_those_of_opentelemetry() {
        let sampler = |word, argument| {
            let vars = [("OTEL_TRACES_SAMPLER", word), ("OTEL_TRACES_SAMPLER_ARG", argument)];
            let s = resolve(&OtlpConfig::default(), &vars).unwrap().common.sampler;
            (s.ratio, s.parent_based)
        };
        assert_eq!(resolve(&OtlpConfig::default(), &[]).unwrap().common.sampler, OtlpSampler::default());
        assert_eq!(sampler("always_on", "0.5"), (1.0, false));
        assert_eq!(sampler("always_off", ""), (0.0, false));
        assert_eq!(sampler("traceidratio", "0.25"), (0.25, false));
        assert_eq!(sampler("traceidratio", ""), (1.0, false));
        assert_eq!(sampler("parentbased_always_on", ""), (1.0, true));
        assert_eq!(sampler("parentbased_always_off", ""), (0.0, true));
        assert_eq!(sampler("parentbased_traceidratio", "0.01"), (0.01, true));
        // Another SDK in the process may know it.
        let told = |vars: &[(&'static str, &str)]| {
            let s = resolve(&OtlpConfig::default(), vars).unwrap().common;
            assert_eq!(s.sampler.ratio, 1.0);
            s.warnings.concat()
        };
        assert!(told(&[("OTEL_TRACES_SAMPLER", "parentbased_jaeger_remote")]).contains("traceidratio"));
        let told = told(&[("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "10%")]);
        assert!(told.contains("OTEL_TRACES_SAMPLER_ARG") && told.contains("10%"), "{told}");
        let mine = OtlpSampler::new(0.5).parent_based(false);
        let config = OtlpConfig::default().sampler(mine);
        assert_eq!(resolve(&config, &[("OTEL_TRACES_SAMPLER", "always_off")]).unwrap().common.sampler, mine);
    }

    #[test]
    fn what_the_program_says_wins() {
        let config = OtlpConfig::new("http://mine:9")
            .header("X-Tenant", "mine")
            .timeout(Duration::from_secs(1))
            .service_name("mine")
            .gzip(false)
            .protocol(OtlpProtocol::HttpProtobuf);
        let vars = [
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://theirs:1"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=theirs"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "9999"),
            ("OTEL_SERVICE_NAME", "theirs"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ];
        let s = resolve(&config, &vars).unwrap();
        assert_eq!(s.endpoint.expose(), "http://mine:9/v1/traces");
        assert_eq!(s.headers["x-tenant"], "mine");
        assert_eq!((s.protocol, s.common.timeout, s.gzip), (OtlpProtocol::HttpProtobuf, Duration::from_secs(1), false));
        assert_eq!(s.common.service_name, "mine");
        assert_eq!(
            resolve(&OtlpConfig::new("http://h:1/v1/traces"), &[]).unwrap().endpoint.expose(),
            "http://h:1/v1/traces"
        );
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let bad = |name, value| resolve(&OtlpConfig::default(), &[(name, value)]).unwrap_err().to_string();
        assert!(bad("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4317").contains("localhost:4317"));
        assert!(bad("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json").contains("http/protobuf"));
        assert!(bad("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "soon").contains("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT"));
        assert!(bad("OTEL_EXPORTER_OTLP_COMPRESSION", "brotli").contains("gzip"));
        assert!(bad("OTEL_EXPORTER_OTLP_CERTIFICATE", "/no/such/ca.pem").contains("/no/such/ca.pem"));
        // A file that exists but has other content.
        let this = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let error = resolve(&OtlpConfig::default(), &[("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", this)]).unwrap_err();
        assert!(error.to_string().contains("no certificate in PEM"), "{error}");
        assert!(bad("OTEL_EXPORTER_OTLP_CLIENT_KEY", this).contains("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"));
        let config = OtlpConfig::default().sampler(OtlpSampler::new(1.5));
        let error = resolve(&config, &[]).unwrap_err().to_string();
        assert!(error.contains("1.5"), "{error}");
        assert_eq!(
            resolve(&OtlpConfig::new("http://"), &[]).unwrap_err(),
            SettingsError::Endpoint("http:/v1/traces".into(), "http://localhost:4318")
        );
    }

    #[test]
    fn a_query_stays_behind_the_path() {
        let said = |url: &str| resolve(&OtlpConfig::new(url), &[]).unwrap().endpoint.expose().to_string();
        assert_eq!(said("http://h:1?api_key=a/b"), "http://h:1/v1/traces?api_key=a/b");
        assert_eq!(said("http://h:1/own?k=v"), "http://h:1/own?k=v");
        let general = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://h:1/base/?k=v")];
        let s = resolve(&OtlpConfig::default(), &general).unwrap();
        assert_eq!(s.endpoint.expose(), "http://h:1/base/v1/traces?k=v");
    }

    #[test]
    fn metrics_have_variables_of_their_own() {
        let vars = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:1/t"),
            ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "X-Of=metrics"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-of=all"),
            ("OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", "gzip"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "250"),
            ("OTEL_METRIC_EXPORT_TIMEOUT", "40"),
        ];
        let metrics = |vars| resolve_for(Signal::Metrics, &OtlpConfig::default(), vars);
        let s = metrics(&vars).unwrap();
        assert_eq!((s.endpoint.expose(), s.headers["x-of"].as_str()), ("http://c:1/v1/metrics", "metrics"));
        assert_eq!(
            (s.gzip, s.interval, s.common.timeout),
            (true, Duration::from_millis(250), Duration::from_millis(40))
        );
        let traces = resolve(&OtlpConfig::default(), &vars).unwrap();
        assert_eq!((traces.endpoint.expose(), traces.headers["x-of"].as_str()), ("http://traces:1/t", "all"));
        assert_eq!(
            (traces.gzip, traces.common.timeout),
            (false, DEFAULT_TIMEOUT),
            "metrics' variables are of metrics only"
        );
        assert_eq!(metrics(&[]).unwrap().interval, DEFAULT_INTERVAL);
        let own = [("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://m:1/as/is"), vars[0]];
        assert_eq!(metrics(&own).unwrap().endpoint.expose(), "http://m:1/as/is");
        let delta = [("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta")];
        assert!(metrics(&delta).unwrap_err().to_string().contains("set it to cumulative"));
        assert!(resolve(&OtlpConfig::default(), &delta).is_ok(), "traces have no temporality");
    }

    #[cfg(feature = "otlp-grpc")]
    #[test]
    fn grpc_has_a_port_of_its_own_and_no_path() {
        let grpc = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
        let s = resolve(&OtlpConfig::default(), &[grpc]).unwrap();
        assert_eq!((s.protocol, s.endpoint.expose()), (OtlpProtocol::Grpc, "http://localhost:4317"));
        assert_eq!(resolve(&OtlpConfig::new("http://c:1"), &[grpc]).unwrap().endpoint.expose(), "http://c:1");
        let mixed = [grpc, ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/protobuf")];
        let metrics = resolve_for(Signal::Metrics, &OtlpConfig::default(), &mixed).unwrap();
        assert_eq!(metrics.protocol, OtlpProtocol::HttpProtobuf);
        let error = resolve(&OtlpConfig::new("localhost:4317"), &[grpc]).unwrap_err().to_string();
        assert!(error.contains("http://localhost:4317"), "{error}");
    }

    #[cfg(not(feature = "otlp-grpc"))]
    #[test]
    fn without_the_feature_grpc_is_refused_by_name() {
        let config = OtlpConfig::default().protocol(OtlpProtocol::Grpc);
        let by_config = resolve(&config, &[]).unwrap_err().to_string();
        let by_variable = resolve(&OtlpConfig::default(), &[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]).unwrap_err();
        assert!(by_config.contains("`otlp-grpc`"), "{by_config}");
        assert_eq!(by_config, by_variable.to_string());
    }
}
