//! Brings spans to the collector: one request at a time, on the calling thread, within a deadline.
//!
//! The HTTP client is ureq instead of reqwest, which would start a runtime and a thread of its own: here everything that happens while
//! sending happens on the exporter's thread, so all of it can be kept out of the application's telemetry.

use super::config::Settings;
use async_trait::async_trait;
use opentelemetry::Context;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, RetryPolicy, WithExportConfig, WithHttpConfig};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use prost::Message;
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::io::Read;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};
use tracing::dispatcher::{self, Dispatch};

/// Longest answer that is read. A collector says nothing or a sentence.
const MAX_ANSWER: u64 = 64 * 1024;

/// Why spans did not arrive, and what may help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum SendError {
    #[error("cannot reach it: {0}; is a collector listening there?")]
    Unreachable(String),
    #[error("it answered with status {0}{1}")]
    Refused(u16, String),
    #[error("it answered with something that is not OTLP; is it a collector's HTTP port (usually 4318)?")]
    NotOtlp,
    #[error("no time was left to send")]
    NoTime,
    #[error("the request could not be made: {0}")]
    Client(String),
}

/// How the latest export ended. Returned through here because opentelemetry-otlp reports neither causes nor partial success.
#[derive(Debug)]
struct Exchange {
    deadline: Instant,
    outcome: Option<Result<u64, SendError>>,
}

#[derive(Debug)]
pub(super) struct Transport {
    exporter: opentelemetry_otlp::SpanExporter,
    exchange: Arc<Mutex<Exchange>>,
}

impl Transport {
    /// Connects to nothing yet.
    pub(super) fn new(settings: &Settings, resource: &Resource) -> Result<Self, SendError> {
        let exchange = Arc::new(Mutex::new(Exchange { deadline: Instant::now(), outcome: None }));
        let client = Client {
            agent: ureq::AgentBuilder::new().redirects(0).build(),
            headers: settings.headers.clone(),
            exchange: exchange.clone(),
        };
        let mut builder = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(&settings.endpoint)
            .with_timeout(settings.timeout)
            .with_headers(HashMap::new())
            // The client retries itself, so that it can keep to a deadline.
            .with_retry_policy(RetryPolicy::disabled())
            .with_http_client(client);
        if let Some(compression) = settings.compression {
            builder = builder.with_compression(compression);
        }
        let exporter = quietly(|| builder.build()).map_err(|e| SendError::Client(e.to_string()))?;
        let mut transport = Self { exporter, exchange };
        transport.set_resource(resource);
        Ok(transport)
    }

    /// From here on spans belong to this resource.
    pub(super) fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }

    /// Sends spans until they have arrived or `deadline` is over; returns how many the collector took but rejected.
    pub(super) fn send(&self, spans: Vec<SpanData>, deadline: Instant) -> Result<u64, SendError> {
        *self.exchange.lock().unwrap_or_else(PoisonError::into_inner) = Exchange { deadline, outcome: None };
        let result = quietly(|| {
            let export = pin!(self.exporter.export(spans));
            // The client blocks, so there is nothing to wait for.
            match export.poll(&mut std::task::Context::from_waker(Waker::noop())) {
                Poll::Ready(result) => result.map_err(|e| SendError::Client(e.to_string())),
                Poll::Pending => Err(SendError::Client("the client did not finish".into())),
            }
        });
        match self.exchange.lock().unwrap_or_else(PoisonError::into_inner).outcome.take() {
            Some(outcome) => outcome,
            None => result.map(|()| 0),
        }
    }
}

/// Runs `f` without telemetry of its own, whatever subscriber or OpenTelemetry bridge the application has: exporting must not make
/// more to export.
fn quietly<T>(f: impl FnOnce() -> T) -> T {
    let _suppressed = Context::enter_telemetry_suppressed_scope();
    dispatcher::with_default(&Dispatch::none(), f)
}

#[derive(Debug)]
struct Client {
    agent: ureq::Agent,
    headers: BTreeMap<String, String>,
    exchange: Arc<Mutex<Exchange>>,
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let deadline = self.exchange.lock().unwrap_or_else(PoisonError::into_inner).deadline;
        let outcome = self.deliver(&request, deadline);
        let status = match &outcome {
            Ok(_) => 200,
            Err(SendError::Refused(status, _)) => *status,
            Err(_) => 599,
        };
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner).outcome = Some(outcome);
        Ok(Response::builder().status(status).body(Bytes::new())?)
    }
}

/// What one attempt led to.
enum Attempt {
    Done(Result<u64, SendError>),
    /// Try again, after this long if the collector said so.
    Again(SendError, Option<Duration>),
}

impl Client {
    fn deliver(&self, request: &Request<Bytes>, deadline: Instant) -> Result<u64, SendError> {
        let mut backoff = Backoff::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(SendError::NoTime);
            }
            match self.attempt(request, left) {
                Attempt::Done(outcome) => return outcome,
                Attempt::Again(error, asked) => {
                    let wait = backoff.next(asked);
                    if wait >= deadline.saturating_duration_since(Instant::now()) {
                        return Err(error);
                    }
                    std::thread::sleep(wait);
                }
            }
        }
    }

    fn attempt(&self, request: &Request<Bytes>, timeout: Duration) -> Attempt {
        let mut post = self.agent.post(&request.uri().to_string()).timeout(timeout);
        for (name, value) in request.headers() {
            // The crate adds the environment's headers to the request; what the program says goes before them.
            if let Ok(value) = value.to_str()
                && !self.headers.contains_key(name.as_str())
            {
                post = post.set(name.as_str(), value);
            }
        }
        for (name, value) in &self.headers {
            post = post.set(name, value);
        }
        match post.send_bytes(request.body()) {
            Ok(answer) => Attempt::Done(accepted(answer)),
            Err(ureq::Error::Status(status, answer)) => {
                let asked = answer.header("retry-after").and_then(|s| s.trim().parse().ok()).map(Duration::from_secs);
                let error = SendError::Refused(status, reason(answer));
                // The statuses that OTLP says to retry.
                match status {
                    429 | 502 | 503 | 504 => Attempt::Again(error, asked),
                    _ => Attempt::Done(Err(error)),
                }
            }
            Err(ureq::Error::Transport(error)) => {
                let fault = SendError::Unreachable(error.to_string());
                match error.kind() {
                    ureq::ErrorKind::BadStatus | ureq::ErrorKind::BadHeader => Attempt::Done(Err(SendError::NotOtlp)),
                    ureq::ErrorKind::InvalidUrl | ureq::ErrorKind::UnknownScheme => Attempt::Done(Err(fault)),
                    _ => Attempt::Again(fault, None),
                }
            }
        }
    }
}

/// Reads a success: how many spans were rejected all the same.
fn accepted(answer: ureq::Response) -> Result<u64, SendError> {
    if answer.status() != 200 {
        // 204 and the like say nothing more; a redirect is no place to follow with somebody's headers.
        return match answer.status() {
            201..=299 => Ok(0),
            status => Err(SendError::Refused(status, String::new())),
        };
    }
    let mut body = Vec::new();
    let read = answer.into_reader().take(MAX_ANSWER).read_to_end(&mut body);
    read.map_err(|e| SendError::Unreachable(e.to_string()))?;
    let message = ExportTraceServiceResponse::decode(body.as_slice()).map_err(|_| SendError::NotOtlp)?;
    let rejected = message.partial_success.map_or(0, |partial| partial.rejected_spans);
    Ok(u64::try_from(rejected).unwrap_or(0))
}

/// What a refusal says, as far as it is a line of text.
fn reason(answer: ureq::Response) -> String {
    let mut text = String::new();
    let read = answer.into_reader().take(200).read_to_string(&mut text);
    let line = text.lines().next().unwrap_or_default().trim();
    let printable = read.is_ok() && !line.is_empty() && !line.contains(|c: char| c.is_control());
    if printable { format!(" ({line})") } else { String::new() }
}

/// Waiting times between attempts: doubling, with some disorder so that many processes do not come back at once.
#[derive(Debug)]
struct Backoff {
    next: Duration,
    disorder: u64,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(5);

    fn new() -> Self {
        // Any number will do that differs between processes.
        let seed =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64);
        Self { next: Self::FIRST, disorder: seed ^ (u64::from(std::process::id()) << 32) }
    }

    /// The next wait, at least what the collector asked for.
    fn next(&mut self, asked: Option<Duration>) -> Duration {
        self.disorder = self.disorder.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let base = self.next;
        self.next = (base * 2).min(Self::LONGEST);
        let share = (self.disorder >> 33) as f64 / f64::from(1u32 << 31);
        base.mul_f64(1.0 + 0.25 * share).max(asked.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sending_makes_no_telemetry_of_its_own() {
        use tracing_subscriber::prelude::*;

        #[derive(Clone, Default)]
        struct Seen(Arc<std::sync::atomic::AtomicU64>);
        impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Seen {
            fn on_event(&self, _: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
                self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        }
        let seen = Seen::default();
        let say = || tracing::error!("said while sending");
        tracing::subscriber::with_default(tracing_subscriber::registry().with(seen.clone()), || {
            say();
            quietly(|| {
                say();
                assert!(Context::current().is_telemetry_suppressed());
            });
            assert!(!Context::current().is_telemetry_suppressed());
            say();
        });
        assert_eq!(seen.0.load(std::sync::atomic::Ordering::Relaxed), 2);
    }

    #[test]
    fn waits_double_up_to_a_bound_and_obey_the_collector() {
        let mut backoff = Backoff::new();
        let waits: Vec<Duration> = (0..10).map(|_| backoff.next(None)).collect();
        for (n, wait) in waits.iter().enumerate() {
            let base = (Backoff::FIRST * 2u32.pow(n as u32)).min(Backoff::LONGEST);
            assert!(*wait >= base && *wait <= base.mul_f64(1.26), "{n}: {wait:?} for {base:?}");
        }
        assert_eq!(Backoff::new().next(Some(Duration::from_secs(7))), Duration::from_secs(7));
    }
}
