//! How much time and memory a query may take: a question of one line can go on without end, or hold whatever a machine
//! has.

use candlescope_reader::limits::{Exceeded, Limit, ReadLimits};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What one query may take, and has taken.
#[derive(Debug)]
pub(super) struct Budget {
    limits: ReadLimits,
    began: Instant,
    rows: AtomicU64,
    bytes: AtomicU64,
    over: OnceLock<Exceeded>,
}

impl Budget {
    pub(super) fn new(limits: &ReadLimits) -> Self {
        let (rows, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { limits: limits.clone(), began: Instant::now(), rows, bytes, over: OnceLock::new() }
    }

    /// Whether there is time left.
    pub(super) fn in_time(&self) -> bool {
        let is_late = self.began.elapsed() > Duration::from_secs(self.limits.get(Limit::QuerySeconds));
        !is_late || self.reached(Limit::QuerySeconds)
    }

    /// Loads so many rows more; whether it may.
    pub(super) fn load(&self, rows: usize) -> bool {
        self.add(&self.rows, rows as u64, Limit::QueryRows) && self.in_time()
    }

    /// Holds so many bytes more; whether it may.
    pub(super) fn hold(&self, bytes: usize) -> bool {
        self.add(&self.bytes, bytes as u64, Limit::QueryBytes)
    }

    /// Holds so many bytes no more.
    pub(super) fn let_go(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    /// The limit that was reached first.
    pub(super) fn over(&self) -> Option<Exceeded> {
        self.over.get().copied()
    }

    /// The same, for whoever was refused something.
    pub(super) fn exceeded(&self) -> Exceeded {
        self.over().unwrap_or_else(|| self.limits.reached(Limit::QueryRows))
    }

    fn add(&self, to: &AtomicU64, more: u64, limit: Limit) -> bool {
        let now = to.fetch_add(more, Ordering::Relaxed).saturating_add(more);
        now <= self.limits.get(limit) || self.reached(limit)
    }

    fn reached(&self, limit: Limit) -> bool {
        self.over.get_or_init(|| self.limits.reached(limit));
        false
    }
}
