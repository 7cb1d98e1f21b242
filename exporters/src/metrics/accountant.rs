//! Updates metrics from the session's own account.

use super::Aggregate;
use candlescope_core::SessionStats;
use std::time::{Duration, Instant};

/// Shortest time between two reads of the account, which take locks.
const EVERY: Duration = Duration::from_millis(250);

/// Copies the account into the metrics, at a limited rate.
#[derive(Debug, Default)]
pub(crate) struct Accountant {
    session: SessionStats,
    latest: Option<Instant>,
}

impl Accountant {
    /// For the account of `session`.
    pub(crate) fn new(session: SessionStats) -> Self {
        Self { session, latest: None }
    }

    /// Copies it if the last read was long enough ago.
    pub(crate) fn account(&mut self, aggregate: &mut Aggregate) {
        if self.latest.is_none_or(|at| at.elapsed() >= EVERY) {
            self.account_now(aggregate);
        }
    }

    /// Copies it now.
    pub(crate) fn account_now(&mut self, aggregate: &mut Aggregate) {
        self.latest = Some(Instant::now());
        if let Some(stats) = self.session.get() {
            aggregate.account(&stats);
        }
    }
}
