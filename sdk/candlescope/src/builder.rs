//! Options of a session, as users name them.

use crate::InitError;
use crate::guard::Scope;
use candlescope_core::diagnostics;
use candlescope_core::{CandlescopeLayer, Collector, Exporter, Problem, Schedule, Session, SessionBuilder, Tap};
use std::time::Duration;
use tracing_subscriber::prelude::*;

/// Options of a session: destinations, collectors, schedule. End with [`start_default`](Builder::start_default), or with
/// [`layer`](Builder::layer) where the program has a subscriber of its own.
#[must_use]
#[derive(Debug)]
pub struct Builder {
    session: SessionBuilder,
    destinations: Vec<String>,
    report_at_end: bool,
    /// Whether the program hears of problems itself.
    tells: bool,
    gpu: crate::gpu::Gpu,
    /// Exporters that show the session's own account, which is known once it has started.
    #[cfg(any(feature = "prometheus", feature = "otlp"))]
    stats: Vec<candlescope_exporters::metrics::SessionStats>,
    #[cfg(feature = "host")]
    host: bool,
}

/// Options of a new session, with no destination yet. The host collector is on (feature `host`), and so is whatever of the GPU the
/// build and the machine have, except kernels: adaptive GPU time (`cuda`), power and memory (`nvml`), ranges where a tool is
/// attached (`nvtx`).
pub fn builder() -> Builder {
    Builder {
        session: Session::builder(),
        destinations: Vec::new(),
        report_at_end: false,
        tells: false,
        gpu: crate::gpu::Gpu::default(),
        #[cfg(any(feature = "prometheus", feature = "otlp"))]
        stats: Vec::new(),
        #[cfg(feature = "host")]
        host: true,
    }
}

impl Builder {
    /// Writes a run into the directory `run`, which must be empty or absent: see `candlescope report`.
    #[cfg(feature = "parquet")]
    pub fn parquet(self, run: impl AsRef<std::path::Path>) -> Self {
        self.parquet_with(candlescope_exporters::parquet::ParquetConfig::new(run.as_ref()))
    }

    /// As [`parquet`](Builder::parquet), with rotation, budget and compression as given.
    #[cfg(feature = "parquet")]
    pub fn parquet_with(mut self, config: candlescope_exporters::parquet::ParquetConfig) -> Self {
        let exporter = candlescope_exporters::parquet::ParquetExporter::new(config);
        self.wrote(exporter.run_dir());
        self.exporter(exporter)
    }

    /// Writes a native Perfetto trace to `file`.
    #[cfg(feature = "perfetto")]
    pub fn perfetto(self, file: impl Into<std::path::PathBuf>) -> Self {
        let file = file.into();
        let mut this = self.exporter(candlescope_exporters::perfetto::PerfettoExporter::new(&file));
        this.wrote(&file);
        this
    }

    /// Writes Chrome's JSON trace format to `file`.
    #[cfg(feature = "chrome")]
    pub fn chrome(self, file: impl Into<std::path::PathBuf>) -> Self {
        let file = file.into();
        let mut this = self.exporter(candlescope_exporters::chrome::ChromeExporter::new(&file));
        this.wrote(&file);
        this
    }

    /// Sends traces to the OpenTelemetry collector at `endpoint`, such as `http://localhost:4318`.
    #[cfg(feature = "otlp")]
    pub fn otlp(self, endpoint: impl Into<candlescope_core::RedactedUrl>) -> Self {
        self.otlp_with(candlescope_exporters::otlp::OtlpConfig::new(endpoint))
    }

    /// As [`otlp`](Builder::otlp), with limits, headers and resource as given; what is not given comes from the `OTEL_*` variables.
    #[cfg(feature = "otlp")]
    pub fn otlp_with(mut self, config: candlescope_exporters::otlp::OtlpConfig) -> Self {
        let exporter = candlescope_exporters::otlp::OtlpExporter::new(config);
        self.destinations.extend(exporter.endpoint().map(ToString::to_string));
        self.exporter(exporter)
    }

    /// Sends metrics to the OpenTelemetry collector at `endpoint`, every 60 seconds and at the end.
    #[cfg(feature = "otlp")]
    pub fn otlp_metrics(self, endpoint: impl Into<candlescope_core::RedactedUrl>) -> Self {
        self.otlp_metrics_with(candlescope_exporters::otlp::OtlpConfig::new(endpoint))
    }

    /// As [`otlp_metrics`](Builder::otlp_metrics), with interval, headers and resource as given; what is not given comes from the
    /// `OTEL_*` variables.
    #[cfg(feature = "otlp")]
    pub fn otlp_metrics_with(mut self, config: candlescope_exporters::otlp::OtlpConfig) -> Self {
        let exporter = candlescope_exporters::otlp::OtlpMetricsExporter::new(config);
        self.stats.push(exporter.session_stats());
        self.exporter(exporter)
    }

    /// Serves metrics for Prometheus at `address` while the session runs: `HOST:PORT`, or `PORT` for this machine only.
    #[cfg(feature = "prometheus")]
    pub fn prometheus(self, address: impl Into<String>) -> Self {
        self.prometheus_with(candlescope_exporters::prometheus::PrometheusConfig::new(address))
    }

    /// As [`prometheus`](Builder::prometheus), with the limit on paths as given.
    #[cfg(feature = "prometheus")]
    pub fn prometheus_with(mut self, config: candlescope_exporters::prometheus::PrometheusConfig) -> Self {
        let exporter = candlescope_exporters::prometheus::PrometheusExporter::new(config);
        self.stats.push(exporter.endpoint().session_stats());
        self.exporter(exporter)
    }

    #[cfg(any(feature = "parquet", feature = "perfetto", feature = "chrome"))]
    fn wrote(&mut self, path: &std::path::Path) {
        self.destinations.push(path.display().to_string());
    }

    /// Turns the host collector (memory, CPU use, context switches) on or off; on unless told otherwise.
    #[cfg(feature = "host")]
    pub fn host(mut self, on: bool) -> Self {
        self.host = on;
        self
    }

    /// Takes GPU time as `timing` says, and says so in the run where there is no GPU. Without this call GPU time is adaptive where
    /// there is a CUDA device, and silently absent where there is none.
    #[cfg(feature = "cuda")]
    pub fn gpu(mut self, timing: candlescope_core::GpuTiming) -> Self {
        self.gpu.timing = match timing.tier {
            candlescope_core::GpuTier::Off => crate::gpu::Choice::Off,
            _ => crate::gpu::Choice::On(timing),
        };
        self
    }

    /// How marks are made: which streams, how many may be under way.
    #[cfg(feature = "cuda")]
    pub fn gpu_clock(mut self, options: candlescope_collectors::cuda::CudaClockOptions) -> Self {
        self.gpu.clock = options;
        self
    }

    /// Records kernels in the windows of a schedule that counts recorded steps, or on request only
    /// ([`Handle::capture_kernels`](crate::Handle::capture_kernels)). Off unless told otherwise, because a step in a window takes
    /// noticeably longer.
    #[cfg(feature = "cupti")]
    pub fn kernels(mut self, windows: Option<Schedule>) -> Self {
        self.gpu.kernels = Some(windows);
        self
    }

    /// Turns samples of power, energy, memory, clocks and temperature of the GPUs on or off. Where turned on, the run says so if
    /// there is no GPU; without this call they are taken where there is one.
    #[cfg(feature = "nvml")]
    pub fn nvml(mut self, on: bool) -> Self {
        self.gpu.nvml = if on { crate::gpu::Choice::On(()) } else { crate::gpu::Choice::Off };
        self
    }

    /// Turns NVTX ranges on or off. They cost nothing where no tool such as Nsight Systems is attached, so they are on.
    #[cfg(feature = "nvtx")]
    pub fn nvtx(mut self, on: bool) -> Self {
        self.gpu.nvtx = if on { crate::gpu::Choice::On(()) } else { crate::gpu::Choice::Off };
        self
    }

    /// Adds an exporter of your own.
    pub fn exporter(self, exporter: impl Exporter) -> Self {
        self.session(|s| s.exporter(exporter))
    }

    /// Adds a collector of your own.
    pub fn collector(self, collector: impl Collector) -> Self {
        self.session(|s| s.collector(collector))
    }

    /// Adds a tap on the application's threads.
    pub fn tap(self, tap: impl Tap) -> Self {
        self.session(|s| s.tap(tap))
    }

    /// Records steps by a schedule instead of all of them.
    pub fn schedule(self, schedule: Schedule) -> Self {
        self.session(|s| s.schedule(schedule))
    }

    /// Starts with capture off.
    pub fn paused(self, paused: bool) -> Self {
        self.session(|s| s.paused(paused))
    }

    /// Measures in place what recording costs: one step in `every` of each kind is left plain, without rows, and held
    /// against the recorded ones beside it; the result is `overhead.in_place` of `run.json`. At least 2. Off unless
    /// told otherwise.
    pub fn overhead_probe(self, every: u64) -> Self {
        self.session(|s| s.overhead_probe(every))
    }

    /// Leaves out spans of a target and everything below it.
    pub fn exclude_target(self, target: &str) -> Self {
        self.session(|s| s.exclude_target(target))
    }

    /// Name of the run.
    pub fn run_id(self, run_id: &str) -> Self {
        self.session(|s| s.run_id(run_id))
    }

    /// Longest time that ending the session may take (default 10 s).
    pub fn shutdown_timeout(self, timeout: Duration) -> Self {
        self.session(|s| s.shutdown_timeout(timeout))
    }

    /// Tells `callback` of problems as they come: an exporter that fails, a GPU that is not there. They are `tracing`
    /// events too, of the target [`core::diagnostics::TARGET`](crate::core::diagnostics::TARGET). Without this call
    /// [`start_default`](Builder::start_default), whose subscriber shows events only where `RUST_LOG` asks for them,
    /// writes problems on standard error.
    pub fn on_problem(mut self, callback: impl Fn(&Problem) + Send + Sync + 'static) -> Self {
        self.tells = true;
        self.session(|s| s.on_problem(callback))
    }

    /// Prints the account of the run on standard error when it ends, where there is somebody to read it. Off unless
    /// told otherwise.
    pub fn report_at_end(mut self, on: bool) -> Self {
        self.report_at_end = on;
        self
    }

    /// Reaches the options that have no method here.
    pub fn session(mut self, f: impl FnOnce(SessionBuilder) -> SessionBuilder) -> Self {
        self.session = f(self.session);
        self
    }

    /// The layer for a subscriber of your own, and the scope to keep. Add the layer *before the model loads*, and not behind a
    /// per-layer filter.
    ///
    /// ```
    /// use tracing_subscriber::prelude::*;
    /// let (layer, scope) = candlescope::builder().layer()?;
    /// let subscriber = tracing_subscriber::registry().with(layer);
    /// tracing::subscriber::with_default(subscriber, || tracing::trace_span!("work").in_scope(|| ()));
    /// assert_eq!(scope.finish().unwrap().counts["spans"], 1);
    /// # Ok::<(), candlescope::InitError>(())
    /// ```
    ///
    /// # Errors
    /// When a destination cannot be used; the message names it and the remedy.
    pub fn layer(self) -> Result<(CandlescopeLayer, Scope), InitError> {
        #[allow(unused_mut, reason = "changed only with the feature `host`")]
        let mut session = self.gpu.apply(self.session);
        #[cfg(feature = "host")]
        if self.host {
            session = session.collector(candlescope_collectors::host::HostCollector::new());
        }
        let (layer, session) = session.start()?;
        #[cfg(any(feature = "prometheus", feature = "otlp"))]
        for stats in self.stats {
            let handle = session.handle().clone();
            stats.with_stats(move || handle.stats());
        }
        Ok((layer, Scope::new(session, self.report_at_end, self.destinations)))
    }

    /// Starts, with a global subscriber that holds the layer, and the program's own log lines on standard error where `RUST_LOG`
    /// asks for them.
    ///
    /// # Errors
    /// When a destination cannot be used or a global subscriber is in place already.
    pub fn start_default(self) -> Result<Scope, InitError> {
        if tracing::dispatcher::has_been_set() {
            return Err(InitError::SubscriberInPlace);
        }
        let (this, quiet) = self.tell_on_stderr();
        let (layer, scope) = this.layer()?;
        let logs = std::env::var_os("RUST_LOG").map(|_| {
            let filter = tracing_subscriber::EnvFilter::from_default_env();
            // What is told on standard error already is not told there twice.
            let filter = match quiet.map(|directive| directive.parse()) {
                Some(Ok(directive)) => filter.add_directive(directive),
                _ => filter,
            };
            // A line that cannot be written is lost; telling of it where it could not be written would panic.
            tracing_subscriber::fmt::layer().with_writer(std::io::stderr).log_internal_errors(false).with_filter(filter)
        });
        let subscriber = tracing_subscriber::registry().with(layer).with(logs);
        tracing::subscriber::set_global_default(subscriber).map_err(|_| InitError::SubscriberInPlace)?;
        Ok(scope)
    }

    /// Where nobody hears of problems they are lines on standard error, and no log lines.
    fn tell_on_stderr(self) -> (Self, Option<&'static str>) {
        if self.tells {
            return (self, None);
        }
        (self.on_problem(diagnostics::to_stderr), Some("candlescope::diagnostics=off"))
    }
}
