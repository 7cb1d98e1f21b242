//! The one clock of a run: nanoseconds since it began.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    base: Instant,
    unix_ns: i64,
}

impl Clock {
    pub(super) fn start() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        Self { base: Instant::now(), unix_ns: i64::try_from(unix).unwrap_or(i64::MAX) }
    }

    /// Nanoseconds since the start.
    pub(super) fn now(self) -> u64 {
        u64::try_from(self.base.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The start, in Unix nanoseconds.
    pub(super) fn unix_ns(self) -> i64 {
        self.unix_ns
    }
}
