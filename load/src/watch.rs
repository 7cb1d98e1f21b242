//! Watching a run, and ending it early.

use crate::level::Level;
use crate::results::LoadResults;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How far a stage is.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Progress {
    /// Number of the stage, from 0.
    pub stage: usize,
    /// Stages in all; absent in a sweep.
    pub stages: Option<usize>,
    /// Clients of the stage, or the requests a second that are to arrive.
    pub level: Level,
    /// Share of it that has been measured, 0 while it warms up.
    pub done: f64,
    /// Requests that ended, failures included.
    pub ended: u64,
    /// Those of them that failed; without those that this side gave up or could not send.
    pub failed: u64,
    /// Requests that have begun or arrived and not ended, those that wait here for room included.
    pub in_flight: u64,
}

/// Is told how a run goes on.
pub trait Watch: Sync {
    /// Some twenty times a second.
    fn progress(&self, _: &Progress) {}
    /// After each stage, with what there is so far.
    fn stage_ended(&self, _: &LoadResults) {}
}

/// For a run that nobody watches: whatever it is told, it does nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoWatch;

impl Watch for NoWatch {}

/// Ends a run early, from any thread: requests under way are given up, and what there is is kept.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// One that has not been used.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the run to end. A stage looks for that every 50 ms, the first requests before each of them.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was ended.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
