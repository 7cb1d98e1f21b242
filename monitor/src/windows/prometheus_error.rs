//! Why a server's windows cannot be read.

use candlescope_core::RedactedUrl;

/// Why a server's windows cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "its messages say what the fields are")]
pub enum PrometheusError {
    /// The address is none of a Prometheus.
    #[error(
        "`{url}` is no address of Prometheus: give one with http:// or https:// and without `?`, such as http://localhost:9090"
    )]
    NoAddress { url: RedactedUrl },
    /// It does not answer.
    #[error("Prometheus at {url} does not answer: {why}; see whether it runs and the address is right")]
    Silent { url: RedactedUrl, why: String },
    /// It wants to know who asks.
    #[error(
        "{url} answers with status {status}: name the variable with its key with --api-key-env, or put user and password into the URL"
    )]
    NotAllowed { url: RedactedUrl, status: u16 },
    /// It answers with an error.
    #[error("Prometheus at {url} refuses a query: {why}{hint}")]
    Refused { url: RedactedUrl, why: String, hint: &'static str },
    /// The answer is none of Prometheus.
    #[error("what answers at {url} is no Prometheus: {why}; give the address at which its own pages are")]
    NoPrometheus {
        url: RedactedUrl,
        /// What is wrong with the answer.
        why: String,
    },
    /// It has none of candlescope's metrics.
    #[error(
        "Prometheus at {url} has no series candlescope_run_info{select} now: start the server with CANDLESCOPE=prometheus=9464 and \
         let Prometheus scrape it, or correct --select"
    )]
    NoSeries {
        url: RedactedUrl,
        /// The matchers, in braces.
        select: String,
    },
    /// The window that would be judged has too few values.
    #[error(
        "too few samples: no figure of {select} has values in {needed} of the {parts} parts of {every} s of the window, and \
         {needed} are needed; send it more requests, choose a longer --last, or scrape it at least every {scrape} s"
    )]
    TooFew {
        /// The programs: matchers in braces, or words for all.
        select: String,
        /// Parts with values that are needed.
        needed: usize,
        /// Parts of the window.
        parts: usize,
        /// Length of a part.
        every: i64,
        /// Seconds between scrapes that the parts need.
        scrape: i64,
    },
    /// No start of the server is known.
    #[error("no start of {select} in the last {days} days: hold it against an earlier time with --against 24h")]
    NoStart {
        /// The programs: matchers in braces, or words for all.
        select: String,
        /// Days that were looked at.
        days: i64,
    },
    /// The server has just started.
    #[error("the last start of {select} was {ago} s ago, and a window needs {needed} s: wait, and try again")]
    TooSoon {
        /// The programs: matchers in braces, or words for all.
        select: String,
        ago: i64,
        /// Seconds that it takes.
        needed: i64,
    },
    /// There is no time between the last start and the one before.
    #[error(
        "before the last start of {select}, the same run has no whole window of {window} s: choose a shorter --last, or an earlier \
         time with --against 24h"
    )]
    NothingBefore {
        /// The programs: matchers in braces, or words for all.
        select: String,
        /// Length of a window in seconds.
        window: i64,
    },
    /// The windows that were asked for make no sense.
    #[error("{0}")]
    Windows(String),
}
