//! The session's own account, for an exporter that shows it.

use super::Aggregate;
use candlescope_core::SessionStats;
use std::time::{Duration, Instant};

/// Least time between two looks at the account, which takes locks.
const EVERY: Duration = Duration::from_millis(250);

/// Brings the account into the metrics, not too often.
#[derive(Debug, Default)]
pub(crate) struct Accountant {
    session: SessionStats,
    latest: Option<Instant>,
}

impl Accountant {
    /// Asks `session`.
    pub(crate) fn new(session: SessionStats) -> Self {
        Self { session, latest: None }
    }

    /// Brings it in if the latest look was a while ago.
    pub(crate) fn account(&mut self, aggregate: &mut Aggregate) {
        if self.latest.is_none_or(|at| at.elapsed() >= EVERY) {
            self.account_now(aggregate);
        }
    }

    /// Brings it in.
    pub(crate) fn account_now(&mut self, aggregate: &mut Aggregate) {
        self.latest = Some(Instant::now());
        if let Some(stats) = self.session.get() {
            aggregate.account(&stats);
        }
    }
}
