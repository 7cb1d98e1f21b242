//! One attempt to send a message to the OpenTelemetry collector, and its result: types that HTTP and gRPC share.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use std::time::Duration;

/// A message to be sent.
#[derive(Debug, Clone)]
pub(super) enum Message {
    Traces(ExportTraceServiceRequest),
    Metrics(ExportMetricsServiceRequest),
}

/// Why a message did not arrive, and what may be done about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum SendError {
    #[error("cannot reach it: {0}; is a collector listening there?")]
    Unreachable(String),
    /// The message itself is the reason, so the next one may be accepted.
    #[error("it answered with status {0}{1}")]
    Unwanted(String, String),
    #[error("it answered with status {0}{1}")]
    Refused(String, String),
    #[error("it answered with something that is not OTLP; is it a collector's {0}?")]
    NotOtlp(&'static str),
    #[error("no time was left to send")]
    NoTime,
    #[error("the request could not be made: {0}")]
    Client(String),
    #[error("it failed: {0}")]
    Exporter(String),
}

impl SendError {
    /// The same error, with texts that come from elsewhere passed through `f`.
    pub(super) fn map(self, f: impl Fn(String) -> String) -> Self {
        match self {
            Self::Unreachable(text) => Self::Unreachable(f(text)),
            Self::Unwanted(status, said) => Self::Unwanted(status, f(said)),
            Self::Refused(status, said) => Self::Refused(status, f(said)),
            Self::Client(text) => Self::Client(f(text)),
            Self::Exporter(text) => Self::Exporter(f(text)),
            Self::NotOtlp(_) | Self::NoTime => self,
        }
    }
}

/// The result of one attempt.
#[derive(Debug)]
pub(super) enum Attempt {
    /// No further attempt. On success, the number of items that arrived but were rejected.
    Done(Result<u64, SendError>),
    /// Try again, after this time if the collector asked for it.
    Again(SendError, Option<Duration>),
}

/// The reason in a refusal, if it is a line of text.
pub(super) fn reason(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default().trim();
    let printable = !line.is_empty() && !line.contains(|c: char| c.is_control());
    if printable { format!(" ({})", line.chars().take(200).collect::<String>()) } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_quoted_as_far_as_they_are_a_line_of_text() {
        assert_eq!(reason(" too old \nsecond line"), " (too old)");
        assert_eq!(reason("\u{1b}[31mred"), "");
        assert_eq!(reason(&"x".repeat(1_000)).len(), 203);
    }
}
