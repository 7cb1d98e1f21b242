//! What you need to write your own exporters, collectors and taps: their traits, and the records that they get.
//!
//! The manifest that an exporter gets is in [`run`](crate::run).

// Exporters, and what they get.
pub use candlescope_core::exporter::describe;
pub use candlescope_core::record::thread_of;
pub use candlescope_core::vocabulary::ParseShapeError;
pub use candlescope_core::{
    Batch, DropReason, ExportError, Exporter, GpuSource, GpuTime, HostNs, KernelKind, KernelRecord, Ledger,
    MemoryExporter, PathInfo, Phase, RecordKind, RequestRecord, SampleRecord, Served, Shape, SpanId, SpanRecord,
    StepRecord, ThreadInfo, TraceId, UnrecordedStep, host_metric, metric,
};
#[doc(hidden)]
pub use candlescope_core::{estimate, stretches};

// Collectors, taps, and sources of GPU time and kernels.
pub use candlescope_core::gpu::{
    Activity, ActivityError, ActivitySink, Correlator, DeviceInfo, DeviceNs, GpuClock, GpuLane, GpuLanes, GpuReport,
    GraphNode, MarkId, NoMark, OUTSIDE_WINDOW, RawKernel, Undelivered,
};
pub use candlescope_core::{CollectError, Collector, Samples, Tap, TapInterval};

// The session that they are added to.
pub use candlescope_core::redacted_url::{RedactedUrl, scrub};
pub use candlescope_core::{
    Session, SessionBuilder, SessionStats, Stats, StepAction, Traceparent, TraceparentError, diagnostics, note,
};

// Experiments, which a handle begins.
pub use candlescope_core::{Perturb, PerturbProgress, PerturbRefused};
