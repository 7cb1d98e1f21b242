//! Why a case was not repeated any more.

use serde::{Deserialize, Serialize};

/// Why a case was not repeated any more, in one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopReason {
    /// The 95 % interval of its median is narrow enough.
    IntervalNarrow,
    /// Its samples hardly deviate.
    DeviationSmall,
    /// More samples would not change how much they deviate.
    NoiseSettled,
    /// More samples would bring no new values.
    EntropySettled,
    /// It has the samples that were asked for.
    RunsReached,
    /// Its time was up.
    TimeLimit,
    /// There was not enough memory.
    OutOfMemory,
    /// It was not tried: what it needs is more than there is.
    Refused,
    /// Preparing it, a repetition or its recording failed, for another reason than memory.
    Failed,
    /// Somebody stopped the measurement. The case can be gone on with.
    Cancelled,
}

impl StopReason {
    /// As tables have it, for example `interval_narrow`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::IntervalNarrow => "interval_narrow",
            Self::DeviationSmall => "deviation_small",
            Self::NoiseSettled => "noise_settled",
            Self::EntropySettled => "entropy_settled",
            Self::RunsReached => "runs_reached",
            Self::TimeLimit => "time_limit",
            Self::OutOfMemory => "out_of_memory",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// As a report says it.
    pub const fn words(self) -> &'static str {
        match self {
            Self::IntervalNarrow => "the 95 % interval of the median was narrow enough",
            Self::DeviationSmall => "samples hardly deviated",
            Self::NoiseSettled => "more samples would not have changed how much they deviate",
            Self::EntropySettled => "more samples would have brought no new values",
            Self::RunsReached => "all samples asked for were taken",
            Self::TimeLimit => "the time limit was reached",
            Self::OutOfMemory => "out of memory",
            Self::Refused => "not tried, as it needs more than there is",
            Self::Failed => "a repetition failed",
            Self::Cancelled => "the measurement was stopped",
        }
    }
}
