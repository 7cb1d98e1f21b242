//! The contract of candlescope: records, the tables and `run.json` of a run, and the names that writers and readers share.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod caught;
mod drop_reason;
pub mod estimate;
pub mod files;
pub mod hive;
pub mod host_metric;
mod host_ns;
pub mod injected;
pub mod metric;
pub mod numbers;
mod path_pattern;
mod perturbation_text;
pub mod record;
pub mod run;
mod schedule;
mod schedule_text;
mod served;
pub mod stack_chains;
pub mod stretches;
pub mod table;
mod text_limit;
pub mod vocabulary;

pub use drop_reason::DropReason;
pub use host_ns::HostNs;
pub use path_pattern::PathPattern;
pub use perturbation_text::{Delay, Perturbation, PerturbationError};
pub use record::*;
pub use schedule::{Schedule, StepAction};
pub use schedule_text::ScheduleError;
pub use served::{MOST_SERVED, Served};
pub use text_limit::{CUT_MARK, MOST_TEXT_BYTES, cut_debug, cut_text};
pub use vocabulary::{DType, GpuSource, GpuTier, KernelKind, Outcome, Phase, Ran, Shape, Side, ThreadState};
