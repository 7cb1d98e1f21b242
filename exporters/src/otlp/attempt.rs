//! One attempt to bring a message to the collector, and what it led to: what HTTP and gRPC have in common.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use std::time::Duration;

/// What is sent.
#[derive(Debug, Clone)]
pub(super) enum Message {
    Traces(ExportTraceServiceRequest),
    Metrics(ExportMetricsServiceRequest),
}

/// Why a message did not arrive, and what may help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum SendError {
    #[error("cannot reach it: {0}; is a collector listening there?")]
    Unreachable(String),
    /// What was sent is the reason, so the next message may fare better.
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
    /// The same with the words of others as `f` has them.
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

/// What one attempt led to.
#[derive(Debug)]
pub(super) enum Attempt {
    /// Nothing more to do. Of what arrived so many were rejected all the same.
    Done(Result<u64, SendError>),
    /// Try again, after this long if the collector said so.
    Again(SendError, Option<Duration>),
}

/// What a refusal says, as far as it is a line of text.
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
