//! A session's options. `start` starts it, `ending` ends it.

mod distributed;
mod ending;
mod start;

pub use ending::Session;
pub use start::host_name;

use crate::Schedule;
use crate::collector::Collector;
use crate::diagnostics::{Diagnostics, Problem};
use crate::exporter::{ExportError, Exporter, describe};
use crate::gpu::{Activity, GpuClock, GpuTiming};
use crate::pipeline::threads::NO_THREAD;
use crate::run::{Finding, RunManifest};
use crate::stacks::StackSource;
use crate::tap::Tap;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// A session could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// An exporter could not start; its message names the file or service and the remedy.
    #[error("the {name} exporter cannot start: {}", describe(.cause))]
    Exporter {
        /// Name of the exporter.
        name: &'static str,
        /// What the exporter's `start` returned.
        cause: ExportError,
    },
    /// The operating system refused to start a thread.
    #[error("cannot start the profiler's thread {name}: {source}; {NO_THREAD}")]
    Thread {
        /// Name of the thread.
        name: &'static str,
        /// Why the operating system refused.
        source: std::io::Error,
    },
    /// An option has an impossible value.
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
    kernels_apart: Duration,
    kernels_held: bool,
    stacks: Option<Box<dyn StackSource>>,
    expect_gpu: bool,
    rank_given: bool,
    findings: Vec<Finding>,
    schedule: Option<Schedule>,
    paused: bool,
    overhead_probe: Option<u64>,
    cost: Option<f64>,
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
            kernels_apart: Duration::ZERO,
            kernels_held: false,
            stacks: None,
            expect_gpu: true,
            rank_given: false,
            findings: Vec::new(),
            schedule: None,
            paused: false,
            overhead_probe: None,
            cost: None,
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
    /// Adds a destination; each has a thread and a queue of its own.
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

    /// Samples call stacks and what threads do off the CPU with `source`.
    #[doc(hidden)]
    pub fn stacks(mut self, source: impl StackSource) -> Self {
        self.stacks = Some(Box::new(source));
        self
    }

    /// Takes GPU time with `clock`, as `timing` says. A session has one clock: a second call replaces the first.
    #[doc(hidden)]
    pub fn gpu(mut self, clock: impl GpuClock, timing: GpuTiming) -> Self {
        self.gpu = Some((Box::new(clock), timing));
        self
    }

    /// Whether a run without any GPU time gets a finding (default). Turn it off if the clock was added only in case the
    /// program uses a GPU.
    #[doc(hidden)]
    pub fn expect_gpu(mut self, expect: bool) -> Self {
        self.expect_gpu = expect;
        self
    }

    /// Adds a finding from the program's setup to the run's verdict.
    pub fn finding(mut self, finding: Finding) -> Self {
        self.findings.push(finding);
        self
    }

    /// Records kernels with `activity` in the windows of `schedule`, which counts recorded steps, or, if there is none,
    /// only on request ([`Handle::capture_kernels`](crate::Handle::capture_kernels)). A window begins with the first
    /// step after the recorder is ready, which takes seconds the first time.
    #[doc(hidden)]
    pub fn kernels(mut self, activity: impl Activity, schedule: Option<Schedule>) -> Self {
        self.kernels = Some((Box::new(activity), schedule));
        self
    }

    /// Least time between the beginnings of two windows of the schedule: switching a recorder on and off costs more than a
    /// window's steps. A window that is due sooner begins later, with the first step after that time. Those on request come
    /// at once.
    #[doc(hidden)]
    pub fn kernels_apart(mut self, apart: Duration) -> Self {
        self.kernels_apart = apart;
        self
    }

    /// Windows of the schedule do not begin before [`Handle::begin_kernel_windows`](crate::Handle::begin_kernel_windows), for
    /// a program that knows when it is warm.
    #[doc(hidden)]
    pub fn kernels_held(mut self, held: bool) -> Self {
        self.kernels_held = held;
        self
    }

    /// Records steps by a schedule instead of all of them. Requests are recorded and counted whatever becomes of their
    /// steps.
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = Some(schedule);
        self
    }

    /// Starts with recording off; [`Handle::start`](crate::Handle::start) or
    /// [`Handle::capture_next`](crate::Handle::capture_next) turns it on. Requests that begin and end while it is off
    /// are only counted.
    pub fn paused(mut self, paused: bool) -> Self {
        self.paused = paused;
        self
    }

    /// Measures the cost of recording in place: one step in `every` of each kind is left plain, with only its duration
    /// recorded, and is compared with the recorded step beside it. The result is `overhead.in_place` of `run.json`.
    /// Without this option, which is off by default, there is only the loop's estimate. `every` is at least 2; with 10,
    /// narrow confidence intervals need some hundred steps of a kind.
    ///
    /// A plain step has no rows and is in no figure. The first three steps of a kind are never left plain, and neither
    /// are those of a window that was asked for ([`Handle::capture`](crate::Handle::capture),
    /// [`Handle::capture_next`](crate::Handle::capture_next)).
    pub fn overhead_probe(mut self, every: u64) -> Self {
        self.overhead_probe = Some(every);
        self
    }

    /// Holds the cost of recording to a share of all steps' time, such as 0.01: it is measured in place, as by
    /// [`overhead_probe`](Self::overhead_probe) (one step in five unless told otherwise), and steps are left out, at
    /// random and eight of a thread in a row, until what the others cost is within it. `overhead.budget` of `run.json`
    /// says whether it was held, with the interval of the measurement; [`Schedule`]s and windows that are asked for go
    /// on. Until six plain steps of a kind could be compared, all others are recorded. Windows of kernels count, and
    /// have all their steps; stacks, whose samples come in every step, do not count.
    pub fn cost(mut self, share: f64) -> Self {
        self.cost = Some(share);
        self
    }

    /// Number of records that a thread's ring holds (64 bytes each; default 32,768).
    ///
    /// Overload policy: a full ring drops the *newest* record and counts it. Blocking would stop the application,
    /// growing would take its memory, and dropping the oldest would tear records that the drain may be reading.
    pub fn ring_capacity(mut self, records: usize) -> Self {
        self.ring_capacity = records;
        self
    }

    /// Bytes that the rings of all threads may take together, including about 75 KB of other state per thread (default
    /// 256 MiB).
    ///
    /// Overload policy: while three quarters of it are free, each thread that enters its first span gets a ring of
    /// [`ring_capacity`](SessionBuilder::ring_capacity) records. Later threads get smaller rings, down to 256 records,
    /// and in the end none: with the defaults, from about the 1,100th thread alive at the same time. What a thread
    /// without a ring would have recorded is counted ([`LossCounts::no_ring`](crate::run::LossCounts::no_ring)),
    /// including spans of excluded targets. Threads that end return their room; a thread without a ring does not get
    /// one later.
    pub fn ring_memory(mut self, bytes: u64) -> Self {
        self.ring_memory = bytes;
        self
    }

    /// How often the rings are emptied (default 10 ms). Rings that fill slowly are emptied up to four times less often,
    /// because waking up costs more than emptying them; rings that fill fast are emptied up to eight times as often.
    pub fn drain_interval(mut self, interval: Duration) -> Self {
        self.drain_interval = interval;
        self
    }

    /// Number of records that may wait for one exporter (default 262,144).
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
    /// children of the span around them. This is cheaper than any filter around the layer.
    pub fn exclude_target(mut self, target: impl Into<String>) -> Self {
        self.excluded_targets.push(target.into());
        self
    }

    /// Calls `callback` with each problem as it occurs: an exporter that fails, a recorder that gives up. Problems are
    /// also `tracing` events of the target [`diagnostics::TARGET`](crate::diagnostics::TARGET), and lasting ones are in
    /// the run's verdict. A second call replaces the first.
    ///
    /// It is called on the profiler's own threads, possibly on several at once, and must not wait for the session. A
    /// panic in it is caught. To write problems to standard error:
    /// `.on_problem(candlescope_core::diagnostics::to_stderr)`.
    pub fn on_problem(mut self, callback: impl Fn(&Problem) + Send + Sync + 'static) -> Self {
        self.diagnostics = Diagnostics::new(callback);
        self
    }

    /// Reports a problem found while setting up, in the same way as the session's own problems
    /// ([`on_problem`](SessionBuilder::on_problem)).
    pub fn report_problem(&self, source: &str, message: &str) {
        self.diagnostics.report(source, message);
    }

    /// Name of the run; made from time and process id if not given.
    pub fn run_id(mut self, run_id: impl Into<String>) -> Self {
        self.manifest.run_id = run_id.into();
        self
    }

    /// Rank of this process in a distributed run.
    ///
    /// Without it, it is taken from the environment, where launchers put it: `RANK` and `WORLD_SIZE` (torchrun),
    /// `OMPI_COMM_WORLD_*`, `PMI_*`, `SLURM_PROCID` and `SLURM_STEP_NUM_TASKS` (srun).
    pub fn rank(mut self, rank: u32) -> Self {
        (self.manifest.rank, self.rank_given) = (rank, true);
        self
    }

    /// Processes of the distributed run that this one is a rank of: runs of the same number that ran at the same time are
    /// read as one. Taken from the environment in the same way.
    pub fn world_size(mut self, processes: u32) -> Self {
        self.manifest.world_size = Some(processes);
        self
    }

    /// What the job is called whose processes are the ranks: the same in all of them, and in no other of as many
    /// processes at the same time.
    ///
    /// Taken from the environment in the same way: `TORCHELASTIC_RUN_ID`, `MASTER_ADDR` and `MASTER_PORT` (torchrun),
    /// `PMIX_NAMESPACE` (Open MPI), `PMI_JOBID`, `SLURM_JOB_ID` and `SLURM_STEP_ID` (srun).
    pub fn job(mut self, job: impl Into<String>) -> Self {
        self.manifest.job = Some(job.into());
        self
    }

    /// Adds a fact about the environment to `run.json`.
    pub fn environment(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.manifest.environment.insert(key.into(), value.into());
        self
    }

    /// Adds an option, as it was resolved, to `run.json`.
    pub fn option(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.manifest.options.insert(key.into(), value.into());
        self
    }
}
