//! OpenTelemetry traces over OTLP (HTTP with protobuf), for Jaeger, Tempo, the OpenTelemetry Collector and everything behind them.
//!
//! A request is a span with the names of the GenAI semantic conventions; below it stand its steps, below them their intervals, with the
//! ids, parents and nanoseconds that Parquet and NVTX have too. A request that was given its caller's trace id stands in the caller's trace.
//!
//! No async runtime is needed or started. Volume is bounded, see [`OtlpLimits`]: by default a trace has at most 1,000 spans, of
//! every sixteenth decode step all, of the others the step alone.
//!
//! ```no_run
//! use candlescope_exporters::otlp::{OtlpConfig, OtlpExporter};
//! let (layer, session) = candlescope_core::Session::builder()
//!     .exporter(OtlpExporter::create(OtlpConfig::new("http://localhost:4318")))
//!     .start()?;
//! # Ok::<(), candlescope_core::StartError>(())
//! ```

mod config;
mod convert;
mod exporter;
mod replay;
mod traces;
mod transport;

pub use config::{OtlpConfig, OtlpLimits};
pub use exporter::OtlpExporter;
pub use replay::send_run;

#[cfg(test)]
mod tests;
