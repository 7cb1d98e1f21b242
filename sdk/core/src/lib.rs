//! The core of candlescope: what a record is, the `tracing` layer that makes records, and the pipeline behind it.

pub mod annotate;
pub mod clock;
pub mod collector;
mod control;
pub mod exporter;
mod fields;
pub mod gpu;
mod handle;
mod layer;
pub mod ledger;
pub mod llm;
mod memory;
mod names;
mod pipeline;
mod raw;
pub mod record;
pub mod run;
mod session;
mod shared;
mod tap;
mod verdict;
pub mod vocabulary;

pub use annotate::{Annotation, annotate, is_recording};
pub use clock::HostNs;
pub use collector::{CollectError, Collector, Samples};
pub use control::{Schedule, StepAction};
pub use exporter::{ExportError, Exporter};
pub use gpu::GpuTiming;
pub use handle::{CaptureBusy, FlushError, Handle, KernelsRefused, Stats};
pub use layer::CandlescopeLayer;
pub use ledger::{DropReason, Ledger};
pub use memory::MemoryExporter;
pub use record::*;
pub use session::{Session, SessionBuilder, StartError};
pub use tap::{Tap, TapInterval};
pub use vocabulary::{DType, GpuSource, GpuTier, KernelKind, Phase, Shape};
