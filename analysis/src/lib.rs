//! Reads runs on disk and answers questions about them.
//!
//! Most programs call [`write_report`]. For figures, open a [`Run`], whatever state its directory is in, and call
//! [`Analysis::of`]; with findings and gains, [`analyze`]. For records, stream them with [`Run::batches`]. Sides of runs
//! are compared with [`compare`].
//!
//! These names are what this crate promises, with the signatures of its functions. Fields of what they return are not:
//! types of the fields of an [`Analysis`] are in `candlescope_figures`, which may change with every release as all
//! crates below this one (reader, figures, predict, findings, compare, report, sql). Figures that keep their names are
//! the keys of the JSON.
//!
//! ```no_run
//! use candlescope_analysis::{ReportOptions, write_report};
//! let report = write_report("runs/today", &ReportOptions::default())?;
//! print!("{}", report.summary);
//! # Ok::<(), candlescope_analysis::ReportError>(())
//! ```

pub use candlescope_compare::{CompareError, CompareOptions, Comparison, RunFacts, Side, compare};
pub use candlescope_figures::Analysis;
pub use candlescope_findings::{AnalyzeOptions, Analyzed, analyze};
pub use candlescope_reader::{Batches, Limit, OpenError, ReadLimits, Run};
pub use candlescope_report::{ReportError, ReportOptions, ReportOutput, write_report};
