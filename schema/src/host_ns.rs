//! Time on the host, as all records state it.

use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Nanoseconds since the Unix epoch on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HostNs(pub i64);

impl HostNs {
    /// The system clock's time now. Makes a system call: not for the hot path.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        HostNs(since.as_nanos() as i64)
    }

    /// This many nanoseconds later.
    #[must_use]
    #[inline]
    pub fn plus_ns(self, ns: u64) -> Self {
        HostNs(self.0.saturating_add(i64::try_from(ns).unwrap_or(i64::MAX)))
    }

    /// Nanoseconds from `earlier` to `self`; zero if `earlier` is later.
    pub fn since(self, earlier: HostNs) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }
}
