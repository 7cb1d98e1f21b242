//! Reads runs on disk and answers questions about them.
//!
//! Most programs call [`write_report`]. For figures, open a [`Run`], whatever state its directory is in, and call
//! [`Analysis::of`]; the types of the fields of an [`Analysis`] are in [`passes`]. For records, stream them with
//! [`Run::batches`]. [`render`] turns an analysis into text, Markdown, JSON and HTML, and [`definitions`] says what
//! each number means.
//!
//! ```no_run
//! use candlescope_analysis::{ReportOptions, write_report};
//! let report = write_report("runs/today", &ReportOptions::default())?;
//! print!("{}", report.summary);
//! # Ok::<(), candlescope_analysis::ReportError>(())
//! ```

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
// What a public figure consists of can be named by whoever reads it.
#![warn(unnameable_types)]

pub mod advice;
mod analyse;
pub mod compare;
pub mod definitions;
mod findings;
pub mod limits;
pub mod ncu;
pub mod nsys;
pub mod passes;
mod reader;
pub mod render;
mod report;
#[cfg(feature = "roofline")]
pub mod roofline;
pub mod simulation;
#[cfg(feature = "sql")]
pub mod sql;

pub use analyse::{AnalyzeOptions, Analyzed, analyze};
pub use limits::{Limit, LimitError, ReadLimits};
pub use passes::Analysis;
pub use reader::{Batches, OpenError, Run, Segment};
pub use render::terminal::TerminalOptions;
pub use report::{ReportError, ReportOptions, ReportOutput, write_report, write_report_of};
