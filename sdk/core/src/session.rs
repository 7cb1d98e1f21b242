//! A session: the layer, the pipeline behind it, and the handle that starts, stops, flushes and ends it.

use crate::HostNs;
use crate::clock::{TickMapper, deadline};
use crate::collector::Collector;
use crate::control::{Control, Schedule};
use crate::diagnostics::{Diagnostics, Problem, panic_message};
use crate::exporter::{ExportError, Exporter, describe};
use crate::gpu::{Activity, GpuClock, GpuTiming, KernelWindow};
use crate::handle::{Handle, Inner, overhead};
use crate::layer::CandlescopeLayer;
use crate::layer::gpu::GpuShared;
use crate::ledger::DropReason;
use crate::pipeline::attribute::Kernels;
use crate::pipeline::drain::{Command, Drain, DrainReport, Facts};
use crate::pipeline::enrich::Enricher;
use crate::pipeline::fanout::Lane;
use crate::pipeline::recorder::Recorder;
use crate::pipeline::{BackgroundCpu, collect};
use crate::probe::Probe;
use crate::record::RecordKind;
use crate::run::{
    ESTIMATE_IN_PLACE, ESTIMATE_LOOP, ExporterReport, Finding, OverheadInfo, RunManifest, SCHEMA_VERSION, Severity,
};
use crate::shared::{Hooks, KernelsShared, Rings, Shared};
use crate::tap::Tap;
use crate::verdict::{Evidence, verdict};
use crossbeam_channel::{Sender, bounded, unbounded};
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What an interval costs between a model's launches, as a multiple of what it costs in a loop: the driver's code has taken the caches
/// meanwhile. Measured on a small model on a GPU server: 160 ns against 59.
const IN_PLACE: f64 = 3.0;

/// A thread that has not begun a step of a kind for so long had a pause: by then a device's clocks are down.
const PAUSE_NS: f64 = 1e9;

/// Time that collectors get to stop.
const COLLECTOR_PATIENCE: Duration = Duration::from_secs(1);

/// A session could not start.
#[derive(Debug, thiserror::Error)]
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
    #[error("cannot start the profiler's thread")]
    Thread(#[from] std::io::Error),
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

    /// Whether a run without any GPU time is worth a finding (default) or as good as another: where the clock was added in case the
    /// program uses a GPU.
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
    /// ([`Handle::capture_kernels`]) where there is none. A window begins with the first step after the recorder is ready, which
    /// takes seconds the first time.
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

    /// Starts with capture off; [`Handle::start`] or [`Handle::capture_next`] turns it on. Of requests that begin and
    /// end while it is off only the number is kept.
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
    /// asked for ([`Handle::capture`], [`Handle::capture_next`]) are never left plain.
    pub fn overhead_probe(mut self, every: u64) -> Self {
        self.overhead_probe = Some(every);
        self
    }

    /// Records a thread's ring holds (64 bytes each; default 32,768).
    ///
    /// Overload policy: a full ring drops the *newest* record and counts it. Blocking would stop the application, growing
    /// would take its memory, and dropping the oldest would tear records the drain may be reading.
    pub fn ring_capacity(mut self, records: usize) -> Self {
        self.ring_capacity = records;
        self
    }

    /// Bytes that the rings of all threads may take together, with the some 75 KB that are kept for a thread besides
    /// (default 256 MiB).
    ///
    /// Overload policy: while three quarters are free, each thread that enters its first span gets a ring of
    /// [`ring_capacity`](SessionBuilder::ring_capacity) records. Those that come later get smaller ones, down to 256
    /// records, and in the end none: with the defaults from about the 1,100th thread that lives at the same time. What a
    /// thread without a ring would have recorded is counted ([`LossCounts::no_ring`](crate::run::LossCounts::no_ring)).
    /// Threads that end give back what they had.
    pub fn ring_memory(mut self, bytes: u64) -> Self {
        self.ring_memory = bytes;
        self
    }

    /// How often the rings are emptied (default 10 ms). Rings that fill slowly are left up to four times as long, because
    /// waking costs more than the work there is; ones that fill fast are emptied up to eight times as often.
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

    /// Leaves out spans whose target is `target` or below it (`hyper`, `tokio::runtime`); their children stay, as children of
    /// the span around them. Cheaper than any filter around the layer.
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

    /// Starts the session. Put the layer into a subscriber **before the model loads**, keep the guard until the work is done.
    ///
    /// # Errors
    /// When an exporter cannot start, an option has no meaning, or the system gives no thread.
    pub fn start(mut self) -> Result<(CandlescopeLayer, Session), StartError> {
        if self.ring_capacity < 128 {
            return Err(StartError::Option(format!(
                "ring_capacity is {}, but must be at least 128",
                self.ring_capacity
            )));
        }
        if let Some((_, timing)) = &self.gpu
            && !(0.0..=1.0).contains(&timing.budget)
        {
            return Err(StartError::Option(format!(
                "the budget of GPU timing is {}, but must be a share of step time from 0 to 1",
                timing.budget
            )));
        }
        if let Some(every) = self.overhead_probe.filter(|every| *every < 2) {
            return Err(StartError::Option(format!(
                "overhead_probe is {every}, but must be at least 2: one step in so many is left plain"
            )));
        }
        if let Some(every) = self.overhead_probe {
            self.manifest.options.insert("overhead_probe".into(), every.into());
        }
        self.fill_manifest();
        let background = Arc::new(BackgroundCpu::default());
        let (requests, request_queue) = bounded(4_096);
        let (clock, gpu) = match self.gpu.take() {
            Some((clock, timing)) => {
                let shared = GpuShared::new(clock.lanes(), timing);
                (Some(clock), Some(shared))
            }
            None => (None, None),
        };
        let (activity, kernels) = match self.kernels.take() {
            Some((activity, schedule)) => {
                let shared = KernelsShared { window: KernelWindow::new(schedule), correlator: activity.correlator() };
                (Some(activity), Some(shared))
            }
            None => (None, None),
        };
        let shared = Arc::new(Shared::new(
            Control::new(self.schedule, self.paused),
            Hooks {
                taps: std::mem::take(&mut self.taps),
                gpu,
                kernels,
                probe: self.overhead_probe.map(Probe::new),
                diagnostics: self.diagnostics.clone(),
            },
            std::mem::take(&mut self.excluded_targets),
            Rings { capacity: self.ring_capacity, memory: self.ring_memory },
            requests,
        ));
        let mut clock = clock;
        for (key, value) in clock.as_mut().map(|clock| clock.describe()).unwrap_or_default() {
            self.manifest.environment.entry(key).or_insert(value);
        }
        let per_interval_ns = calibrate(self.ring_capacity);
        let mut lanes = Vec::new();
        for exporter in std::mem::take(&mut self.exporters) {
            let name = exporter.name();
            match Lane::start(exporter, &self.manifest, self.queue_records, background.clone(), &self.diagnostics) {
                Ok(lane) => lanes.push(lane),
                Err(cause) => {
                    lanes.into_iter().for_each(Lane::abandon);
                    return Err(StartError::Exporter { name, cause });
                }
            }
        }
        let ledgers = lanes.iter().map(|lane| (lane.name, lane.ledger.clone())).collect();
        let (samples, sample_queue) = bounded(1_024);
        let (commands, command_queue) = unbounded();
        let facts = Arc::new(Mutex::new(Facts::default()));
        let queued = Arc::new(AtomicU64::new(0));
        let manifest = Arc::new(Mutex::new(self.manifest));
        let manifest_changed = Arc::new(AtomicBool::new(false));
        let mapper = TickMapper::new(shared.ticks.clone());
        if let Some(gpu) = &shared.gpu {
            let in_place_ns = per_interval_ns * IN_PLACE;
            gpu.interval_ticks.store((in_place_ns / mapper.ns_per_tick()).round() as u64, Ordering::Relaxed);
            gpu.pause_ticks.store((PAUSE_NS / mapper.ns_per_tick()).round() as u64, Ordering::Relaxed);
        }
        let kernels = match activity {
            Some(activity) => {
                match start_recorder(activity, &shared, &mapper, &background, &manifest, &manifest_changed) {
                    Ok(kernels) => Some(kernels),
                    Err(error) => {
                        lanes.into_iter().for_each(Lane::abandon);
                        return Err(error);
                    }
                }
            }
            None => None,
        };
        let enricher = Enricher::new(clock, kernels, self.expect_gpu);
        let drain = Drain {
            shared: shared.clone(),
            lanes,
            requests: request_queue,
            samples: sample_queue,
            commands: command_queue,
            interval: self.drain_interval.max(Duration::from_micros(100)),
            gpu_patience: (self.shutdown_timeout / 4).min(Duration::from_secs(2)),
            facts: facts.clone(),
            queued,
            background: background.clone(),
            manifest: manifest.clone(),
            manifest_changed: manifest_changed.clone(),
            per_interval_ns,
        };
        let drain_thread =
            std::thread::Builder::new().name("cs-drain".into()).spawn(move || run_drain(drain, mapper, enricher))?;
        let (stop_collect, stopped) = bounded::<()>(0);
        let failures = collect::Failures::default();
        let collect_thread = if self.collectors.is_empty() {
            None
        } else {
            let collectors = std::mem::take(&mut self.collectors);
            Some(collect::start(collectors, samples, stopped, failures.clone(), shared.clone(), background.clone())?)
        };
        let handle = Handle(Arc::new(Inner {
            shared: shared.clone(),
            commands,
            facts,
            ledgers,
            manifest,
            manifest_changed,
            started_paused: self.paused,
            ever_started: AtomicBool::new(!self.paused),
            per_interval_ns,
            capturing: Arc::default(),
            captures: AtomicU64::new(0),
            background: background.clone(),
            queue_records: self.queue_records,
        }));
        let session = Session {
            handle,
            drain_thread: Some(drain_thread),
            collect_thread,
            stop_collect: Some(stop_collect),
            failures,
            background,
            findings: self.findings,
            shutdown_timeout: self.shutdown_timeout,
            finished: None,
            collectors_hang: false,
        };
        Ok((CandlescopeLayer::new(shared), session))
    }

    /// What is known of the run before it begins.
    fn fill_manifest(&mut self) {
        let m = &mut self.manifest;
        // What the program says of its options goes before what they were resolved to.
        let mut option = |key: &str, value: Value| _ = m.options.entry(key.into()).or_insert(value);
        if let Some(schedule) = self.schedule {
            option("schedule", serde_json::json!(schedule));
        }
        option("paused", self.paused.into());
        option("ring_capacity", self.ring_capacity.into());
        option("ring_memory", self.ring_memory.into());
        option("queue_records", self.queue_records.into());
        option("drain_interval_ms", (self.drain_interval.as_secs_f64() * 1e3).into());
        if !self.excluded_targets.is_empty() {
            option("excluded_targets", serde_json::json!(self.excluded_targets));
        }
        if let Some((_, timing)) = &self.gpu {
            option("gpu_timing", timing.tier.as_str().into());
            option("gpu_budget", timing.budget.into());
        }
        if let Some((_, Some(schedule))) = &self.kernels {
            option("kernels_schedule", serde_json::json!(schedule));
        }
        m.schema_version = SCHEMA_VERSION;
        m.started_ns = HostNs::now().0;
        m.host = host_name();
        if m.run_id.is_empty() {
            m.run_id = format!("run-{}-{}", m.started_ns / 1_000_000, std::process::id());
        }
        m.environment.entry("candlescope".into()).or_insert_with(|| env!("CARGO_PKG_VERSION").into());
        m.environment.entry("os".into()).or_insert_with(|| std::env::consts::OS.into());
        m.environment.entry("arch".into()).or_insert_with(|| std::env::consts::ARCH.into());
        for collector in &mut self.collectors {
            for (key, value) in collector.describe() {
                m.environment.entry(key).or_insert(value);
            }
        }
    }
}

/// Starts the thread that records kernels, and gives the drain's end of it.
fn start_recorder(
    activity: Box<dyn Activity>,
    shared: &Arc<Shared>,
    mapper: &TickMapper,
    background: &Arc<BackgroundCpu>,
    manifest: &Arc<Mutex<RunManifest>>,
    manifest_changed: &Arc<AtomicBool>,
) -> Result<Kernels, StartError> {
    let (ask, asks) = unbounded();
    let (deliver, deliveries) = unbounded();
    let error = Arc::new(Mutex::new(None));
    let kernels = Kernels::new(activity.name(), ask, deliveries, error.clone());
    let (manifest, changed) = (manifest.clone(), manifest_changed.clone());
    let recorder = Recorder {
        activity,
        shared: shared.clone(),
        asks,
        deliveries: deliver,
        host: mapper.host_clock(),
        error,
        background: background.clone(),
        describe: Box::new(move |activity| {
            let facts = activity.describe();
            let mut manifest = manifest.lock().unwrap_or_else(PoisonError::into_inner);
            for (key, value) in facts {
                manifest.environment.entry(key).or_insert(value);
            }
            changed.store(true, Ordering::Release);
        }),
    };
    // Detached: it ends when the drain does, and a driver call that hangs must not hold the application up.
    recorder.start()?;
    Ok(kernels)
}

fn host_name() -> String {
    #[cfg(target_os = "linux")]
    {
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    }
    #[cfg(not(target_os = "linux"))]
    {
        std::env::var("HOSTNAME").or_else(|_| std::env::var("COMPUTERNAME")).unwrap_or_else(|_| "localhost".into())
    }
}

/// Measures what one enter+exit of a span costs on this machine, in nanoseconds: registry and layer, caches warm, in a
/// loop. The median of several short rounds over as many spans as a model has.
fn calibrate(ring_capacity: usize) -> f64 {
    use tracing_subscriber::layer::SubscriberExt;
    const SPANS: usize = 256;
    let (requests, _) = bounded(1);
    let control = Control::new(None, false);
    let rings = Rings { capacity: ring_capacity.max(4_096), memory: u64::MAX };
    let shared = Arc::new(Shared::new(control, Hooks::default(), Vec::new(), rings, requests));
    let subscriber = tracing_subscriber::registry().with(CandlescopeLayer::new(shared.clone()));
    tracing::subscriber::with_default(subscriber, || {
        let step = tracing::trace_span!("step");
        let spans: Vec<_> = (0..SPANS).map(|_| tracing::trace_span!("interval")).collect();
        let mut rounds = Vec::new();
        let mut ring = None;
        for _ in 0..31 {
            let inside = step.enter();
            let start = Instant::now();
            for span in &spans {
                let _entered = span.enter();
            }
            rounds.push(start.elapsed().as_nanos() as f64 / SPANS as f64);
            drop(inside);
            let new = shared.new_threads.lock().unwrap_or_else(PoisonError::into_inner).pop();
            ring = new.map(|thread| thread.ring).or(ring);
            if let Some(ring) = &mut ring {
                while ring.pop().is_ok() {}
            }
        }
        rounds.sort_by(f64::total_cmp);
        rounds[rounds.len() / 2]
    })
}

/// Keeps a session alive. Dropping it flushes and ends the session within the shutdown timeout.
#[must_use = "the session ends when this guard is dropped"]
#[derive(Debug)]
pub struct Session {
    handle: Handle,
    drain_thread: Option<JoinHandle<()>>,
    collect_thread: Option<JoinHandle<()>>,
    stop_collect: Option<Sender<()>>,
    failures: collect::Failures,
    /// Noticed while setting up.
    findings: Vec<Finding>,
    background: Arc<BackgroundCpu>,
    shutdown_timeout: Duration,
    finished: Option<RunManifest>,
    collectors_hang: bool,
}

impl Session {
    /// Options of a new session.
    pub fn builder() -> SessionBuilder {
        SessionBuilder::default()
    }

    /// The handle, to control the session from elsewhere.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Ends the session and returns the final manifest: counts, losses, verdict.
    pub fn finish(mut self) -> RunManifest {
        self.shutdown();
        self.finished.clone().unwrap_or_default()
    }

    fn shutdown(&mut self) {
        let Some(drain_thread) = self.drain_thread.take() else {
            return;
        };
        let deadline = deadline(self.shutdown_timeout);
        // Collectors first: their last samples belong to the run. One that hangs must not cost what the others recorded.
        self.stop_collect = None;
        if let Some(thread) = self.collect_thread.take() {
            let patience = COLLECTOR_PATIENCE.min(self.shutdown_timeout / 4);
            self.collectors_hang = !join_until(thread, Instant::now() + patience);
        }
        crate::layer::place::leave(self.handle.0.shared.session);
        let (answer, report) = bounded(1);
        let _ = self.handle.0.commands.send(Command::Stop(answer));
        match report.recv_deadline(deadline) {
            Ok(report) => {
                join_until(drain_thread, deadline);
                let captures = self.finish_exporters(report, deadline);
                captures.into_iter().for_each(|thread| _ = join_until(thread, deadline));
            }
            Err(_) => self.finished = Some(self.manifest_without_pipeline(drain_thread, deadline)),
        }
    }

    /// What can be said where the pipeline does not answer: it is stuck, or a panic has ended it.
    fn manifest_without_pipeline(&self, drain: JoinHandle<()>, deadline: Instant) -> RunManifest {
        let (code, message, remedy) = match outcome_until(drain, deadline) {
            Some(outcome) => {
                let said = outcome.as_ref().err().map_or("it ended before the session", |p| panic_message(p.as_ref()));
                (
                    "pipeline_panicked",
                    format!("the pipeline panicked, so the run stays incomplete: {said}"),
                    "please report it with this message; a source of GPU time of your own runs in the pipeline too",
                )
            }
            None => {
                let message = format!(
                    "the pipeline did not stop within {:?}, so the run stays incomplete",
                    self.shutdown_timeout
                );
                self.handle.0.shared.diagnostics.report("", message.as_str());
                ("pipeline_stuck", message, "raise the shutdown timeout, or record fewer steps with a schedule")
            }
        };
        let mut manifest = self.handle.with_manifest(|m| m.clone());
        manifest.verdict.ok = false;
        manifest.verdict.findings.push(Finding {
            severity: Severity::Error,
            code: code.into(),
            message,
            remedy: remedy.into(),
        });
        manifest
    }

    /// Returns the threads that still write captured runs.
    fn finish_exporters(&mut self, mut report: DrainReport, deadline: Instant) -> Vec<JoinHandle<()>> {
        // All close at the same time, so that one slow exporter does not use up the others' time.
        let closing: Vec<_> = report
            .lanes
            .iter()
            .map(|lane| {
                let (done, answer) = bounded(1);
                lane.request_close(done, deadline);
                answer
            })
            .collect();
        let mut unresponsive = Vec::new();
        for (lane, answer) in report.lanes.iter().zip(closing) {
            if answer.recv_deadline(deadline).is_err() {
                lane.ledger.settle(DropReason::Shutdown);
                unresponsive.push(lane.name);
            }
        }
        let manifest = Arc::new(self.final_manifest(&report, &unresponsive));
        let finishing: Vec<_> = report
            .lanes
            .iter()
            .filter(|lane| !unresponsive.contains(&lane.name))
            .map(|lane| {
                let (done, answer) = bounded(1);
                lane.request_finish(manifest.clone(), done, deadline);
                answer
            })
            .collect();
        for answer in finishing {
            let _ = answer.recv_deadline(deadline);
        }
        let mut manifest = (*manifest).clone();
        for (lane, before) in report.lanes.iter_mut().zip(&mut manifest.exporters) {
            lane.join_if_done();
            let after = lane.ledger.report(lane.name);
            if after.last_error != before.last_error {
                // Too late for the manifest that was exported, but not for whoever called `finish`.
                manifest.verdict.findings.push(finish_failed(&after));
                manifest.verdict.ok = false;
                *before = after;
            }
        }
        self.finished = Some(manifest);
        report.captures
    }

    fn final_manifest(&self, report: &DrainReport, unresponsive: &[&'static str]) -> RunManifest {
        let facts = &report.facts;
        let mut m = self.handle.with_manifest(|m| m.clone());
        m.ended_ns = Some(HostNs::now().0);
        m.complete = true;
        m.clock = report.clock.clone();
        m.counts = RecordKind::ALL.into_iter().map(|k| (k.table().into(), facts.counts[k as usize])).collect();
        m.loss = facts.loss;
        m.steps = Some(facts.steps);
        m.exporters = report.lanes.iter().map(|lane| lane.ledger.report(lane.name)).collect();
        m.gpu = report.gpu.clone();
        let marks_ns = m.gpu.as_ref().map_or(0, |gpu| gpu.marks_ns);
        let (application_ns, ratio) =
            overhead(self.handle.0.per_interval_ns, facts.loss.emitted, marks_ns, facts.step_ns);
        m.overhead = OverheadInfo {
            per_interval_ns: self.handle.0.per_interval_ns,
            application_ns,
            background_cpu_ns: self.background.total_ns(),
            ratio,
            estimate: if report.in_place.is_some() { ESTIMATE_IN_PLACE } else { ESTIMATE_LOOP }.into(),
            in_place: report.in_place.clone(),
        };
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let inner = &self.handle.0;
        let noticed: Vec<Finding> = self.findings.iter().cloned().chain(inner.shared.notices.findings()).collect();
        m.verdict = verdict(&Evidence {
            facts,
            clock: &m.clock,
            exporters: &m.exporters,
            collector_failures: &failures,
            unresponsive,
            unresponsive_collectors: self.collectors_hang.then_some("their thread is still busy"),
            gpu: m.gpu.as_ref(),
            noticed: &noticed,
            paused_throughout: inner.started_paused && !inner.ever_started.load(Ordering::Relaxed),
            capture: false,
        });
        if let Some(error) = m.results.get("error").and_then(Value::as_str) {
            m.verdict.findings.push(program_failed(error));
            m.verdict.ok = false;
        }
        m
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shutdown();
    }
}

fn program_failed(error: &str) -> Finding {
    Finding {
        severity: Severity::Error,
        code: "program_failed".into(),
        message: format!("the program ended with an error: {error}"),
        remedy: "the figures are of what it did until then; put the error right and run it again".into(),
    }
}

fn finish_failed(report: &ExporterReport) -> Finding {
    Finding {
        severity: Severity::Error,
        code: "exporter_finish_failed".into(),
        message: format!("exporter {}: {}", report.name, report.last_error.as_deref().unwrap_or("unknown error")),
        remedy: "its last output is missing or out of date; what it had finished before is intact".into(),
    }
}

/// The thread `cs-drain`. Where it panics that is told at once: a program may go on for days without being recorded.
fn run_drain(drain: Drain, mapper: TickMapper, enricher: Enricher) {
    let diagnostics = drain.shared.diagnostics.clone();
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drain.run(mapper, enricher))) {
        let said = panic_message(payload.as_ref());
        diagnostics.report("", format!("the pipeline panicked, so nothing is recorded from here on: {said}"));
        resume_unwind(payload);
    }
}

/// Joins a thread unless it takes longer than allowed; then it is left to itself. Returns whether it was joined.
fn join_until(thread: JoinHandle<()>, deadline: Instant) -> bool {
    outcome_until(thread, deadline).is_some()
}

/// As [`join_until`], with what became of the thread.
fn outcome_until(thread: JoinHandle<()>, deadline: Instant) -> Option<std::thread::Result<()>> {
    while !thread.is_finished() {
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Some(thread.join())
}
