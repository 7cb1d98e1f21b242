//! The batch that serves a goal best: predicted, measured where it matters, and told with the reason why measuring
//! stopped.
//!
//! ```text
//! prediction (roofline: dimensions, peaks) ─┐
//! points measured so far ───────────────────┴─► forecast (prediction corrected by what was measured)
//!                                                    │
//! goal (metric, service level) ──────────────────────┴─► search (which batch next, or why none) ─► tune ─► outcome
//! ```
//!
//! [`Search`] decides and measures nothing, so that it is tested without a model; [`tune`] measures what it asks for.

mod charts;
mod forecast;
mod goal;
mod outcome;
mod prediction;
mod search;
mod threads;
mod tune_options;
mod tune_page;
mod tune_run;
mod words;

pub use forecast::{Forecast, Latency};
pub use goal::{BatchFigures, Goal, Metric};
pub use outcome::{MemoryPressure, TuneOutcome, TunePoint};
pub use prediction::Prediction;
pub use search::{Attempt, BatchReason, Next, Search, Stop};
pub use threads::{ThreadsPoint, ThreadsTuned, thread_counts};
pub use tune_options::TuneOptions;
pub use tune_run::{TuneDriver, TuneError, tune, write_tuned};
pub use words::{lines, nearest_words};
