//! What holds a run back, and what changing it would gain: [`analyze`].

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod analyse;
mod bottlenecks;
pub mod ledger;

pub use analyse::{AnalyzeOptions, Analyzed, analyze};
