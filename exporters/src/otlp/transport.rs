//! Sends messages to the OpenTelemetry collector: one at a time, on the calling thread, within a deadline.
//!
//! [`http`](super::otlp_http) and [`grpc`](super::otlp_grpc) send single messages; this module has what they share, so
//! that both treat a failing collector in the same way. Neither needs a runtime of the application or starts a thread
//! that outlives the exporter's, so everything can be kept out of the application's telemetry.
//!
//! `opentelemetry-otlp` can replace it for traces ([`with_span_exporter`](super::OtlpExporter::with_span_exporter)). It
//! is not the default, because that crate (0.33) lacks what a run's account needs:
//!
//! - How many spans or points of a message a collector rejected. It writes them to its log and calls the export a
//!   success.
//! - A way to end an export that is under way. The SDK's processors wait for it without a limit of their own.
//! - `OTEL_EXPORTER_OTLP_CERTIFICATE` and related variables, which it does not read.
//! - Metrics that were aggregated elsewhere: the fields of the SDK's `ResourceMetrics` are private, so only the SDK's
//!   own instruments can fill one.

use super::attempt::{Attempt, Message, SendError};
use super::headers::Headers;
use super::otlp_config::OtlpProtocol;
#[cfg(feature = "otlp-grpc")]
use super::otlp_grpc::Grpc;
use super::otlp_http::Http;
use super::settings::Settings;
use candlescope_core::RedactedUrl;
use candlescope_core::redacted_url::scrub;
use opentelemetry::Context;
use std::time::{Duration, Instant};
use tracing::dispatcher::{self, Dispatch};

#[derive(Debug)]
enum Delivery {
    Http(Http),
    #[cfg(feature = "otlp-grpc")]
    Grpc(Box<Grpc>),
}

#[derive(Debug)]
pub(super) struct Transport {
    way: Delivery,
    endpoint: RedactedUrl,
    headers: Headers,
}

impl Transport {
    /// Connects to nothing yet.
    pub(super) fn new(settings: &Settings) -> Result<Self, SendError> {
        let way = match settings.protocol {
            OtlpProtocol::HttpProtobuf => Delivery::Http(Http::new(settings)?),
            #[cfg(feature = "otlp-grpc")]
            OtlpProtocol::Grpc => Delivery::Grpc(Box::new(Grpc::new(settings)?)),
            #[cfg(not(feature = "otlp-grpc"))]
            OtlpProtocol::Grpc => return Err(SendError::Client(super::settings::SettingsError::NoGrpc.to_string())),
        };
        Ok(Self { way, endpoint: settings.endpoint.clone(), headers: settings.headers.clone() })
    }

    /// Sends a message, with retries, until it has arrived or `deadline` is over; returns how many of its items the
    /// collector rejected.
    pub(super) fn send(&mut self, message: Message, deadline: Instant) -> Result<u64, SendError> {
        let sent = quietly(|| match &mut self.way {
            Delivery::Http(http) => {
                let post = http.prepare(message)?;
                until(deadline, |left| http.attempt(&post, left))
            }
            #[cfg(feature = "otlp-grpc")]
            Delivery::Grpc(grpc) => until(deadline, |left| grpc.attempt(&message, left)),
        });
        sent.map_err(|error| error.map(|text| self.scrubbed(&text)))
    }

    /// A message of a library or a collector, without credentials that it may repeat.
    fn scrubbed(&self, text: &str) -> String {
        scrub(&self.endpoint.scrub(text), self.headers.secrets())
    }
}

/// Attempts with growing pauses, as long as there is time.
fn until(deadline: Instant, mut attempt: impl FnMut(Duration) -> Attempt) -> Result<u64, SendError> {
    let mut backoff = Backoff::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(SendError::NoTime);
        }
        match attempt(left) {
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

/// Runs `f` without telemetry of its own, whatever subscriber or OpenTelemetry bridge the application has: exporting
/// must not create more data to export.
pub(super) fn quietly<T>(f: impl FnOnce() -> T) -> T {
    let _suppressed = Context::enter_telemetry_suppressed_scope();
    dispatcher::with_default(&Dispatch::none(), f)
}

/// Waiting times between attempts: doubling, with random jitter so that many processes do not retry at once.
#[derive(Debug)]
struct Backoff {
    next: Duration,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(5);

    fn new() -> Self {
        Self { next: Self::FIRST }
    }

    /// The next wait, at least what the collector asked for.
    fn next(&mut self, asked: Option<Duration>) -> Duration {
        let base = self.next;
        self.next = (base * 2).min(Self::LONGEST);
        base.mul_f64(1.0 + 0.25 * fastrand::f64()).max(asked.unwrap_or_default())
    }
}

/// How long no attempt is made for a collector that could not be reached, so that retries do not take all of the
/// thread's time.
#[derive(Debug, Default)]
pub(super) struct Pause {
    until: Option<Instant>,
    length: Duration,
}

impl Pause {
    const LONGEST: Duration = Duration::from_secs(30);

    pub(super) fn is_on(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    pub(super) fn lengthen(&mut self, now: Instant) {
        self.length = (self.length * 2).clamp(Duration::from_secs(1), Self::LONGEST);
        self.until = Some(now + self.length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

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

    #[test]
    fn a_collector_that_asks_for_more_time_than_there_is_gets_none() {
        let started = Instant::now();
        let mut attempts = 0;
        let outcome = until(started + Duration::from_secs(30), |_| {
            attempts += 1;
            Attempt::Again(SendError::NoTime, Some(Duration::from_secs(u64::MAX)))
        });
        assert_eq!((outcome, attempts), (Err(SendError::NoTime), 1));
        assert!(started.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn pauses_get_longer_up_to_a_bound_and_end() {
        let now = Instant::now();
        let mut pause = Pause::default();
        assert!(!pause.is_on(now));
        let lengths: Vec<u64> = (0..7)
            .map(|_| {
                pause.lengthen(now);
                pause.length.as_secs()
            })
            .collect();
        assert_eq!(lengths, [1, 2, 4, 8, 16, 30, 30]);
        assert!(pause.is_on(now + Duration::from_secs(29)));
        assert!(!pause.is_on(now + Duration::from_secs(30)));
    }
}
