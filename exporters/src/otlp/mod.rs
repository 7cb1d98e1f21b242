//! OpenTelemetry traces and metrics over OTLP, for Jaeger, Tempo, Prometheus, the OpenTelemetry Collector and
//! everything behind them.
//!
//! A request is a span with the names of the GenAI semantic conventions; below it are its steps, below them their
//! intervals, with the same ids, parents and nanoseconds as in Parquet and NVTX. A request that was given its caller's
//! trace id is in the caller's trace.
//!
//! Volume is bounded, see [`OtlpLimits`]: by default a trace has at most 1,000 spans, with all intervals of every
//! sixteenth decode step and only the step itself of the others; what is left out is summed up in the request's
//! attributes and events. Slow requests can be kept whole. All traces together have at most 2,000 spans per second in
//! the long run: beyond that a request is one span. OpenTelemetry's samplers decide which traces are sent at all, see
//! [`OtlpSampler`].
//!
//! GPU time is sampled, and attributes show that. A measured interval or step has `candlescope.gpu.duration`, with
//! `candlescope.gpu.source`: `event`, elapsed in the stream, or `cupti`, the sum of the kernels. A request, and a group
//! of decode steps in its events, uses the one source that measured more of the steps:
//! `candlescope.gpu.measured_duration` is the sum over the `candlescope.gpu.measured_steps`, and
//! `candlescope.gpu.duration` the estimate for all recorded steps (mean × number for each kind of step,
//! [`candlescope_core::estimate`]), left out if a kind of step was never measured.
//!
//! [`OtlpMetricsExporter`] sends what [`metrics`](crate::metrics) lists, under OpenTelemetry's names, cumulative,
//! every 60 seconds and at the end.
//!
//! Messages travel as protobuf over HTTP, or by gRPC with the feature `otlp-grpc`. Neither needs an async runtime. The
//! standard `OTEL_*` variables are honoured, see [`OtlpConfig`]. A program that already uses the OpenTelemetry SDK can
//! pass one of its exporters ([`OtlpExporter::with_span_exporter`]) or its provider
//! ([`OtlpExporter::with_tracer_provider`]): spans are then sent the same way as its own.
//!
//! A collector that is down, slow, refuses or sends invalid responses costs the application nothing: everything happens
//! on the exporter's own thread behind a bounded queue, each export is retried until its deadline, losses are counted,
//! and problems are reported at most once a minute.
//!
//! ```no_run
//! use candlescope_exporters::otlp::{OtlpConfig, OtlpExporter};
//! let (layer, session) = candlescope_core::Session::builder()
//!     .exporter(OtlpExporter::new(OtlpConfig::new("http://localhost:4318")))
//!     .start()?;
//! # Ok::<(), candlescope_core::StartError>(())
//! ```

mod attempt;
mod counts;
mod decodes;
mod headers;
mod held;
mod metrics_exporter;
mod otlp_config;
#[cfg(feature = "otlp-grpc")]
mod otlp_grpc;
mod otlp_http;
mod otlp_spans;
mod points;
mod replay;
mod sealed;
mod settings;
mod shared_steps;
mod sink;
mod step_plan;
mod tls;
mod trace_exporter;
mod traces;
mod transport;
mod volume;

#[doc(hidden)]
pub use metrics_exporter::OtlpMetricsExporter;
pub use otlp_config::{OtlpConfig, OtlpLimits, OtlpProtocol, OtlpSampler};
#[doc(hidden)]
pub use replay::{SentRun, send_run};
pub use sink::RecordIds;
pub use trace_exporter::OtlpExporter;

/// For [`crate::fuzz`]: resolves the settings of both signals from `env` and formats them.
pub(crate) fn settings_resolve(env: impl Fn(&str) -> Option<String>) -> bool {
    let config = env("url").map(OtlpConfig::new).unwrap_or_default();
    [settings::Signal::Traces, settings::Signal::Metrics].into_iter().all(|signal| {
        match settings::Settings::resolve(&config, signal, "program", &env) {
            Ok(settings) => !format!("{settings:?}").is_empty(),
            Err(error) => error.to_string().is_empty(),
        }
    })
}

#[cfg(test)]
mod tests;
