//! Observability for LLM inference written with [candle](https://github.com/huggingface/candle).
//!
//! Three lines make an existing program observable; the models it uses need no change:
//!
//! ```
//! // 1. Before the model loads, because candle creates its spans then.
//! let scope = candlescope::builder().start_default()?;
//!
//! // 2. The program as it is. Marking phases is optional; without it every outermost span is a step.
//! let _step = candlescope::llm::decode(1, 128, 1);
//! // let logits = model.forward(&tokens, position)?;
//! # drop(_step);
//!
//! // 3. The end: flushed, accounted for, with a verdict on whether the data can be trusted.
//! let manifest = scope.finish();
//! # assert_eq!(manifest.unwrap().counts["spans"], 1);
//! # Ok::<(), candlescope::InitError>(())
//! ```
//!
//! Without any rebuild, [`init`] reads the environment variable `CANDLESCOPE`:
//!
//! ```text
//! CANDLESCOPE="parquet=./runs,perfetto=trace.pftrace" ./my-program
//! ```
//!
//! # Features
//! Additive. On by default: `parquet` (runs on disk), `perfetto` and `chrome` (timelines), `host` (samples of the process). For
//! NVIDIA GPUs: `cuda` (time of every interval on the device), `cupti` (kernels, in windows of steps), `nvml` (power, energy,
//! memory, clocks), or all three as `gpu`; they load the driver's libraries when they run, so they build anywhere. `nvtx` (ranges
//! for Nsight Systems) needs libclang to build. For services: `prometheus` (metrics on an HTTP endpoint), `otlp` (traces and metrics to an
//! OpenTelemetry collector over HTTP, without an async runtime), `otlp-grpc` (the same by gRPC). With everything off the crate still records and hands records to exporters of your own.

mod builder;
mod env;
mod gpu;
mod guard;

pub use builder::{Builder, builder};
#[cfg(feature = "cuda")]
pub use candlescope_collectors::cuda;
pub use candlescope_core as core;
pub use candlescope_core::{
    Annotation, Batch, CandlescopeLayer, Collector, DType, Exporter, GpuTier, GpuTiming, Handle, MemoryExporter, Phase,
    Schedule, Shape, annotate, is_recording, llm,
};
#[cfg(feature = "otlp")]
pub use candlescope_exporters::otlp::{OtlpConfig, OtlpLimits, OtlpProtocol, OtlpSampler};
#[cfg(feature = "parquet")]
pub use candlescope_exporters::parquet::{ParquetConfig, ParquetExporter};
#[cfg(feature = "prometheus")]
pub use candlescope_exporters::prometheus::PrometheusConfig;
pub use env::{ConfigError, EnvConfig, VARIABLE};
pub use guard::Scope;

use candlescope_core::StartError;

/// candlescope could not be set up. The program can go on without it.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// An exporter or the pipeline could not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// `CANDLESCOPE` says something that is not understood.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Another global `tracing` subscriber is in place.
    #[error(
        "a global tracing subscriber is installed already; \
         add the layer to it instead: let (layer, scope) = builder.layer()?, then registry().with(layer).with(…).init()"
    )]
    SubscriberInPlace,
}

/// Sets candlescope up from the environment variable `CANDLESCOPE`. Unset, it costs one look at the environment and does nothing.
///
/// Call it first thing in `main`, before any model loads, and keep what it returns until the end. A value that is not understood,
/// or a destination that cannot be used, is reported on standard error with the remedy, and the program goes on without
/// candlescope: profiling never stops the program it is to explain.
///
/// ```
/// let _scope = candlescope::init();
/// ```
pub fn init() -> Scope {
    let Ok(value) = std::env::var(VARIABLE) else { return Scope::disabled() };
    if value.trim().is_empty() {
        return Scope::disabled();
    }
    match init_from(&value) {
        Ok(scope) => scope,
        Err(error) => {
            eprintln!("candlescope: {error}; going on without it");
            Scope::disabled()
        }
    }
}

/// As [`init`], from a given value, with errors returned.
///
/// # Errors
/// When the value is not understood, a destination cannot be used, or a global subscriber is in place.
pub fn init_from(value: &str) -> Result<Scope, InitError> {
    EnvConfig::parse(value)?.into_builder()?.report_at_end(true).start_default()
}
