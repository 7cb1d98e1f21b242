//! The core of candlescope: what a record is, the `tracing` layer that makes records, and the pipeline behind it.

pub mod annotate;
pub mod clock;
pub mod collector;
pub mod exporter;
mod layer;
pub mod ledger;
pub mod llm;
pub mod record;
pub mod run;
pub mod vocabulary;

pub use annotate::{Annotation, annotate, is_recording};
pub use clock::HostNs;
pub use collector::{CollectError, Collector, Samples};
pub use exporter::{ExportError, Exporter};
pub use ledger::{DropReason, Ledger};
pub use record::*;
pub use vocabulary::{DType, GpuSource, Phase, Shape};
