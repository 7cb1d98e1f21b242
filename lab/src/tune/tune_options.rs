//! What is tuned.

use super::goal::Goal;
use crate::suites::LmOptions;
use std::time::Duration;

/// Points that are measured unless told otherwise.
const POINTS: usize = 10;
/// Time that one batch may take, in both its passes together.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// Which batches are looked at, for what, and how much may be measured.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TuneOptions {
    /// The model, the device and the request, as the suite `throughput` takes them; its batches are not used.
    pub lm: LmOptions,
    /// The smallest batch looked at, in sequences; at least 1, and measured first.
    pub start: u64,
    /// The largest batch looked at, itself included; measured second, unless not even the smallest fits.
    pub end: u64,
    /// The metric by which batches are ranked, and the limits that they have to keep.
    pub goal: Goal,
    /// The most batches that are measured: 10.
    pub points: usize,
    /// Time that one batch may take: 20 s.
    pub time_limit: Duration,
    /// Exactly this many repetitions of a batch in each pass.
    pub runs: Option<u32>,
}

impl TuneOptions {
    /// Batches from `start` to `end` of the request that `lm` has for the suite `throughput`.
    pub fn new(lm: LmOptions, (start, end): (u64, u64), goal: Goal) -> Self {
        Self { lm, start, end, goal, points: POINTS, time_limit: TIME_LIMIT, runs: None }
    }

    /// Sets the most batches that are measured, at least two.
    #[must_use]
    pub fn points(self, points: usize) -> Self {
        Self { points: points.max(2), ..self }
    }

    /// Sets the time that one batch may take.
    #[must_use]
    pub fn time_limit(self, time_limit: Duration) -> Self {
        Self { time_limit, ..self }
    }

    /// Sets the number of repetitions of a batch in each pass, or lets the rules of the engine decide.
    #[must_use]
    pub fn runs(self, runs: Option<u32>) -> Self {
        Self { runs, ..self }
    }

    /// Tokens of each output.
    pub fn output(&self) -> u64 {
        self.lm.throughput.output as u64
    }
}
