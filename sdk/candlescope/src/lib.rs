//! Observability for LLM inference written with [candle](https://github.com/huggingface/candle).
//!
//! | candlescope | candle | Rust |
//! |---|---|---|
//! | 0.1, with the feature `candle` | 0.11.1 | 1.94 |
//! | 0.1, without it | any; spans keep candle's names, `linear[51]` | 1.89 |
//! | `candlescope-markers` 0.1, in libraries | any, or none | 1.65 |
//!
//! Three lines make an existing program observable; the models it uses need no change:
//!
//! ```
//! use candlescope::llm::{self, Request, Tokens};
//!
//! // 1. Before the model loads, because candle creates its spans then.
//! let scope = candlescope::builder().install()?;
//! // With the feature `candle`, every layer has its name and its work:
//! // let weights = candlescope::observe(weights);
//!
//! // 2. The program as it is. Marking requests and phases is optional; without it every outermost span is a step.
//! let request = Request::new("chat", "smollm2-135m").prompt_tokens(5);
//! {
//!     let _in_request = request.enter();
//!     let _step = llm::prefill(Tokens::new(5).context(5));
//!     // let logits = model.forward(&tokens, position)?;
//!     request.token(); // time to first token
//! }
//! drop(request);
//!
//! // 3. The end: flushed, accounted for, with a verdict on whether the data can be trusted.
//! let manifest = scope.finish().expect("a session");
//! assert_eq!((manifest.counts["steps"], manifest.counts["requests"]), (1, 1));
//! # Ok::<(), candlescope::InitError>(())
//! ```
//!
//! [`init`] reads the environment variable `CANDLESCOPE`:
//!
//! ```text
//! CANDLESCOPE="parquet=./runs,perfetto=trace.pftrace" ./my-program
//! ```
//!
//! # A program with its own subscriber
//! There is one global `tracing` subscriber in a program. Add candlescope's layer to yours, and keep filters on the layers
//! that print: candle's spans are of the level TRACE, and an `EnvFilter` above the registry disables them.
//!
//! ```
//! use tracing_subscriber::{EnvFilter, fmt, prelude::*};
//! let (layer, _scope) = candlescope::layer_from_env();
//! tracing_subscriber::registry()
//!     .with(candlescope::with_filter(layer, EnvFilter::from_default_env(), fmt::layer()))
//!     .init();
//! ```
//!
//! # Async programs
//! A model computes on a thread: `tokio::task::spawn_blocking`, or a worker with a queue. Make the [`llm::Request`] where
//! the request arrives, send it to that thread and enter it there; queue time is then what lies between. Do not hold the
//! guard of [`enter`](llm::Request::enter) across an `.await`; a future that works for a request is instrumented with
//! [`Request::instrument`](llm::Request::instrument).
//!
//! # Libraries
//! A library that others link marks its requests, steps and modules by `candlescope-markers`, which compiles to nothing in
//! programs without candlescope. In programs with it, those markers are on: [`llm`] is that crate.
//!
//! # Where to read about
//! - [requests](https://github.com/candlescope/candlescope/blob/main/docs/instrument.md#requests): queue time, tokens,
//!   outcome, across threads;
//! - [async programs](https://github.com/candlescope/candlescope/blob/main/docs/instrument.md#in-async-programs): a
//!   request that lives in a future, a model that computes on a thread;
//! - [a subscriber of your own](https://github.com/candlescope/candlescope/blob/main/docs/instrument.md#a-program-with-its-own-subscriber):
//!   where the layer goes, and the filters;
//! - batching: [steps for several requests](https://github.com/candlescope/candlescope/blob/main/docs/instrument.md#steps-for-several-requests),
//!   and [slots, CUDA graphs, continuous batching](https://github.com/candlescope/candlescope/blob/main/docs/decoding.md);
//! - [what candlescope cannot do](https://github.com/candlescope/candlescope/blob/main/LIMITATIONS.md).
//!
//! # Guides
//! - [Quick start](https://github.com/candlescope/candlescope/blob/main/docs/quick-start.md): profile a model from the
//!   command line.
//! - [Instrument your code](https://github.com/candlescope/candlescope/blob/main/docs/instrument.md): subscribers, steps,
//!   requests across threads, names and work of layers.
//! - [Servers and long runs](https://github.com/candlescope/candlescope/blob/main/docs/production.md): schedules, captures,
//!   metrics, traces, how a service ends.
//! - [Reference](https://github.com/candlescope/candlescope/blob/main/docs/reference.md): keys of `CANDLESCOPE`, findings
//!   and their remedies.
//! - [Examples](https://github.com/candlescope/candlescope/tree/main/examples): whole programs, a server among them.
//!
//! # Features
//! Features are additive. With everything off the crate still records, and hands records to your own exporters.
//!
//! - On by default: `parquet` (runs on disk), `perfetto` and `chrome` (timelines), `host` (samples of the process),
//!   `logs` (with [`init`] and [`Builder::install`]: the program's log lines on standard error, where `RUST_LOG` asks).
//! - For NVIDIA GPUs: `cuda` (time of every interval on the device), `cupti` (kernels, in windows of steps), `nvml`
//!   (power, energy, memory, clocks), or all three as `gpu`. They load the driver's libraries at run time, so they
//!   build anywhere. `nvtx` (ranges for Nsight Systems) needs libclang to build.
//! - For services: `prometheus` (metrics on an HTTP endpoint), `otlp` (traces and metrics to an OpenTelemetry collector
//!   over HTTP, without an async runtime), `otlp-grpc` (the same over gRPC).
//! - `stacks`: call stacks of the program's threads below intervals, and their time off the CPU (Linux).
//! - `candle`: the modules of a model by name (`observe`), for programs on the version of candle that this release was
//!   written for.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod account;
mod builder;
pub mod env;
#[cfg_attr(not(unix), allow(dead_code, reason = "nothing is called at the end of a process there"))]
mod exit;
mod filter;
pub mod gpu;
mod guard;
mod init_error;
mod install;
#[cfg(feature = "candle")]
mod observe;
pub mod sdk;
#[cfg(unix)]
mod sigterm;
#[cfg(unix)]
mod sys;

pub use builder::{Builder, builder};
pub use candlescope_core::{
    Annotation, CandlescopeLayer, Capture, DType, Handle, Outcome, Schedule, annotate, is_recording, llm, run,
};
pub use filter::with_filter;
pub use guard::Scope;
pub use init_error::InitError;
#[cfg(feature = "candle")]
pub use observe::{observe, observe_gguf};

use candlescope_core::Problem;
use env::{EnvConfig, VARIABLE};

/// Errors of single operations. That of setting candlescope up is [`InitError`].
pub mod error {
    pub use candlescope_core::{CaptureBusy, CaptureError, FlushError, KernelsRefused, ScheduleError, StartError};
}

/// Models while they load: what a span stands for, and how many rows it computes.
///
/// For a `VarBuilder` or a GGUF file of candle, `observe` and `observe_gguf` tell all but the configuration.
pub mod modules {
    #[cfg(feature = "candle")]
    pub use crate::observe::ObservedGguf;
    #[doc(hidden)]
    #[cfg(feature = "candle")]
    pub use crate::observe::{candle_features, check_threads};
    pub use candlescope_core::modules::{ConfigUnreadable, begin_loading, loaded, model};
}

/// Traces and metrics to an OpenTelemetry collector: what [`Builder::otlp_with`] takes.
#[cfg(feature = "otlp")]
pub mod otlp {
    pub use candlescope_exporters::otlp::{OtlpConfig, OtlpExporter, OtlpLimits, OtlpProtocol, OtlpSampler, RecordIds};
}

/// Runs on disk: what [`Builder::parquet_with`] and [`Handle::capture`] take.
#[cfg(feature = "parquet")]
pub mod parquet {
    pub use candlescope_exporters::parquet::{ParquetConfig, ParquetExporter};
}

/// Metrics for Prometheus: what [`Builder::prometheus_with`] takes.
#[cfg(feature = "prometheus")]
pub mod prometheus {
    pub use candlescope_exporters::prometheus::PrometheusConfig;
    #[doc(hidden)]
    pub use candlescope_exporters::prometheus::{AnnouncedProgram, AtWork, WorkNotice, announced, at_work};
}

/// Call stacks of the program's threads: what [`Builder::stacks_with`] takes.
#[cfg(feature = "stacks")]
pub mod stacks {
    pub use candlescope_collectors::stacks::{SourceChoice, StackOptions};
}

/// Sets candlescope up from the environment variable `CANDLESCOPE`. If it is unset, this only reads the environment.
///
/// Call it first in `main`, before any model loads, and keep the returned scope until the end. If the value is not
/// understood, or a destination cannot be used, that is reported on standard error with the remedy, and the program
/// goes on without candlescope: profiling never stops the program that it observes.
///
/// It installs the global `tracing` subscriber. A program that installs its own must use [`layer_from_env`] instead.
/// Otherwise the second of the two subscribers fails as soon as somebody sets the variable, and `registry().init()`
/// then panics. A program that has such a value from elsewhere gives it to [`EnvConfig::parse`](env::EnvConfig::parse).
///
/// ```
/// let _scope = candlescope::init();
/// ```
pub fn init() -> Scope {
    match said_by_env() {
        Some(value) => builder_from(&value).and_then(Builder::install).unwrap_or_else(without),
        None => Scope::disabled(),
    }
}

/// Like [`init`], for a program with its own subscriber, which gets the layer. `None` if the variable is unset, or
/// cannot be followed: subscribers accept an `Option` of a layer.
///
/// ```
/// use tracing_subscriber::prelude::*;
/// let (layer, _scope) = candlescope::layer_from_env();
/// tracing_subscriber::registry().with(layer).with(tracing_subscriber::fmt::layer()).init();
/// ```
pub fn layer_from_env() -> (Option<CandlescopeLayer>, Scope) {
    let Some(value) = said_by_env() else { return (None, Scope::disabled()) };
    match builder_from(&value).and_then(Builder::layer) {
        Ok((layer, scope)) => (Some(layer), scope),
        Err(error) => (None, without(error)),
    }
}

/// The variable's value, if it is set and not empty.
fn said_by_env() -> Option<String> {
    std::env::var(VARIABLE).ok().filter(|value| !value.trim().is_empty())
}

/// Goes on without candlescope and says so: on standard error, because nothing else may be listening yet.
fn without(error: InitError) -> Scope {
    candlescope_core::diagnostics::to_stderr(&Problem::new(
        "",
        format!("{error}; nothing is recorded, and the program goes on"),
    ));
    Scope::disabled()
}

/// What is understood of the value. Keys that are not known, or that this build lacks, are reported and left out.
fn builder_from(value: &str) -> Result<Builder, InitError> {
    let (mut config, mut left_out) = EnvConfig::understood(value)?;
    left_out.extend(config.take_lacking());
    if !config.has_destination() {
        // Nothing is left of what was asked for.
        if let Some(first) = left_out.into_iter().next() {
            return Err(first.into());
        }
        let nowhere = format!(
            "{VARIABLE} names no destination: unless the program takes captures or runs under a tool for NVTX, what is \
             recorded goes nowhere; add parquet=./runs, perfetto=FILE, prometheus=PORT or otlp=URL"
        );
        candlescope_core::diagnostics::to_stderr(&Problem::new("", nowhere));
        return config.into_builder();
    }
    for error in left_out {
        candlescope_core::diagnostics::to_stderr(&Problem::new("", format!("{error}; recording without it")));
    }
    config.into_builder()
}
