//! A session: its options. Its start is in `start`, its end in `ending`.

mod ending;
mod start;

pub use ending::Session;

use crate::collector::Collector;
use crate::control::Schedule;
use crate::diagnostics::{Diagnostics, Problem};
use crate::exporter::{ExportError, Exporter, describe};
use crate::gpu::{Activity, GpuClock, GpuTiming};
use crate::pipeline::threads::NO_THREAD;
use crate::run::{Finding, RunManifest};
use crate::tap::Tap;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// A session could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// An exporter refused; its message names the file or service and the remedy.
    #[error("the {name} exporter cannot start: {}", describe(.cause))]
    Exporter {
        /// Name of the exporter.
        name: &'static str,
        /// Why.
        cause: ExportError,
    },
    /// The operating system gave no thread.
    #[error("cannot start the profiler's thread {name}: {source}; {NO_THREAD}")]
    Thread {
        /// Name of the thread.
        name: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
    /// An option has no meaning.
    #[error("{0}")]
    Option(String),
}

/// Options of a session. Start it with [`start`](SessionBuilder::start).
#[must_use]
pub struct SessionBuilder {
    exporters: Vec<Box<dyn Exporter>>,
    collectors: Vec<Box<dyn Collector>>,
    taps: Vec<Arc<dyn Tap>>,
    gpu: Option<(Box<dyn GpuClock>, GpuTiming)>,
    kernels: Option<(Box<dyn Activity>, Option<Schedule>)>,
    expect_gpu: bool,
    findings: Vec<Finding>,
    schedule: Option<Schedule>,
    paused: bool,
    overhead_probe: Option<u64>,
    ring_capacity: usize,
    ring_memory: u64,
    drain_interval: Duration,
    queue_records: u64,
    shutdown_timeout: Duration,
    excluded_targets: Vec<String>,
    diagnostics: Diagnostics,
    manifest: RunManifest,
}

impl std::fmt::Debug for SessionBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionBuilder").field("run_id", &self.manifest.run_id).finish_non_exhaustive()
    }
}

impl Default for SessionBuilder {
    fn default() -> Self {
        Self {
            exporters: Vec::new(),
            collectors: Vec::new(),
            taps: Vec::new(),
            gpu: None,
            kernels: None,
            expect_gpu: true,
            findings: Vec::new(),
            schedule: None,
            paused: false,
            overhead_probe: None,
            ring_capacity: 32_768,
            ring_memory: 256 << 20,
            drain_interval: Duration::from_millis(10),
            queue_records: 262_144,
            shutdown_timeout: Duration::from_secs(10),
            excluded_targets: Vec::new(),
            diagnostics: Diagnostics::default(),
            manifest: RunManifest::default(),
        }
    }
}

impl SessionBuilder {
    /// Adds a destination.
    pub fn exporter(mut self, exporter: impl Exporter) -> Self {
        self.exporters.push(Box::new(exporter));
        self
    }

    /// Adds a source of samples.
    pub fn collector(mut self, collector: impl Collector) -> Self {
        self.collectors.push(Box::new(collector));
        self
    }

    /// Adds a tap on the application's threads.
    pub fn tap(mut self, tap: impl Tap) -> Self {
        self.taps.push(Arc::new(tap));
        self
    }

    /// Takes GPU time with `clock`, as `timing` says. One clock a session: a second call replaces the first.
    pub fn gpu(mut self, clock: impl GpuClock, timing: GpuTiming) -> Self {
        self.gpu = Some((Box::new(clock), timing));
        self
    }

    /// Whether a run without any GPU time is worth a finding (default) or as good as another: where the clock was added
    /// in case the program uses a GPU.
    pub fn expect_gpu(mut self, expect: bool) -> Self {
        self.expect_gpu = expect;
        self
    }

    /// Adds something to the run's verdict that was noticed while setting up.
    pub fn finding(mut self, finding: Finding) -> Self {
        self.findings.push(finding);
        self
    }

    /// Records kernels with `activity`: in the windows of `schedule`, which counts recorded steps, or only on request
    /// ([`Handle::capture_kernels`](crate::Handle::capture_kernels)) where there is none. A window begins with the
    /// first step after the recorder is ready, which takes seconds the first time.
    pub fn kernels(mut self, activity: impl Activity, schedule: Option<Schedule>) -> Self {
        self.kernels = Some((Box::new(activity), schedule));
        self
    }

    /// Records steps by a schedule instead of all of them. Requests are recorded and counted all the same, whatever
    /// becomes of their steps.
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = Some(schedule);
        self
    }

    /// Starts with capture off; [`Handle::start`](crate::Handle::start) or
    /// [`Handle::capture_next`](crate::Handle::capture_next) turns it on. Of requests that begin and end while it is
    /// off only the number is kept.
    pub fn paused(mut self, paused: bool) -> Self {
        self.paused = paused;
        self
    }

    /// Measures in place what recording costs: leaves one step in `every` of each kind plain, with nothing recorded of
    /// it but how long it took, and holds it against the recorded ones beside it. The result is `overhead.in_place` of
    /// `run.json`; without this option, which is off, there is only what a loop says. `every` is at least 2; with 10,
    /// tight intervals want some hundred steps of a kind.
    ///
    /// A plain step has no rows and is in no figure; the first three steps of a kind and those of a window that was
    /// asked for ([`Handle::capture`](crate::Handle::capture), [`Handle::capture_next`](crate::Handle::capture_next))
    /// are never left plain.
    pub fn overhead_probe(mut self, every: u64) -> Self {
        self.overhead_probe = Some(every);
        self
    }

    /// Records a thread's ring holds (64 bytes each; default 32,768).
    ///
    /// Overload policy: a full ring drops the *newest* record and counts it. Blocking would stop the application,
    /// growing would take its memory, and dropping the oldest would tear records the drain may be reading.
    pub fn ring_capacity(mut self, records: usize) -> Self {
        self.ring_capacity = records;
        self
    }

    /// Bytes that the rings of all threads may take together, with the some 75 KB that are kept for a thread besides
    /// (default 256 MiB).
    ///
    /// Overload policy: while three quarters are free, each thread that enters its first span gets a ring of
    /// [`ring_capacity`](SessionBuilder::ring_capacity) records. Those that come later get smaller ones, down to 256
    /// records, and in the end none: with the defaults from about the 1,100th thread that lives at the same time. What
    /// a thread without a ring would have recorded is counted
    /// ([`LossCounts::no_ring`](crate::run::LossCounts::no_ring)), spans of excluded targets with it. Threads that end
    /// give back what they had; a thread without a ring gets none later.
    pub fn ring_memory(mut self, bytes: u64) -> Self {
        self.ring_memory = bytes;
        self
    }

    /// How often the rings are emptied (default 10 ms). Rings that fill slowly are left up to four times as long,
    /// because waking costs more than the work there is; ones that fill fast are emptied up to eight times as often.
    pub fn drain_interval(mut self, interval: Duration) -> Self {
        self.drain_interval = interval;
        self
    }

    /// Records that may wait for one exporter (default 262,144).
    ///
    /// Overload policy: a batch that finds the queue full is dropped for that exporter only, and counted.
    pub fn queue_records(mut self, records: u64) -> Self {
        self.queue_records = records;
        self
    }

    /// Longest time that dropping the guard may take (default 10 s).
    pub fn shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.shutdown_timeout = timeout;
        self
    }

    /// Leaves out spans whose target is `target` or below it (`hyper`, `tokio::runtime`); their children stay, as
    /// children of the span around them. Cheaper than any filter around the layer.
    pub fn exclude_target(mut self, target: impl Into<String>) -> Self {
        self.excluded_targets.push(target.into());
        self
    }

    /// Tells `callback` of problems as they come: an exporter that fails, a recorder that gives up. They are also
    /// `tracing` events of the target [`diagnostics::TARGET`](crate::diagnostics::TARGET), and the lasting ones are
    /// in the run's verdict. A second call replaces the first.
    ///
    /// It is called on the profiler's own threads, one after the other or at once, and must not wait for the session.
    /// A panic in it is caught. To have problems on standard error:
    /// `.on_problem(candlescope_core::diagnostics::to_stderr)`.
    pub fn on_problem(mut self, callback: impl Fn(&Problem) + Send + Sync + 'static) -> Self {
        self.diagnostics = Diagnostics::new(callback);
        self
    }

    /// Tells a problem that was met while setting up, as [`on_problem`](SessionBuilder::on_problem) tells those of
    /// the session.
    pub fn report_problem(&self, source: &str, message: &str) {
        self.diagnostics.report(source, message);
    }

    /// Name of the run; made up from time and process id if not given.
    pub fn run_id(mut self, run_id: impl Into<String>) -> Self {
        self.manifest.run_id = run_id.into();
        self
    }

    /// Rank of this process in a distributed run.
    pub fn rank(mut self, rank: u32) -> Self {
        self.manifest.rank = rank;
        self
    }

    /// Adds a fact about the environment to `run.json`.
    pub fn environment(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.manifest.environment.insert(key.into(), value.into());
        self
    }

    /// Adds an option as resolved to `run.json`.
    pub fn option(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.manifest.options.insert(key.into(), value.into());
        self
    }
}
