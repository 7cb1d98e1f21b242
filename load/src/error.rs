//! Why no load could be put on a server.

use crate::prompts::DatasetError;
use candlescope_core::RedactedUrl;
use std::path::PathBuf;
use std::time::Duration;

/// The load could not begin. Once it has begun, what goes wrong is in the results.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The address is none.
    #[error("{url} is no address of a server: {why}; write http://HOST:PORT or https://HOST/v1")]
    Address {
        /// As given, without credentials.
        url: RedactedUrl,
        /// What is wrong.
        why: String,
    },
    /// An option that cannot be followed.
    #[error("{0}")]
    Option(String),
    /// The host is not found, nobody listens at the address, or TLS fails.
    #[error("no answer from {url}: {why}; is the server up, and is this its address?")]
    Unreachable {
        /// The address.
        url: RedactedUrl,
        /// What was tried, and what came of it.
        why: String,
    },
    /// A first request was refused, so every other would be.
    #[error("{url} refused a first request with status {status}: {message}{remedy}")]
    Refused {
        /// The address.
        url: RedactedUrl,
        /// HTTP's.
        status: u16,
        /// The server's words.
        message: String,
        /// What to do, where it is known.
        remedy: &'static str,
    },
    /// A first request failed.
    #[error("a first request to {url} failed: {why}")]
    FirstRequest {
        /// The address.
        url: RedactedUrl,
        /// How.
        why: String,
    },
    /// The server does not say which model it has.
    #[error("{url} does not say which model it has ({why}): name it with --model")]
    NoModel {
        /// The address of its list of models.
        url: RedactedUrl,
        /// What it answered.
        why: String,
    },
    /// Certificates cannot be used.
    #[error("cannot use {} for TLS: {why}", .path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
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
        /// The address.
        url: RedactedUrl,
        /// HTTP's.
        status: u16,
        /// The server's words.
        message: String,
        /// For how long it was asked.
        waited: Duration,
    },
}
