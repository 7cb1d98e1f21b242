//! A session: its options, and how the layer, the pipeline behind it and the handle come to be. Its end is in `ending`.

mod ending;

pub use ending::Session;

use crate::HostNs;
use crate::clock::TickMapper;
use crate::collector::Collector;
use crate::control::{Control, Schedule};
use crate::diagnostics::{Diagnostics, Problem, panic_message};
use crate::exporter::{ExportError, Exporter, describe};
use crate::gpu::{Activity, GpuClock, GpuTiming, KernelWindow};
use crate::handle::{Handle, Inner};
use crate::layer::CandlescopeLayer;
use crate::layer::gpu::GpuShared;
use crate::pipeline::attribute::Kernels;
use crate::pipeline::drain::{Drain, Facts};
use crate::pipeline::enrich::Enricher;
use crate::pipeline::fanout::Lane;
use crate::pipeline::recorder::Recorder;
use crate::pipeline::threads::{self, NO_THREAD};
use crate::pipeline::{BackgroundCpu, collect};
use crate::probe::Probe;
use crate::run::{Finding, RunManifest, SCHEMA_VERSION};
use crate::shared::{Hooks, KernelsShared, Rings, Shared};
use crate::tap::Tap;
use crossbeam_channel::{bounded, unbounded};
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What an interval costs between a model's launches, as a multiple of what it costs in a loop: the driver's code has taken the caches
/// meanwhile. Measured on a small model on a GPU server: 160 ns against 59.
const IN_PLACE: f64 = 3.0;

/// A thread that has not begun a step of a kind for so long had a pause: by then a device's clocks are down.
const PAUSE_NS: f64 = 1e9;

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
    /// thread without a ring would have recorded is counted ([`LossCounts::no_ring`](crate::run::LossCounts::no_ring)),
    /// spans of excluded targets with it. Threads that end give back what they had; a thread without a ring gets none
    /// later.
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
        // All threads first, and only then what the drain gets: an exporter whose session cannot start takes back what it
        // made, and does not close it as a run.
        let (stop_collect, stopped) = bounded::<()>(0);
        let failures = collect::Failures::default();
        let collectors = std::mem::take(&mut self.collectors);
        let start_threads = || {
            let start =
                |activity| start_recorder(activity, &shared, &mapper, &background, &manifest, &manifest_changed);
            let kernels = activity.map(start).transpose()?;
            let (give, taken) = bounded::<(Drain, TickMapper, Enricher)>(1);
            let work = move || _ = taken.recv().map(|(drain, mapper, enricher)| run_drain(drain, mapper, enricher));
            let drain_thread = threads::spawn("cs-drain", work).map_err(no_thread("cs-drain"))?;
            let collect_thread = if collectors.is_empty() {
                None
            } else {
                let (shared, background) = (shared.clone(), background.clone());
                let started = collect::start(collectors, samples, stopped, failures.clone(), shared, background);
                Some(started.map_err(no_thread("cs-collect"))?)
            };
            Ok((kernels, give, drain_thread, collect_thread))
        };
        let (kernels, give, drain_thread, collect_thread) = match start_threads() {
            Ok(started) => started,
            Err(error) => {
                lanes.into_iter().for_each(Lane::abandon);
                return Err(error);
            }
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
        // It waits for nothing else.
        let _ = give.send((drain, mapper, enricher));
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

fn no_thread(name: &'static str) -> impl FnOnce(std::io::Error) -> StartError {
    move |source| StartError::Thread { name, source }
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
    recorder.start().map_err(no_thread("cs-kernels"))?;
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

/// The thread `cs-drain`. Where it panics that is told at once: a program may go on for days without being recorded.
fn run_drain(drain: Drain, mapper: TickMapper, enricher: Enricher) {
    let (diagnostics, shared) = (drain.shared.diagnostics.clone(), drain.shared.clone());
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drain.run(mapper, enricher))) {
        let said = panic_message(payload.as_ref());
        // Nobody takes what comes from here on: threads are not to keep it for ever.
        shared.control.close();
        shared.new_threads.lock().unwrap_or_else(PoisonError::into_inner).clear();
        diagnostics.report("", format!("the pipeline panicked, so nothing is recorded from here on: {said}"));
        resume_unwind(payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::{CollectError, Samples};
    use crate::gpu::{ActivityError, ActivitySink, Correlator};
    use crate::ledger::Ledger;
    use crate::pipeline::threads::refused;
    use crate::record::{Batch, SpanId};

    type Calls = Arc<Mutex<Vec<&'static str>>>;

    /// Says which of its methods were called.
    struct Keeps(Calls);

    impl Keeps {
        fn say(&self, what: &'static str) {
            self.0.lock().expect("whole").push(what);
        }
    }

    impl Exporter for Keeps {
        fn name(&self) -> &'static str {
            "keeps"
        }
        fn start(&mut self, _: &RunManifest) -> Result<(), ExportError> {
            self.say("start");
            Ok(())
        }
        fn abandon(&mut self) {
            self.say("abandon");
        }
        fn export(&mut self, batch: &Batch, ledger: &Ledger) -> Result<(), ExportError> {
            ledger.exported_batch(batch);
            Ok(())
        }
        fn close(&mut self, _: &Ledger) -> Result<(), ExportError> {
            self.say("close");
            Ok(())
        }
    }

    struct Idle;

    impl Collector for Idle {
        fn name(&self) -> &'static str {
            "idle"
        }
        fn period(&self) -> Duration {
            Duration::from_secs(1)
        }
        fn sample(&mut self, _: &mut Samples<'_>) -> Result<(), CollectError> {
            Ok(())
        }
    }

    impl Correlator for Idle {
        fn push(&self, _: SpanId) {}
        fn pop(&self) {}
    }

    impl Activity for Idle {
        fn name(&self) -> &'static str {
            "idle"
        }
        fn correlator(&self) -> Arc<dyn Correlator> {
            Arc::new(Idle)
        }
        fn enable(&mut self) -> Result<(), ActivityError> {
            Ok(())
        }
        fn collect(&mut self, _: bool, _: &dyn Fn() -> HostNs, _: &mut ActivitySink) -> Result<(), ActivityError> {
            Ok(())
        }
        fn disable(&mut self) -> Result<(), ActivityError> {
            Ok(())
        }
    }

    #[test]
    fn a_session_that_gets_no_thread_takes_back_what_its_exporters_made() {
        for n in 0.. {
            let calls = [Calls::default(), Calls::default()];
            let builder = calls.iter().fold(Session::builder(), |b, calls| b.exporter(Keeps(calls.clone())));
            refused::after(Some(n));
            let started = builder.collector(Idle).kernels(Idle, None).start();
            refused::after(None);
            let error = match started {
                Err(error) => error.to_string(),
                Ok((_layer, session)) => {
                    assert_eq!(n, 5, "two exporters, the recorder, the drain, the collectors");
                    assert!(session.finish().complete);
                    return;
                }
            };
            let name = ["keeps", "keeps", "cs-kernels", "cs-drain", "cs-collect"][n];
            assert!(error.contains(name) && error.contains("ulimit -u"), "{error}");
            assert!(error.contains("Resource temporarily unavailable"), "{error}");
            for (at, calls) in calls.iter().enumerate() {
                let calls = calls.lock().expect("whole").clone();
                let expected: &[&str] = if at > n { &[] } else { &["start", "abandon"] };
                assert_eq!(calls, expected, "exporter {at} where thread {n} is refused");
            }
        }
    }
}
