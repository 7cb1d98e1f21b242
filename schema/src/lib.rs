//! The contract of candlescope: records, the tables and `run.json` of a run, and the names that writers and readers share.
//!
//! What is documented is promised. How files are written and read, sums and rates are made, and texts are shown is
//! shared by our own crates and hidden.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

#[doc(hidden)]
pub mod accounts;
#[doc(hidden)]
pub mod beside_run;
#[doc(hidden)]
pub mod caught;
mod drop_reason;
#[doc(hidden)]
pub mod estimate;
#[doc(hidden)]
pub mod files;
#[doc(hidden)]
pub mod hive;
#[doc(hidden)]
pub mod host_metric;
mod host_ns;
#[doc(hidden)]
pub mod injected;
#[doc(hidden)]
pub mod load_results;
#[doc(hidden)]
pub mod metric;
#[doc(hidden)]
pub mod numbers;
mod path_pattern;
mod perturbation_text;
#[doc(hidden)]
pub mod record;
pub mod run;
mod schedule;
mod schedule_text;
mod served;
#[doc(hidden)]
pub mod splitmix;
#[doc(hidden)]
pub mod stack_chains;
#[doc(hidden)]
pub mod stretches;
#[doc(hidden)]
pub mod study_files;
#[doc(hidden)]
pub mod table;
mod text_limit;
mod text_of_others;
#[doc(hidden)]
pub mod vocabulary;

pub use drop_reason::DropReason;
pub use host_ns::HostNs;
#[doc(hidden)]
pub use path_pattern::{PathPattern, without_numbers};
#[doc(hidden)]
pub use perturbation_text::Delay;
pub use perturbation_text::{Perturbation, PerturbationError};
// Hidden modules' globs are shown on request only.
#[doc(inline)]
pub use record::*;
pub use schedule::{Schedule, StepAction};
pub use schedule_text::ScheduleError;
#[doc(hidden)]
pub use served::MOST_SERVED;
pub use served::Served;
#[doc(hidden)]
pub use text_limit::{CUT_MARK, MOST_TEXT_BYTES, cut_debug, cut_text};
#[doc(hidden)]
pub use text_of_others::{csv_field, csv_field_of_others, steers_screen};
pub use vocabulary::{
    DType, GpuSource, GpuTier, KernelKind, Outcome, ParseShapeError, Phase, Ran, Shape, Side, ThreadState,
};
