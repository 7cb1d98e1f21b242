//! Why a request failed.

use serde::{Serialize, Serializer};
use std::fmt;

/// What went wrong, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FailureKind {
    /// No TCP connection to any of the server's addresses within 10 s each, or no TLS on it.
    Connect,
    /// The server answered with this status.
    Status(u16),
    /// The connection ended before the answer did.
    HungUp,
    /// The answer is not what the API says.
    Malformed,
    /// The stream had an error object in it.
    ErrorInStream,
    /// The answer ended without any output.
    Empty,
    /// The answer took longer than the time limit.
    Timeout,
    /// The stage's last measured requests had not ended when its patience did: their latencies are longer than what
    /// was seen of them.
    Unfinished,
    /// The load was ended meanwhile.
    Cancelled,
    /// This process may open no further file or socket, or this machine has no further port.
    NoSockets,
}

impl FailureKind {
    /// Whether it shows a server that is not there.
    pub(crate) fn is_absence(self) -> bool {
        matches!(self, Self::Connect | Self::HungUp)
    }

    /// Whether it is the load generator's doing and says nothing about the server.
    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Self::Cancelled | Self::NoSockets)
    }

    /// Whether it is what a server with too much work does.
    pub(crate) fn is_overload(self) -> bool {
        matches!(self, Self::Status(429 | 500..=599) | Self::HungUp | Self::Timeout | Self::Unfinished)
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect => f.write_str("connect"),
            Self::Status(code) => write!(f, "status_{code}"),
            Self::HungUp => f.write_str("hung_up"),
            Self::Malformed => f.write_str("malformed"),
            Self::ErrorInStream => f.write_str("error_in_stream"),
            Self::Empty => f.write_str("empty"),
            Self::Timeout => f.write_str("timeout"),
            Self::Unfinished => f.write_str("unfinished"),
            Self::Cancelled => f.write_str("cancelled"),
            Self::NoSockets => f.write_str("no_sockets"),
        }
    }
}

impl Serialize for FailureKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A failure with the words of whoever reported it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// What went wrong, written in results as one word, such as `hung_up` or `status_503`.
    pub kind: FailureKind,
    /// What was said; without credentials, and cut where it is long.
    pub message: String,
}

/// More than this of what somebody says is cut off.
const MOST_CHARS: usize = 512;

impl Failure {
    /// With the whole message: what is secret in it has to be found before it is cut.
    pub(crate) fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

/// As much of `text` as is kept, and whether that is all of it.
pub(crate) fn cut(text: String) -> String {
    match text.char_indices().nth(MOST_CHARS) {
        Some((end, _)) => format!("{}… (truncated)", &text[..end]),
        None => text,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.message)
    }
}
