//! Why no load could be put on a server.

use crate::prompts::DatasetError;
use candlescope_core::RedactedUrl;
use std::path::PathBuf;
use std::time::Duration;

/// The load could not begin. Once it has begun, what goes wrong is in the results.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "its messages say what the fields are")]
pub enum LoadError {
    /// The address is none.
    #[error("{url} is no address of a server: {why}; write http://HOST:PORT or https://HOST/v1")]
    Address {
        /// As given, without credentials.
        url: RedactedUrl,
        why: String,
    },
    /// An option that cannot be followed.
    #[error("{0}")]
    Option(String),
    /// The host is not found, nobody listens at the address, or TLS fails.
    #[error("no answer from {url}: {why}; is the server up, and is this its address?")]
    Unreachable {
        url: RedactedUrl,
        /// What was tried, and what came of it.
        why: String,
    },
    /// A first request was refused, so every other would be.
    #[error("{url} refused a first request with status {status}: {message}{remedy}")]
    Refused {
        url: RedactedUrl,
        status: u16,
        message: String,
        /// What to do, where it is known.
        remedy: &'static str,
    },
    /// A first request failed.
    #[error("a first request to {url} failed: {why}")]
    FirstRequest { url: RedactedUrl, why: String },
    /// The server does not say which model it has.
    #[error("{url} does not say which model it has ({why}): name it with --model")]
    NoModel {
        /// The address of its list of models.
        url: RedactedUrl,
        why: String,
    },
    /// Certificates cannot be used.
    #[error("cannot use {} for TLS: {why}", .path.display())]
    Certificates { path: PathBuf, why: String },
    /// The prompts cannot be had.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// The load was ended before it began.
    #[error("ended before the first measured request: nothing was recorded")]
    Stopped,
    /// The machine gives no threads.
    #[error("the threads that send requests cannot start: {0}")]
    Threads(#[from] std::io::Error),
    /// The server did not get ready.
    #[error("{url} refused every first request for {} s, the last one with status {status}: {message}", .waited.as_secs())]
    Busy {
        url: RedactedUrl,
        status: u16,
        message: String,
        /// For how long it was asked.
        waited: Duration,
    },
}
