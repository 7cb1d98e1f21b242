//! Renderers turn figures into what people read. None of them computes. A part of candlescope, which may change with
//! every release.
//!
//! What is shown is a document: `report` makes that of a run, `compare`, `roofline` and `full` theirs;
//! `candlescope_document` draws it on a terminal, in Markdown and as a page. `json` has the figures for programs.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod account;
pub mod advice;
mod charts;
pub mod compare;
mod conclusion;
mod format;
pub mod full;
mod full_front;
mod function_name;
mod gpu_sheets;
mod head_facts;
mod headline_figures;
pub mod html;
pub mod inputs;
pub mod json;
mod kernel_name;
pub mod markdown;
#[cfg(feature = "ncu")]
pub mod ncu;
mod nsys_table;
pub mod overview;
mod peak_columns;
mod plain_changes;
mod plain_paths;
pub mod ranks;
mod report;
mod request;
pub mod roofline;
pub mod sensitivity;
mod shown_definitions;
mod slow_requests;
pub mod terminal;
pub mod what_if;
mod write;

pub use conclusion::verdict_line;
pub use request::{RequestOutput, write_request};
pub use terminal::TerminalOptions;
pub use write::{ReportError, ReportOptions, ReportOutput, write_report, write_report_of};
