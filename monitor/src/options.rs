//! What is watched.

use std::time::Duration;

/// What a [`Sampler`](crate::Sampler) looks at. Without any process or endpoint, all candlescope programs of this user.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct MonitorOptions {
    pub(crate) pids: Vec<u32>,
    pub(crate) endpoints: Vec<String>,
    pub(crate) gpus: Vec<String>,
    pub(crate) timeout: Duration,
}

impl Default for MonitorOptions {
    fn default() -> Self {
        Self { pids: Vec::new(), endpoints: Vec::new(), gpus: Vec::new(), timeout: Duration::from_secs(1) }
    }
}

impl MonitorOptions {
    /// Everything that is there.
    pub fn new() -> Self {
        Self::default()
    }

    /// Watches these processes, and of the programs that are found, only theirs.
    pub fn pids(mut self, pids: impl IntoIterator<Item = u32>) -> Self {
        self.pids.extend(pids);
        self
    }

    /// Watches the programs that serve metrics at these addresses: `HOST:PORT`, `PORT` of this machine, or a URL.
    pub fn endpoints<I: Into<String>>(mut self, addresses: impl IntoIterator<Item = I>) -> Self {
        self.endpoints.extend(addresses.into_iter().map(Into::into));
        self
    }

    /// Watches these GPUs only, by UUID or NVML's index.
    pub fn gpus<I: Into<String>>(mut self, gpus: impl IntoIterator<Item = I>) -> Self {
        self.gpus.extend(gpus.into_iter().map(Into::into));
        self
    }

    /// Sets how long a program may take to answer (default 1 s). One that takes longer has no figures in that period.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Whether something was named: then watching ends with it.
    pub fn names_something(&self) -> bool {
        !self.pids.is_empty() || !self.endpoints.is_empty()
    }
}
