//! The session's own account, for an exporter that a session has taken.

use super::Aggregate;
use candlescope_core::Stats;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Least time between two looks at the account, which takes locks.
const EVERY: Duration = Duration::from_millis(250);

type Source = Box<dyn Fn() -> Stats + Send>;

/// Where an exporter of metrics gets the session's own account from: loss, every exporter's records, overhead. The
/// exporter is part of the session before there is a session to ask, so it is told afterwards.
#[derive(Clone, Default)]
pub struct SessionStats(Arc<Mutex<Option<Source>>>);

impl std::fmt::Debug for SessionStats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionStats")
    }
}

impl SessionStats {
    /// Shows what `stats` says, usually `move || handle.stats()`. Called on the exporter's thread a few times a second.
    pub fn with_stats(&self, stats: impl Fn() -> Stats + Send + 'static) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(stats));
    }

    /// Lets go of the session, which the source holds on to.
    pub(crate) fn end(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn read(&self) -> Option<Stats> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|stats| stats())
    }
}

/// Brings the account into the metrics, not too often.
#[derive(Debug, Default)]
pub(crate) struct Accountant {
    latest: Option<Instant>,
}

impl Accountant {
    /// Brings it in if the latest look was a while ago.
    pub(crate) fn account(&mut self, aggregate: &mut Aggregate, source: &SessionStats) {
        if self.latest.is_none_or(|at| at.elapsed() >= EVERY) {
            self.account_now(aggregate, source);
        }
    }

    /// Brings it in.
    pub(crate) fn account_now(&mut self, aggregate: &mut Aggregate, source: &SessionStats) {
        self.latest = Some(Instant::now());
        if let Some(stats) = source.read() {
            aggregate.account(&stats);
        }
    }
}
