//! What you need to write your own exporters, collectors and taps: their traits, and the records that they get.
//!
//! The manifest that an exporter gets is in [`run`](crate::run).

// Exporters, and what they get.
pub use candlescope_core::{
    Batch, DropReason, ExportError, Exporter, GpuSource, GpuTime, HostNs, KernelKind, KernelRecord, Ledger,
    MemoryExporter, ParseShapeError, PathInfo, Phase, Ran, RecordKind, RequestRecord, SampleRecord, Served, Shape,
    SpanId, SpanRecord, StepRecord, ThreadInfo, TraceId, UnrecordedStep,
};
#[doc(hidden)]
pub use candlescope_core::{estimate, exporter::describe, host_metric, metric, stretches};

// Collectors and taps.
pub use candlescope_core::{CollectError, Collector, Samples, Tap, TapInterval};

// The session that they are added to.
pub use candlescope_core::redacted_url::RedactedUrl;
pub use candlescope_core::{Session, SessionBuilder, SessionStats, Stats, StepAction, diagnostics};

// Experiments, which a handle begins.
pub use candlescope_core::{Perturb, PerturbProgress, PerturbRefused};
