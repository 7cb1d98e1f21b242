//! The core of candlescope: what a record is, the `tracing` layer that makes records, and the pipeline behind it.
//!
//! Programs name its types through `candlescope`, and exporters and collectors through `candlescope::sdk`. What is
//! shown here is what these name, and promised as they are; what other crates of ours need besides is hidden, and
//! changes with any release.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod account;
mod annotate;
mod annotation;
mod budget;
mod cache_directory;
mod capture;
mod clock;
pub mod collector;
mod control;
pub mod diagnostics;
pub mod exporter;
mod fields;
#[doc(hidden)]
pub mod gpu;
mod handle;
mod layer;
pub mod ledger;
mod live_manifest;
pub mod llm;
mod memory;
pub mod modules;
mod names;
mod notices;
pub mod perturb;
mod pipeline;
mod probe;
#[doc(hidden)]
pub mod process_facts;
mod raw;
pub mod redacted_url;
mod requests;
mod ring_room;
mod session;
mod setup_notes;
mod shared;
#[doc(hidden)]
pub mod stacks;
mod stats;
mod sync;
mod tally;
mod tap;
mod verdict;
mod visible;

pub use annotate::{annotate, is_recording};
pub use annotation::Annotation;
#[doc(hidden)]
pub use cache_directory::cache_directory;
pub use candlescope_schema::*;
#[doc(hidden)]
pub use candlescope_work::nearest;
pub use capture::{Capture, CaptureBusy, CaptureError};
pub use collector::{CollectError, Collector, Samples};
pub use diagnostics::Problem;
pub use exporter::{ExportError, Exporter};
pub use gpu::GpuTiming;
pub use handle::{FlushError, Handle, KernelsRefused};
pub use layer::CandlescopeLayer;
#[doc(hidden)]
pub use layer::open_range::OpenRange;
#[doc(hidden)]
pub use layer::ranges::{RangeKind, RangeName, RangeTime, Ranges};
pub use ledger::Ledger;
pub use memory::MemoryExporter;
pub use perturb::{Perturb, PerturbProgress, PerturbRefused};
pub use redacted_url::RedactedUrl;
#[doc(hidden)]
pub use session::host_name;
pub use session::{Session, SessionBuilder, StartError};
#[doc(hidden)]
pub use setup_notes::note;
#[doc(hidden)]
pub use stats::ExporterQueue;
pub use stats::{SessionStats, Stats};
pub use tap::{Tap, TapInterval};
