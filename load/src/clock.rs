//! The one clock of a run: nanoseconds since it began.

use candlescope_core::HostNs;
use std::time::Instant;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    base: Instant,
    unix_ns: i64,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { base: Instant::now(), unix_ns: HostNs::now().0 }
    }

    /// Nanoseconds since the start.
    pub(crate) fn now(self) -> u64 {
        u64::try_from(self.base.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The start, in Unix nanoseconds.
    pub(crate) fn unix_ns(self) -> i64 {
        self.unix_ns
    }
}
