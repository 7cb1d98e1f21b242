//! Why nothing can be watched.

use candlescope_core::RedactedUrl;
use std::io;
use std::path::PathBuf;

/// What was named cannot be watched, or the rows cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "its messages say what the fields are")]
pub enum MonitorError {
    /// The process is not there.
    #[error("{0}")]
    NoProcess(String),
    /// A GPU was named, and GPUs cannot be read.
    #[error("the GPU cannot be watched: {0}")]
    NoGpu(String),
    /// Nothing that serves metrics is at the address.
    #[error(
        "no metrics at {url}: {why}; a candlescope program serves them with CANDLESCOPE=prometheus=9464 or --prometheus 9464"
    )]
    NoMetrics {
        /// Where they were looked for.
        url: RedactedUrl,
        why: String,
    },
    /// The file with the rows cannot be written.
    #[error("cannot write {}: {cause}; free some space, or name another file with --csv", .path.display())]
    Rows { path: PathBuf, cause: io::Error },
}
