//! The options of a session, under the names that users see.

use candlescope_core::{Collector, Exporter, Problem, Schedule, Session, SessionBuilder, Tap};
use std::time::Duration;

/// Options of a session: destinations, collectors, schedule. Finish with [`install`](Builder::install), or with
/// [`layer`](Builder::layer) if the program has its own subscriber.
#[must_use]
#[derive(Debug)]
pub struct Builder {
    pub(crate) session: SessionBuilder,
    pub(crate) destinations: Vec<String>,
    pub(crate) report_at_end: bool,
    /// Whether the program handles problems itself (`on_problem`).
    pub(crate) tells: bool,
    /// Whether SIGTERM ends the run.
    pub(crate) ends_on_sigterm: bool,
    pub(crate) gpu: crate::gpu::Gpu,
    #[cfg(feature = "host")]
    pub(crate) host: bool,
    #[cfg(feature = "stacks")]
    pub(crate) stacks: Option<candlescope_collectors::stacks::StackOptions>,
}

/// Options of a new session, with no destination yet. The host collector is on (feature `host`), and so is everything
/// of the GPU that the build and the machine have, except kernels: adaptive GPU time (`cuda`), power and memory
/// (`nvml`), ranges if a tool is attached (`nvtx`).
pub fn builder() -> Builder {
    Builder {
        session: Session::builder(),
        destinations: Vec::new(),
        report_at_end: false,
        tells: false,
        ends_on_sigterm: false,
        gpu: crate::gpu::Gpu::default(),
        #[cfg(feature = "host")]
        host: true,
        #[cfg(feature = "stacks")]
        stacks: None,
    }
}

/// A name that no other process's run has on this machine.
#[cfg(feature = "parquet")]
fn new_run_id() -> String {
    format!("run-{}-{}", candlescope_core::HostNs::now().0 / 1_000_000, std::process::id())
}

impl Builder {
    /// Writes a run into the directory `run`, which must be empty or absent. `candlescope report` reads it.
    #[cfg(feature = "parquet")]
    pub fn parquet(self, run: impl AsRef<std::path::Path>) -> Self {
        self.parquet_with(candlescope_exporters::parquet::ParquetConfig::new(run.as_ref()))
    }

    /// Writes a run into a new directory below `dir`, of a name that no other process's has on this machine.
    #[cfg(feature = "parquet")]
    pub fn parquet_below(self, dir: impl AsRef<std::path::Path>) -> Self {
        let run_id = new_run_id();
        self.parquet(dir.as_ref().join(&run_id)).run_id(&run_id)
    }

    /// The same in the folders `date=…/machine=…/` of `root`, which many machines share: engines that know Hive's folders
    /// read the days and machines that a question needs.
    #[cfg(feature = "parquet")]
    pub fn parquet_hive(self, root: impl AsRef<std::path::Path>) -> Self {
        let run_id = new_run_id();
        let config = candlescope_exporters::parquet::ParquetConfig::by_day_and_machine(root, &run_id);
        self.parquet_with(config).run_id(&run_id)
    }

    /// Like [`parquet`](Builder::parquet), with the given rotation, budget and compression.
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

    /// Like [`otlp`](Builder::otlp), with the given limits, headers and resource; the rest comes from the `OTEL_*`
    /// variables.
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

    /// Like [`otlp_metrics`](Builder::otlp_metrics), with the given interval, headers and resource; the rest comes from
    /// the `OTEL_*` variables.
    #[cfg(feature = "otlp")]
    pub fn otlp_metrics_with(self, config: candlescope_exporters::otlp::OtlpConfig) -> Self {
        self.exporter(candlescope_exporters::otlp::OtlpMetricsExporter::new(config))
    }

    /// Serves metrics for Prometheus at `address` while the session runs: `HOST:PORT`, or `PORT` for this machine only.
    #[cfg(feature = "prometheus")]
    pub fn prometheus(self, address: impl Into<String>) -> Self {
        self.prometheus_with(candlescope_exporters::prometheus::PrometheusConfig::new(address))
    }

    /// Like [`prometheus`](Builder::prometheus), with the given limit on paths.
    #[cfg(feature = "prometheus")]
    pub fn prometheus_with(self, config: candlescope_exporters::prometheus::PrometheusConfig) -> Self {
        #[cfg(unix)]
        crate::sys::close_sockets_in_forked_children();
        self.exporter(candlescope_exporters::prometheus::PrometheusExporter::new(config))
    }

    #[cfg(any(feature = "parquet", feature = "perfetto", feature = "chrome"))]
    fn wrote(&mut self, path: &std::path::Path) {
        self.destinations.push(path.display().to_string());
    }

    /// Turns the host collector (memory, CPU use, context switches) on or off; on by default.
    #[cfg(feature = "host")]
    pub fn host(mut self, on: bool) -> Self {
        self.host = on;
        self
    }

    /// Takes GPU time as `timing` says; if there is no GPU, the run says so. Without this call GPU time is adaptive if
    /// there is a CUDA device, and absent without a message if there is none.
    #[cfg(feature = "cuda")]
    pub fn gpu_timing(mut self, timing: candlescope_core::GpuTiming) -> Self {
        self.gpu.timing = match timing.tier {
            candlescope_core::GpuTier::Off => crate::gpu::Choice::Off,
            _ => crate::gpu::Choice::On(timing),
        };
        self
    }

    /// How marks are made: in which streams, and how many may be under way.
    #[cfg(feature = "cuda")]
    pub fn gpu_clock(mut self, options: candlescope_collectors::cuda::CudaClockOptions) -> Self {
        self.gpu.clock = options;
        self
    }

    /// Records kernels through CUPTI, in the windows of a schedule that counts recorded steps, or only on request. Off
    /// by default, because a step in a window takes noticeably longer.
    #[cfg(feature = "cupti")]
    pub fn cupti(mut self, windows: impl Into<crate::gpu::KernelWindows>) -> Self {
        self.gpu.kernels = Some(windows.into());
        self
    }

    /// Windows of a schedule do not begin before
    /// [`Handle::begin_kernel_windows`](candlescope_core::Handle::begin_kernel_windows), for a program that knows when it is
    /// warm.
    #[cfg(feature = "cupti")]
    #[doc(hidden)]
    pub fn cupti_held(mut self, held: bool) -> Self {
        self.gpu.holds = held;
        self
    }

    /// Follows CUDA graphs from their capture on, so that kernels of replays have the intervals in which they were captured:
    /// the tree of a step that ran as one launch. Off by default: CUPTI then stays in the process, which costs each launch
    /// up to 0.8 µs. Without [`cupti`](Self::cupti) it does nothing.
    #[cfg(feature = "cupti")]
    pub fn cupti_graphs(mut self, on: bool) -> Self {
        self.gpu.graphs = on;
        self
    }

    /// Turns samples of power, energy, memory, clocks and temperature of the GPUs on or off. If they are turned on and
    /// there is no GPU, the run says so; without this call they are taken if there is one.
    #[cfg(feature = "nvml")]
    pub fn nvml(mut self, on: bool) -> Self {
        self.gpu.nvml = if on { crate::gpu::Choice::On(()) } else { crate::gpu::Choice::Off };
        self
    }

    /// Turns NVTX ranges on or off. On by default: they cost nothing unless a tool such as Nsight Systems is attached.
    #[cfg(feature = "nvtx")]
    pub fn nvtx(mut self, on: bool) -> Self {
        self.gpu.nvtx = if on { crate::gpu::Choice::On(()) } else { crate::gpu::Choice::Off };
        self
    }

    /// Samples the call stacks of the threads that compute, `hz` times a second of CPU time of each, and records when
    /// they wait or lose their CPU: why an interval takes its time. 0 turns it off. Off by default. Linux; where the
    /// machine allows no sampling, the run says so.
    #[cfg(feature = "stacks")]
    pub fn stacks(mut self, hz: u32) -> Self {
        self.stacks = (hz > 0).then(|| candlescope_collectors::stacks::StackOptions::default().hz(hz));
        self
    }

    /// Like [`stacks`](Builder::stacks), with the given source, limits and rate.
    #[cfg(feature = "stacks")]
    pub fn stacks_with(mut self, options: candlescope_collectors::stacks::StackOptions) -> Self {
        self.stacks = Some(options);
        self
    }

    /// Adds your own exporter.
    pub fn exporter(self, exporter: impl Exporter) -> Self {
        self.session(|s| s.exporter(exporter))
    }

    /// Adds your own collector.
    pub fn collector(self, collector: impl Collector) -> Self {
        self.session(|s| s.collector(collector))
    }

    /// Adds a tap, which is called on the application's threads.
    pub fn tap(self, tap: impl Tap) -> Self {
        self.session(|s| s.tap(tap))
    }

    /// Records steps by a schedule instead of all of them.
    pub fn schedule(self, schedule: Schedule) -> Self {
        self.session(|s| s.schedule(schedule))
    }

    /// Starts with recording off; the [`Handle`](crate::Handle) turns it on.
    pub fn paused(self, paused: bool) -> Self {
        self.session(|s| s.paused(paused))
    }

    /// Measures the cost of recording in place: one step in `every` of each kind is left plain, without rows, and is
    /// compared with the recorded step beside it. The result is `overhead.in_place` of `run.json`. `every` is at least
    /// 2. Off by default.
    pub fn overhead_probe(self, every: u64) -> Self {
        self.session(|s| s.overhead_probe(every))
    }

    /// Holds the cost of recording to a share of step time, such as 0.01, by leaving steps out; see
    /// [`SessionBuilder::cost`].
    pub fn cost(self, share: f64) -> Self {
        self.session(|s| s.cost(share))
    }

    /// Leaves out spans whose target is `target` or below it.
    pub fn exclude_target(self, target: &str) -> Self {
        self.session(|s| s.exclude_target(target))
    }

    /// Name of the run; made from time and process id if not given.
    pub fn run_id(self, run_id: &str) -> Self {
        self.session(|s| s.run_id(run_id))
    }

    /// Longest time that ending the session may take (default 10 s).
    pub fn shutdown_timeout(self, timeout: Duration) -> Self {
        self.session(|s| s.shutdown_timeout(timeout))
    }

    /// Records that a thread's ring holds (64 bytes each; default 32,768), for threads whose intervals come faster than
    /// they are processed: the finding `ring_full` says when. At least 128.
    pub fn ring_capacity(self, records: usize) -> Self {
        self.session(|s| s.ring_capacity(records))
    }

    /// Records that may wait for one exporter (some 300 bytes each; default 262,144), where one is slower than the program:
    /// `queue_full` among what an exporter dropped says when.
    pub fn queue_records(self, records: u64) -> Self {
        self.session(|s| s.queue_records(records))
    }

    /// Whether SIGTERM, by which services are ended, ends the run first. Off by default, because it needs a handler of
    /// the signal.
    ///
    /// A program without a handler of its own ends as it would have, once the run is written. If it has one before the
    /// session starts, what was recorded is made durable at the signal, and the rest is left to the program: have its
    /// handler drop the scope, or call `std::process::exit`. A handler that a program installs later replaces this one,
    /// or, with the crates `signal-hook` and `tokio`, runs beside it; such a program does not need this option. On systems
    /// without signals it does nothing.
    pub fn end_on_sigterm(mut self, on: bool) -> Self {
        self.ends_on_sigterm = on;
        self
    }

    /// Calls `callback` with each problem as it occurs: an exporter that fails, a GPU that is missing. Problems are
    /// also `tracing` events of the target [`sdk::diagnostics::TARGET`](crate::sdk::diagnostics::TARGET). Without this
    /// call [`install`](Builder::install), whose subscriber shows events only if `RUST_LOG` asks for them, writes
    /// problems to standard error.
    pub fn on_problem(mut self, callback: impl Fn(&Problem) + Send + Sync + 'static) -> Self {
        self.tells = true;
        self.session(|s| s.on_problem(callback))
    }

    /// Prints the account of the run to standard error when it ends; if that cannot be written to, nothing happens. Off
    /// by default.
    pub fn report_at_end(mut self, on: bool) -> Self {
        self.report_at_end = on;
        self
    }

    /// Sets options of the session that have no method here.
    pub fn session(mut self, f: impl FnOnce(SessionBuilder) -> SessionBuilder) -> Self {
        self.session = f(self.session);
        self
    }
}
