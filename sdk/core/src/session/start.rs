//! Starts a session: checks its options, starts its threads, and only then makes the session.

use super::{Session, SessionBuilder, StartError};
use crate::HostNs;
use crate::clock::TickMapper;
use crate::collector::Collector;
use crate::control::Control;
use crate::gpu::{Activity, MarkingState};
use crate::handle::{Handle, Inner};
use crate::layer::CandlescopeLayer;
use crate::live_manifest::{LiveManifest, add_environment};
use crate::pipeline::attribute::Kernels;
use crate::pipeline::drain::{Drain, Links, Pace};
use crate::pipeline::enrich::Enricher;
use crate::pipeline::fanout::Lane;
use crate::pipeline::kernel_thread::KernelThread;
use crate::pipeline::stack_join::Stacks;
use crate::pipeline::stack_thread::StackThread;
use crate::pipeline::{BackgroundCpu, collect, threads};
use crate::probe::Probe;
use crate::process_facts::process_facts;
use crate::record::SampleRecord;
use crate::run::{SCHEMA_VERSION, env_key, option_key};
use crate::shared::{Hooks, RawRequest, Rings, SessionState};
use crate::stacks::StackSource;
use crate::stats::SessionStats;
use crate::tally::Tally;
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What an interval costs between a model's launches, as a multiple of its cost in a loop: the driver's code has
/// evicted ours from the caches meanwhile. Measured with a small model on a GPU server: 160 ns against 59.
const IN_PLACE: f64 = 3.0;

/// If a thread has not begun a step of a kind for this long, there was a pause: by then a device's clocks are lowered.
const PAUSE_NS: f64 = 1e9;

impl SessionBuilder {
    /// Starts the session. Put the layer into a subscriber **before the model loads**, and keep the guard until the
    /// work is done.
    ///
    /// # Errors
    /// If an exporter cannot start, an option has an impossible value, or the system refuses to start a thread.
    pub fn start(mut self) -> Result<(CandlescopeLayer, Session), StartError> {
        self.check()?;
        self.fill_manifest();
        let (requests, request_queue) = bounded(4_096);
        let shared = Arc::new(self.shared(requests));
        let per_interval_ns = calibrate(self.ring_capacity);
        let background = Arc::new(BackgroundCpu::default());
        let stats = SessionStats::default();
        let lanes = self.start_exporters(&stats, &background)?;
        let ledgers = lanes.iter().map(|lane| (lane.name, lane.ledger.clone())).collect();
        let queues = lanes.iter().map(Lane::queue).collect();
        let mapper = TickMapper::new(shared.ticks.clone());
        set_costs(&shared, &mapper, per_interval_ns);
        let manifest = Arc::new(LiveManifest::new(self.manifest));
        let (samples, sample_queue) = bounded(1_024);
        let (stop_collect, stopped) = bounded::<()>(0);
        let failures = collect::Failures::default();
        // All threads are started before the drain gets its exporters: if the session cannot start, its exporters
        // remove what they made, and do not close it as a run.
        let spawning = ThreadNeeds { shared: &shared, background: &background, manifest: &manifest, mapper: &mapper };
        let (clock, _) = self.gpu.unzip();
        let collecting = (self.collectors, samples, stopped, failures.clone());
        let (stop_stacks, stacks_stopped) = bounded::<()>(0);
        let sampling = self.stacks.map(|source| (source, stacks_stopped));
        let threads = match spawning.spawn(self.kernels.map(|(activity, _)| activity), sampling, collecting) {
            Ok(threads) => threads,
            Err(error) => {
                lanes.into_iter().for_each(Lane::abandon);
                return Err(error);
            }
        };
        let (commands, command_queue) = unbounded();
        let tally = Arc::new(Mutex::new(Tally::default()));
        let links = Links {
            requests: request_queue,
            samples: sample_queue,
            commands: command_queue,
            tally: tally.clone(),
            manifest: manifest.clone(),
            background: background.clone(),
        };
        let pace = Pace {
            interval: self.drain_interval.max(Duration::from_micros(100)),
            gpu_patience: (self.shutdown_timeout / 4).min(Duration::from_secs(2)),
            per_interval_ns,
        };
        let ns_per_tick = mapper.ns_per_tick();
        let enricher = Enricher::new(clock, threads.kernels, self.expect_gpu).with_stacks(threads.stacks);
        // The thread waits only for this.
        let _ = threads.give.send(Drain::new(shared.clone(), links, pace, lanes, mapper, enricher));
        let handle = Handle(Arc::new(Inner {
            shared: shared.clone(),
            commands,
            tally,
            ledgers,
            queues,
            manifest,
            started_paused: self.paused,
            ever_started: AtomicBool::new(!self.paused),
            per_interval_ns,
            ns_per_tick,
            capturing: Arc::default(),
            captures: AtomicU64::new(0),
            background: background.clone(),
            queue_records: self.queue_records,
            stats,
        }));
        let inner = Arc::downgrade(&handle.0);
        handle.0.stats.set(move || Some(Handle(inner.upgrade()?).stats()));
        let session = Session {
            handle,
            drain_thread: Some(threads.drain),
            collect_thread: threads.collect,
            stop_collect: Some(stop_collect),
            stack_thread: threads.stack_thread,
            stop_stacks: Some(stop_stacks),
            failures,
            background,
            findings: self.findings,
            shutdown_timeout: self.shutdown_timeout,
            finished: None,
            collectors_hang: false,
        };
        Ok((CandlescopeLayer::new(shared), session))
    }

    /// Checks that all options have possible values.
    fn check(&self) -> Result<(), StartError> {
        let refused = |message| Err(StartError::Option(message));
        if self.ring_capacity < 128 {
            return refused(format!("ring_capacity is {}, but must be at least 128", self.ring_capacity));
        }
        if let Some((_, timing)) = &self.gpu
            && !(0.0..=1.0).contains(&timing.budget)
        {
            return refused(format!(
                "the budget of GPU timing is {}, but must be a share of step time from 0 to 1",
                timing.budget
            ));
        }
        if let Some(every) = self.overhead_probe.filter(|every| *every < 2) {
            return refused(format!(
                "overhead_probe is {every}, but must be at least 2: one step in so many is left plain"
            ));
        }
        if let Some(share) = self.cost.filter(|share| !(*share > 0.0 && *share <= 1.0)) {
            return refused(format!(
                "cost is {share}, but must be a share of step time above 0 and up to 1, such as 0.01"
            ));
        }
        Ok(())
    }

    /// Fills in what is known of the run before it begins.
    fn fill_manifest(&mut self) {
        let m = &mut self.manifest;
        // Options that the program has set itself are kept instead of the resolved ones.
        let mut option = |key: &str, value: Value| _ = m.options.entry(key.into()).or_insert(value);
        if let Some(schedule) = self.schedule {
            option(option_key::SCHEDULE.name(), serde_json::json!(schedule));
        }
        option(option_key::PAUSED.name(), self.paused.into());
        option("ring_capacity", self.ring_capacity.into());
        option("ring_memory", self.ring_memory.into());
        option("queue_records", self.queue_records.into());
        option("drain_interval_ms", (self.drain_interval.as_secs_f64() * 1e3).into());
        if !self.excluded_targets.is_empty() {
            option("excluded_targets", serde_json::json!(self.excluded_targets));
        }
        if let Some(every) = self.overhead_probe {
            option("overhead_probe", every.into());
        }
        if let Some(share) = self.cost {
            option("cost", share.into());
        }
        if let Some((_, timing)) = &self.gpu {
            option("gpu_timing", timing.tier.as_str().into());
            option("gpu_budget", timing.budget.into());
        }
        if let Some((_, Some(schedule))) = &self.kernels {
            option("kernels_schedule", serde_json::json!(schedule));
            if !self.kernels_apart.is_zero() {
                option("kernels_apart_s", self.kernels_apart.as_secs_f64().into());
            }
        }
        m.schema_version = SCHEMA_VERSION;
        m.started_ns = HostNs::now().0;
        m.host = host_name();
        if let Some(of) = super::distributed::from_environment(&m.host) {
            m.world_size.get_or_insert(of.processes);
            m.job = m.job.take().or(of.job);
            if !self.rank_given {
                m.rank = of.rank;
            }
        }
        if m.run_id.is_empty() {
            m.run_id = format!("run-{}-{}", m.started_ns / 1_000_000, std::process::id());
        }
        let mut fact = |key: &str, value: &str| _ = m.environment.entry(key.into()).or_insert_with(|| value.into());
        fact(env_key::CANDLESCOPE.name(), env!("CARGO_PKG_VERSION"));
        fact(env_key::OS.name(), std::env::consts::OS);
        fact(env_key::ARCH.name(), std::env::consts::ARCH);
        add_environment(m, process_facts());
        for collector in &mut self.collectors {
            add_environment(m, collector.describe());
        }
        if let Some((clock, _)) = &mut self.gpu {
            add_environment(m, clock.describe());
        }
    }

    /// What the application's threads share with the rest of the session.
    fn shared(&mut self, requests: Sender<RawRequest>) -> SessionState {
        let mut control = Control::new(self.schedule, self.paused).with_budget(self.cost);
        if let Some((_, schedule)) = &self.kernels {
            control = control.with_kernels(*schedule).with_kernels_apart(self.kernels_apart, self.kernels_held);
        }
        let hooks = Hooks {
            taps: std::mem::take(&mut self.taps),
            gpu: self.gpu.as_ref().map(|(clock, timing)| MarkingState::new(clock.lanes(), *timing)),
            correlator: self.kernels.as_ref().map(|(activity, _)| activity.correlator()),
            probe: self.overhead_probe.or(self.cost.map(|_| crate::budget::PROBE)).map(Probe::new),
            diagnostics: self.diagnostics.clone(),
        };
        let rings = Rings { capacity: self.ring_capacity, memory: self.ring_memory };
        SessionState::new(control, hooks, std::mem::take(&mut self.excluded_targets), rings, requests)
    }

    /// Starts all exporters, or none.
    fn start_exporters(
        &mut self,
        stats: &SessionStats,
        background: &Arc<BackgroundCpu>,
    ) -> Result<Vec<Lane>, StartError> {
        let mut lanes = Vec::new();
        for mut exporter in std::mem::take(&mut self.exporters) {
            let name = exporter.name();
            exporter.attach(stats);
            match Lane::start(exporter, &self.manifest, self.queue_records, background.clone(), &self.diagnostics) {
                Ok(lane) => lanes.push(lane),
                Err(cause) => {
                    lanes.into_iter().for_each(Lane::abandon);
                    return Err(StartError::Exporter { name, cause });
                }
            }
        }
        Ok(lanes)
    }
}

/// Stores what intervals cost and how long a pause is, in ticks, for the threads that make marks.
fn set_costs(shared: &SessionState, mapper: &TickMapper, per_interval_ns: f64) {
    if let Some(gpu) = &shared.gpu {
        let ticks = |ns: f64| (ns / mapper.ns_per_tick()).round() as u64;
        gpu.interval_ticks.store(ticks(per_interval_ns * IN_PLACE), Ordering::Relaxed);
        gpu.pause_ticks.store(ticks(PAUSE_NS), Ordering::Relaxed);
    }
}

/// What the session's threads need to start.
struct ThreadNeeds<'a> {
    shared: &'a Arc<SessionState>,
    background: &'a Arc<BackgroundCpu>,
    manifest: &'a Arc<LiveManifest>,
    mapper: &'a TickMapper,
}

/// The collectors, where their samples go, what stops them, and where their failures go.
type CollectorSetup = (Vec<Box<dyn Collector>>, Sender<Vec<SampleRecord>>, Receiver<()>, collect::Failures);

/// The sampler of stacks, and what stops it.
type Sampling = (Box<dyn StackSource>, Receiver<()>);

/// The threads of a session, except those of its exporters.
struct Threads {
    /// The drain's end of the thread that records kernels, if there is one.
    kernels: Option<Kernels>,
    /// The same of the thread that samples stacks, and the thread.
    stacks: Option<Stacks>,
    stack_thread: Option<JoinHandle<()>>,
    drain: JoinHandle<()>,
    /// Sends the drain what it works with.
    give: Sender<Drain>,
    collect: Option<JoinHandle<()>>,
}

impl ThreadNeeds<'_> {
    fn spawn(
        &self,
        activity: Option<Box<dyn Activity>>,
        sampling: Option<Sampling>,
        collecting: CollectorSetup,
    ) -> Result<Threads, StartError> {
        let no_thread = |name| move |source| StartError::Thread { name, source };
        let kernels = activity.map(|activity| self.spawn_recorder(activity)).transpose();
        let kernels = kernels.map_err(no_thread("cs-kernels"))?;
        let sampler = sampling.map(|sampling| self.spawn_sampler(sampling)).transpose();
        let (stacks, stack_thread) = sampler.map_err(no_thread("cs-stacks"))?.unzip();
        let (give, taken) = bounded::<Drain>(1);
        let work = move || _ = taken.recv().map(Drain::run);
        let drain = threads::spawn("cs-drain", work).map_err(no_thread("cs-drain"))?;
        let (collectors, samples, stopped, failures) = collecting;
        let collect = if collectors.is_empty() {
            None
        } else {
            let (shared, background) = (self.shared.clone(), self.background.clone());
            let host = self.mapper.host_clock();
            let started = collect::start(collectors, samples, stopped, failures, shared, host, background);
            Some(started.map_err(no_thread("cs-collect"))?)
        };
        Ok(Threads { kernels, stacks, stack_thread, drain, give, collect })
    }

    /// Starts the thread that samples stacks, and returns the drain's end of it.
    fn spawn_sampler(&self, (source, stop): Sampling) -> std::io::Result<(Stacks, JoinHandle<()>)> {
        let (deliver, deliveries) = bounded(64);
        let error = Arc::new(Mutex::new(None));
        let stacks = Stacks::new(source.name(), deliveries, error.clone());
        let manifest = self.manifest.clone();
        let sampler = StackThread {
            source,
            shared: self.shared.clone(),
            deliveries: deliver,
            stop,
            error,
            background: self.background.clone(),
            describe: Box::new(move |facts| manifest.note_environment(facts)),
        };
        Ok((stacks, sampler.start()?))
    }

    /// Starts the thread that records kernels, and returns the drain's end of it.
    fn spawn_recorder(&self, activity: Box<dyn Activity>) -> std::io::Result<Kernels> {
        let (ask, asks) = unbounded();
        let (deliver, deliveries) = unbounded();
        let error = Arc::new(Mutex::new(None));
        let kernels = Kernels::new(activity.name(), ask, deliveries, error.clone());
        let manifest = self.manifest.clone();
        let recorder = KernelThread {
            activity,
            shared: self.shared.clone(),
            asks,
            deliveries: deliver,
            host: self.mapper.host_clock(),
            error,
            background: self.background.clone(),
            describe: Box::new(move |activity| manifest.note_environment(activity.describe())),
        };
        // Detached: it ends when the drain does, and a driver call that hangs must not delay the application.
        recorder.start()?;
        Ok(kernels)
    }
}

/// What this machine is called.
pub fn host_name() -> String {
    #[cfg(unix)]
    {
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    }
    #[cfg(not(unix))]
    {
        std::env::var("COMPUTERNAME").unwrap_or_else(|_| "localhost".into())
    }
}

/// Measures what one enter+exit of a span costs on this machine, in nanoseconds: registry and layer, caches warm, in a
/// loop. The result is the median of several short rounds over as many spans as a model has.
fn calibrate(ring_capacity: usize) -> f64 {
    use tracing_subscriber::layer::SubscriberExt;
    const SPANS: usize = 256;
    let (requests, _) = bounded(1);
    let control = Control::new(None, false);
    let rings = Rings { capacity: ring_capacity.max(4_096), memory: u64::MAX };
    let shared = Arc::new(SessionState::new(control, Hooks::default(), Vec::new(), rings, requests));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::{CollectError, Samples};
    use crate::exporter::{ExportError, Exporter};
    use crate::gpu::{ActivityError, ActivitySink, Correlator};
    use crate::ledger::Ledger;
    use crate::pipeline::threads::refused;
    use crate::record::{Batch, SpanId};
    use crate::run::RunManifest;

    type Calls = Arc<Mutex<Vec<&'static str>>>;

    /// Records which of its methods were called.
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
