//! How call stacks were sampled.

use serde::{Deserialize, Serialize};

/// How call stacks were sampled, and what became of the samples. What the sampler could see stands in the environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct StackAccount {
    /// Source of the samples: `perf`, `signals`.
    pub source: String,
    /// Samples delivered, those of time off the CPU included.
    pub samples: u64,
    /// Samples that were taken and lost.
    pub lost: u64,
    /// Samples that could not wait for the end of their step, and so have no interval.
    pub unplaced: u64,
    /// Threads that were sampled.
    pub threads: u64,
    /// Why sampling failed or ended early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
