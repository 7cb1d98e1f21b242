//! The core of candlescope: what a record is, the `tracing` layer that makes records, and the pipeline behind it.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod annotate;
mod capture;
pub mod clock;
pub mod collector;
mod control;
pub mod diagnostics;
pub mod estimate;
pub mod exporter;
mod fields;
pub mod files;
pub mod gpu;
mod handle;
mod layer;
pub mod ledger;
pub mod llm;
mod memory;
mod names;
mod notices;
pub mod numbers;
mod pipeline;
mod probe;
mod raw;
pub mod record;
pub mod redacted_url;
mod requests;
mod ring_room;
pub mod run;
mod session;
mod shared;
pub mod stretches;
mod sync;
mod tap;
mod traceparent;
mod verdict;
pub mod vocabulary;

pub use annotate::{Annotation, annotate, is_recording};
pub use capture::{Capture, CaptureError};
pub use clock::HostNs;
pub use collector::{CollectError, Collector, Samples};
pub use control::{Schedule, StepAction};
pub use diagnostics::Problem;
pub use exporter::{ExportError, Exporter};
pub use gpu::GpuTiming;
pub use handle::{CaptureBusy, FlushError, Handle, KernelsRefused, Stats};
pub use layer::CandlescopeLayer;
pub use ledger::{DropReason, Ledger};
pub use memory::MemoryExporter;
pub use record::*;
pub use redacted_url::RedactedUrl;
pub use session::{Session, SessionBuilder, StartError};
pub use tap::{Tap, TapInterval};
pub use traceparent::{Traceparent, TraceparentError};
pub use vocabulary::{DType, GpuSource, GpuTier, KernelKind, Phase, Shape};
