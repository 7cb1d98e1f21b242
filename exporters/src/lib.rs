//! Exporters for candlescope: each turns the stream of records into a form that another tool reads.
//!
//! Programs add them by the builder of `candlescope`, which shows their options. What is documented here is what it
//! shows; the rest is hidden, and changes with any release.
//!
//! | module | feature | writes | read by |
//! |---|---|---|---|

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![cfg_attr(
    feature = "parquet",
    doc = "| [`parquet`] | `parquet` | a run directory | `candlescope report`, DuckDB, Polars, Spark |"
)]
#![cfg_attr(
    feature = "perfetto",
    doc = "| [`perfetto`] | `perfetto` | one protobuf trace | ui.perfetto.dev, trace_processor |"
)]
#![cfg_attr(
    feature = "chrome",
    doc = "| [`chrome`] | `chrome` | one JSON trace | chrome://tracing, Perfetto, speedscope |"
)]
#![cfg_attr(
    feature = "kineto",
    doc = "| [`kineto`] | `kineto` | the PyTorch profiler's JSON, of a run on disk | HolisticTraceAnalysis, TraceLens |"
)]
#![cfg_attr(
    feature = "firefox",
    doc = "| [`firefox`] | `firefox` | call stacks of a run on disk, with its intervals | profiler.firefox.com |"
)]
#![cfg_attr(
    feature = "pprof",
    doc = "| [`pprof`] | `pprof` | call stacks of a run on disk, added up | `go tool pprof` |"
)]
#![cfg_attr(
    feature = "otlp",
    doc = "| [`otlp`] | `otlp`, `otlp-grpc` | spans and metrics over OTLP, by HTTP or gRPC | Jaeger, Tempo, OpenTelemetry Collector |"
)]
#![cfg_attr(feature = "nvtx", doc = "| [`nvtx`] | `nvtx` | NVTX ranges, as they happen | Nsight Systems |")]
#![cfg_attr(
    feature = "prometheus",
    doc = "| [`prometheus`](mod@prometheus) | `prometheus` | metrics on an HTTP endpoint | Prometheus, Grafana |"
)]
//!
//! Every module has a pure conversion and a thin transport: the conversion is tested without files.

#[cfg(any(feature = "perfetto", feature = "firefox", feature = "pprof"))]
#[cfg_attr(
    not(all(feature = "perfetto", feature = "firefox", feature = "pprof")),
    allow(dead_code, reason = "each format uses a part of it")
)]
mod call_stacks;
#[doc(hidden)]
#[cfg(feature = "chrome")]
pub mod chrome;
#[doc(hidden)]
#[cfg(feature = "firefox")]
pub mod firefox;
#[doc(hidden)]
#[cfg(any(feature = "prometheus", feature = "otlp"))]
pub mod fuzz;
#[doc(hidden)]
#[cfg(any(feature = "kineto", feature = "firefox", feature = "pprof"))]
pub mod gzip;
#[cfg(any(feature = "chrome", feature = "perfetto", feature = "kineto"))]
#[cfg_attr(
    not(all(feature = "chrome", feature = "perfetto", feature = "kineto")),
    allow(dead_code, reason = "each format uses a part of it")
)]
mod kernel_tracks;
#[doc(hidden)]
#[cfg(feature = "kineto")]
pub mod kineto;
#[doc(hidden)]
#[cfg(any(feature = "prometheus", feature = "otlp"))]
pub mod metrics;
#[cfg(any(feature = "chrome", feature = "perfetto"))]
mod nesting;
#[doc(hidden)]
#[cfg(feature = "nvtx")]
pub mod nvtx;
#[cfg(feature = "otlp")]
pub mod otlp;
#[cfg(feature = "parquet")]
pub mod parquet;
#[doc(hidden)]
#[cfg(feature = "perfetto")]
pub mod perfetto;
#[doc(hidden)]
#[cfg(feature = "pprof")]
pub mod pprof;
#[cfg(feature = "prometheus")]
pub mod prometheus;
#[cfg(any(feature = "chrome", feature = "perfetto"))]
mod step_runs;
#[doc(hidden)]
#[cfg(any(feature = "chrome", feature = "perfetto", feature = "kineto"))]
pub mod trace_file;
