//! What holds a run back, and what changing it would gain: [`analyze`]. A part of candlescope, which may change with
//! every release.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod analyse;
mod bottlenecks;
pub mod ledger;
mod replay_disagrees;

pub use analyse::{AnalyzeOptions, Analyzed, analyze};
pub use bottlenecks::STREAMED_BYTES;
