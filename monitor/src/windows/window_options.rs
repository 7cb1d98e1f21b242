//! Which server is read, and in which windows.

use candlescope_core::RedactedUrl;
use std::fmt;
use std::time::Duration;

/// Earlier windows to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarlierWindows {
    /// Windows that end so long before this one, twice as long, and so on: 24 hours for the same time of other days.
    Earlier(Duration),
    /// Those right before the last start of the server.
    LastStart,
}

/// Which server's windows are read from which Prometheus.
#[derive(Clone)]
#[must_use]
pub struct WindowOptions {
    pub(super) url: RedactedUrl,
    pub(super) select: String,
    pub(super) last: Duration,
    pub(super) against: EarlierWindows,
    pub(super) windows: usize,
    pub(super) key: Option<String>,
    pub(super) timeout: Duration,
}

impl WindowOptions {
    /// The last half hour against the same of the 14 days before, of all candlescope programs that the Prometheus at `url`
    /// scrapes.
    pub fn new(url: impl Into<RedactedUrl>) -> Self {
        Self {
            url: url.into(),
            select: String::new(),
            last: Duration::from_secs(30 * 60),
            against: EarlierWindows::Earlier(Duration::from_secs(24 * 3600)),
            windows: 14,
            key: None,
            timeout: Duration::from_secs(30),
        }
    }

    /// Label matchers that tell the server apart, as in PromQL: `job="api",instance=~"10.0.0.*"`.
    pub fn select(self, matchers: impl Into<String>) -> Self {
        Self { select: matchers.into(), ..self }
    }

    /// Length of a window.
    pub fn last(self, last: Duration) -> Self {
        Self { last, ..self }
    }

    /// Which windows it is held against.
    pub fn against(self, against: EarlierWindows) -> Self {
        Self { against, ..self }
    }

    /// Most windows before the judged one (default 14); before a start there may be room for fewer.
    pub fn windows(self, windows: usize) -> Self {
        Self { windows, ..self }
    }

    /// Sent as `Authorization: Bearer`, and shown nowhere.
    pub fn key(self, key: impl Into<String>) -> Self {
        Self { key: Some(key.into()), ..self }
    }

    /// How long Prometheus may take for an answer (default 30 s).
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }
}

impl fmt::Debug for WindowOptions {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, select, last, against, windows, key, timeout } = self;
        let mut shown = f.debug_struct("WindowOptions");
        shown.field("url", url).field("select", select).field("last", last).field("against", against);
        shown.field("windows", windows).field("key", &key.as_ref().map(|_| "***")).field("timeout", timeout).finish()
    }
}
