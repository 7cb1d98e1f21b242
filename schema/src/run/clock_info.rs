//! How ticks of the hot path became nanoseconds.

use serde::{Deserialize, Serialize};

/// The clock of the hot path, and how it relates to Unix time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct ClockInfo {
    /// For example `tsc` or `monotonic`.
    pub source: String,
    /// Ticks per second as calibrated.
    pub ticks_per_second: f64,
    /// Cost of one reading in nanoseconds, measured at start.
    pub read_ns: f64,
    /// Pairs of ticks and Unix time taken during the run.
    pub anchors: Vec<ClockAnchor>,
}

/// One simultaneous reading of the hot-path clock and the system clock.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Default)]
pub struct ClockAnchor {
    /// Hot-path clock, raw ticks.
    pub ticks: u64,
    /// Unix time in nanoseconds to which candlescope maps these ticks.
    pub mapped_ns: i64,
    /// Unix time in nanoseconds by the system clock at the same moment: the difference is the skew.
    pub system_ns: i64,
}
