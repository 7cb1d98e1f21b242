//! The handle that controls a session from anywhere in the program.

use crate::HostNs;
use crate::account::overhead;
use crate::capture::{Capture, CaptureBusy, CaptureError, EndedAt};
use crate::clock::deadline;
use crate::exporter::Exporter;
use crate::layer::ranges::Ranges;
use crate::live_manifest::LiveManifest;
use crate::perturb::{Experiment, Perturb, PerturbProgress, PerturbRefused};
use crate::pipeline::BackgroundCpu;
use crate::pipeline::capture_run::{Busy, CaptureRequest};
use crate::pipeline::drain::Command;
use crate::pipeline::fanout::{Lane, LaneQueue};
use crate::record::RecordKind;
use crate::run::{RunManifest, option_key};
use crate::shared::SessionState;
use crate::stats::{SessionStats, Stats};
use crate::tally::Tally;
use crossbeam_channel::{RecvTimeoutError, Sender, bounded, unbounded};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub(crate) struct Inner {
    pub(crate) shared: Arc<SessionState>,
    pub(crate) commands: Sender<Command>,
    pub(crate) tally: Arc<Mutex<Tally>>,
    pub(crate) ledgers: Vec<(&'static str, Arc<crate::ledger::Ledger>)>,
    pub(crate) queues: Vec<LaneQueue>,
    pub(crate) manifest: Arc<LiveManifest>,
    pub(crate) started_paused: bool,
    pub(crate) ever_started: AtomicBool,
    pub(crate) per_interval_ns: f64,
    pub(crate) ns_per_tick: f64,
    /// Whether a captured run is under way.
    pub(crate) capturing: Arc<AtomicBool>,
    /// Number of captured runs so far.
    pub(crate) captures: AtomicU64,
    pub(crate) background: Arc<BackgroundCpu>,
    pub(crate) queue_records: u64,
    /// Passed to exporters of captures.
    pub(crate) stats: SessionStats,
}

/// Controls a session from anywhere in the program. Cheap to clone. After the session has ended it does nothing.
#[derive(Clone)]
pub struct Handle(pub(crate) Arc<Inner>);

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Handle").field(&self.0.shared.session).finish()
    }
}

/// Why kernels cannot be recorded now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KernelsRefused {
    /// The session was started without a recorder of kernels.
    #[error("this session has no recorder of kernels; add one when building it")]
    NoRecorder,
    /// The recorder failed; the session's verdict says why.
    #[error("kernels cannot be recorded in this session any more; its verdict says why")]
    Failed,
    /// A window of kernels is open.
    #[error("a window of kernels is under way, {remaining} more steps; ask again when it is done")]
    Busy {
        /// Steps that the window still needs.
        remaining: u64,
    },
}

/// Not everything was flushed. Nothing is lost because of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FlushError {
    /// It took longer than allowed; flushing goes on in the background.
    #[error("not everything was flushed within {timeout:?}: {waiting} exporters are still at it")]
    Timeout {
        /// The time that was allowed.
        timeout: Duration,
        /// Exporters that have not answered yet.
        waiting: usize,
    },
    /// This process was forked after the session started, so the session belongs to its parent.
    #[error(
        "this process was forked from the one that records, and has nothing to flush: start a session of its own after \
         the fork"
    )]
    Forked,
    /// Exporters did not flush, because they have failed permanently or their queue is full.
    #[error("{exporters} exporters could not flush; the session's statistics say why")]
    Failed {
        /// Exporters that did not flush.
        exporters: usize,
    },
}

impl Handle {
    /// Turns recording on, from the next step of each thread on. If there is a schedule, it is resumed.
    pub fn start(&self) {
        self.0.ever_started.store(true, Ordering::Relaxed);
        self.0.shared.control.start();
    }

    /// Turns recording off, from the next step of each thread on. Requests that begin and end while it is off are not
    /// recorded but counted ([`LossCounts::requests_paused`](crate::run::LossCounts::requests_paused)), unless a
    /// captured step works for them.
    pub fn stop(&self) {
        self.0.shared.control.stop();
    }

    /// For programs that make no `tracing` spans: begins and ends intervals on the calling thread.
    #[doc(hidden)]
    pub fn ranges(&self) -> Ranges {
        Ranges::new(self.0.shared.clone())
    }

    /// Records the next `steps` steps, over all threads, even while recording is off.
    ///
    /// # Errors
    /// If an earlier window is still open, or the process was forked from the one that records.
    pub fn capture_next(&self, steps: u64) -> Result<(), CaptureBusy> {
        if !self.0.shared.is_forked() && self.0.shared.control.open_window(steps, false).is_some() {
            self.0.ever_started.store(true, Ordering::Relaxed);
            Ok(())
        } else {
            Err(self.busy())
        }
    }

    fn busy(&self) -> CaptureBusy {
        CaptureBusy { remaining: self.capture_remaining() }
    }

    /// Steps of the window that have not begun. In a forked child the lock may never be released, so it is not taken.
    fn capture_remaining(&self) -> u64 {
        if self.0.shared.is_forked() { 0 } else { self.0.shared.control.remaining() }
    }

    /// Writes the next `steps` steps, over all threads, to `exporter` as a run of their own, in full detail and even
    /// while recording is off: every interval gets its GPU time, and kernels are recorded if the session has a recorder
    /// of them. Meanwhile the session goes on unchanged. The application's threads are affected only by the cost of the
    /// detail.
    ///
    /// The recorder slows down the steps after the window too, so it is switched off at the latest five seconds after
    /// the first of them. A captured step that still goes on then has the kernels up to that time, and its GPU time
    /// from marks.
    ///
    /// Returns when the window is open: almost at once without kernels, after up to ten seconds the first time with
    /// them.
    ///
    /// ```
    /// # mod candlescope { pub use candlescope_core as sdk; pub use candlescope_core::*; }
    /// use candlescope::llm::{self, Tokens};
    /// use candlescope::sdk::{MemoryExporter, Session};
    /// use tracing_subscriber::prelude::*;
    /// let (layer, session) = Session::builder().paused(true).start()?;
    /// let _guard = tracing_subscriber::registry().with(layer).set_default();
    /// let memory = MemoryExporter::new();
    /// let capture = session.handle().capture(memory.clone(), 2)?;
    /// for position in 1..=5 {
    ///     let _step = llm::decode(Tokens::new(1).context(position));
    /// }
    /// let run = capture.wait(std::time::Duration::from_secs(10)).expect("written");
    /// assert_eq!((run.counts["steps"], memory.batch().steps.len()), (2, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If another window is open, another captured run is still being written, the exporter cannot start, or the
    /// session has ended.
    pub fn capture(&self, exporter: impl Exporter, steps: u64) -> Result<Capture, CaptureError> {
        if steps == 0 {
            return Err(CaptureError::NoSteps);
        }
        if self.0.shared.is_forked() {
            return Err(CaptureError::Ended);
        }
        let busy = Busy::claim(&self.0.capturing).ok_or_else(|| self.busy())?;
        if self.0.shared.control.remaining() > 0 {
            return Err(self.busy().into());
        }
        let number = self.0.captures.fetch_add(1, Ordering::Relaxed) + 1;
        let mut manifest = self.0.manifest.get();
        manifest.run_id.push_str(&format!("-capture-{number}"));
        manifest.started_ns = HostNs::now().0;
        let run_id = manifest.run_id.clone();
        let name = exporter.name();
        let (background, diagnostics) = (self.0.background.clone(), &self.0.shared.diagnostics);
        let mut exporter = Box::new(exporter);
        exporter.attach(&self.0.stats);
        let lane = Lane::start(exporter, &manifest, self.0.queue_records, background, diagnostics)
            .map_err(|cause| CaptureError::Exporter { name, cause })?;
        let ended = Arc::new(EndedAt::not_yet());
        let ((finish, finished), (begin, begun)) = (bounded(1), bounded(1));
        let request =
            CaptureRequest { lane, run_id, steps, ended: ended.clone(), finished: finish, begun: begin, busy };
        self.0.commands.send(Command::Capture(Box::new(request))).map_err(|_| CaptureError::Ended)?;
        // The pipeline answers when the recorder is on, with `None` if a window was opened meanwhile. If the pipeline
        // ends, it drops the sender.
        match begun.recv() {
            Ok(Some(steps)) => {
                self.0.ever_started.store(true, Ordering::Relaxed);
                Ok(Capture { steps, finished, ended, shared: self.0.shared.clone() })
            }
            Ok(None) => Err(self.busy().into()),
            Err(_) => Err(CaptureError::Ended),
        }
    }

    /// Records the kernels of the next `steps` recorded steps, over all threads, as soon as the recorder is ready.
    ///
    /// # Errors
    /// If an earlier window is still open, if the session has no recorder of kernels or the recorder has failed, or if
    /// this process was forked from the one that records.
    pub fn capture_kernels(&self, steps: u64) -> Result<(), KernelsRefused> {
        let window = self.0.shared.control.kernels().ok_or(KernelsRefused::NoRecorder)?;
        if self.0.shared.is_forked() {
            return Err(KernelsRefused::Failed);
        }
        match window.ask_now(steps) {
            true => Ok(()),
            false if window.has_failed() => Err(KernelsRefused::Failed),
            false => Err(KernelsRefused::Busy { remaining: window.remaining() }),
        }
    }

    /// Windows of kernels that were [held](crate::SessionBuilder::kernels_held) may begin. Whether any were.
    #[doc(hidden)]
    pub fn begin_kernel_windows(&self) -> bool {
        self.0.shared.control.kernels().is_some_and(|window| window.let_begin())
    }

    /// Waits until the recorder of kernels is on, for a program that wants the very next step in its window; the first
    /// time that can take seconds. `false` if it is not on after `timeout`, cannot be switched on, or no window was
    /// asked for that may begin; in a process that was forked from the one that records, `false` at once.
    pub fn wait_for_kernels(&self, timeout: Duration) -> bool {
        if self.0.shared.is_forked() {
            return false;
        }
        let deadline = deadline(timeout);
        let Some(window) = self.0.shared.control.kernels() else { return false };
        while window.is_wanted() && !window.is_held() && std::time::Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        window.is_on() && !window.is_wanted()
    }

    /// Empties the rings and asks every exporter to make its records durable. Steps that have not ended are not
    /// included. Does nothing once the session has ended.
    ///
    /// # Errors
    /// If that takes longer than `timeout`, an exporter cannot flush, or the process was forked from the one that
    /// records.
    pub fn flush(&self, timeout: Duration) -> Result<(), FlushError> {
        if self.0.shared.is_forked() {
            return Err(FlushError::Forked);
        }
        let deadline = deadline(timeout);
        let (done, answers) = unbounded();
        if self.0.commands.send(Command::Flush(done)).is_err() {
            return Ok(());
        }
        // The channel closes when every exporter has answered, or has ended without an answer because the session
        // ended.
        let (mut answered, mut failed) = (0, 0);
        loop {
            match answers.recv_deadline(deadline) {
                Ok(flushed) => {
                    answered += 1;
                    failed += usize::from(!flushed);
                }
                Err(RecvTimeoutError::Disconnected) if failed > 0 => {
                    return Err(FlushError::Failed { exporters: failed });
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {
                    let waiting = self.0.ledgers.len().saturating_sub(answered);
                    return Err(FlushError::Timeout { timeout, waiting });
                }
            }
        }
    }

    /// The numbers so far, at most four drain intervals old.
    pub fn stats(&self) -> Stats {
        let tally = match self.0.shared.is_forked() {
            true => Tally::default(),
            false => *self.0.tally.lock().unwrap_or_else(PoisonError::into_inner),
        };
        Stats {
            counts: RecordKind::ALL.into_iter().map(|k| (k, tally.counts[k as usize])).collect(),
            loss: tally.loss,
            exporters: self.0.ledgers.iter().map(|(name, ledger)| ledger.report(name)).collect(),
            queues: self.0.queues.iter().map(LaneQueue::now).collect(),
            steps: tally.steps,
            requests_open: self.0.shared.open_requests.load(Ordering::Relaxed),
            tokens_in_flight: self.0.shared.steps_of_requests.tokens_in_flight(),
            capture_remaining: self.capture_remaining(),
            overhead_ratio: overhead(self.0.per_interval_ns, &tally).1,
        }
    }

    /// Adds a fact about the model to `run.json`.
    pub fn set_model(&self, key: &str, value: impl Into<Value>) {
        self.note(|m| m.model.insert(key.into(), value.into()));
    }

    /// Adds a result of the program to `run.json`. A text under `error` states that the program failed; the verdict is
    /// then an error too.
    pub fn set_result(&self, key: &str, value: impl Into<Value>) {
        self.note(|m| m.results.insert(key.into(), value.into()));
    }

    /// Adds an option to `run.json`.
    pub fn set_option(&self, key: &str, value: impl Into<Value>) {
        self.note(|m| m.options.insert(key.into(), value.into()));
    }

    /// Adds a fact about the environment to `run.json`.
    pub fn set_environment(&self, key: &str, value: impl Into<Value>) {
        self.note(|m| m.environment.insert(key.into(), value.into()));
    }

    /// Cost of one enter+exit of a span on this machine, as measured when the session started, in nanoseconds: registry
    /// and layer, caches warm, in a loop.
    pub fn per_interval_ns(&self) -> f64 {
        self.0.per_interval_ns
    }

    /// Begins an experiment: some steps are made slower, at random, and what follows from that is recorded in the table
    /// `perturbations`, and nowhere else. See [`crate::perturb`]. It ends when it has its pairs, or by
    /// [`end_perturbing`](Self::end_perturbing).
    ///
    /// ```
    /// # use candlescope_core as candlescope;
    /// use candlescope::{MemoryExporter, Perturb, Session};
    /// use tracing_subscriber::prelude::*;
    /// let memory = MemoryExporter::new();
    /// let (layer, session) = Session::builder().exporter(memory.clone()).start()?;
    /// let _guard = tracing_subscriber::registry().with(layer).set_default();
    /// let handle = session.handle().clone();
    /// handle.perturb(&Perturb::new(["path=step/part:+1ms".parse()?]).budget(1.0).pairs(2).step("step"))?;
    /// while handle.perturbing().running {
    ///     let _step = tracing::trace_span!("step").entered();
    ///     let _part = tracing::trace_span!("part").entered();
    ///     std::thread::sleep(std::time::Duration::from_millis(1));
    /// }
    /// session.finish();
    /// let stretches = memory.batch().perturbations;
    /// assert!(stretches.iter().filter(|stretch| stretch.delayed).all(|stretch| stretch.added_ns >= 1_000_000));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If nothing is to be made slower, a number is not possible, another experiment goes on, or the session has ended.
    pub fn perturb(&self, what: &Perturb) -> Result<(), PerturbRefused> {
        self.prepare_perturbing(what)?;
        self.begin_perturbing()
    }

    /// Prepares an experiment, which [`begin_perturbing`](Self::begin_perturbing) begins. Until then it learns from what is
    /// recorded how long intervals take on a device, and which kind of step takes the most time.
    ///
    /// # Errors
    /// Those of [`perturb`](Self::perturb).
    #[doc(hidden)]
    pub fn prepare_perturbing(&self, what: &Perturb) -> Result<(), PerturbRefused> {
        let shared = &self.0.shared;
        if shared.is_forked() || shared.control.is_closed() {
            return Err(PerturbRefused::Ended);
        }
        shared.set_experiment(|number| Experiment::new(what, shared.gpu.is_some(), self.0.ns_per_tick, number))?;
        let asked: Vec<String> = what.what.iter().map(ToString::to_string).collect();
        self.set_option(option_key::PERTURB.name(), asked);
        self.set_option(option_key::PERTURB_BUDGET.name(), what.budget);
        Ok(())
    }

    /// Begins the experiment that was prepared.
    ///
    /// # Errors
    /// If none was, it is over, or the session has ended.
    #[doc(hidden)]
    pub fn begin_perturbing(&self) -> Result<(), PerturbRefused> {
        let shared = &self.0.shared;
        if shared.is_forked() {
            return Err(PerturbRefused::Ended);
        }
        shared.begin_experiment()
    }

    /// How far the latest experiment is.
    pub fn perturbing(&self) -> PerturbProgress {
        // In a forked child the lock may never be released.
        let experiment = if self.0.shared.is_forked() { None } else { self.0.shared.experiment() };
        experiment.map_or_else(PerturbProgress::default, |experiment| experiment.progress())
    }

    /// Ends the experiment that goes on: no further stretch begins.
    pub fn end_perturbing(&self) {
        if !self.0.shared.is_forked()
            && let Some(experiment) = self.0.shared.experiment()
        {
            experiment.end();
        }
    }

    fn note<R>(&self, add: impl FnOnce(&mut RunManifest) -> R) {
        if !self.0.shared.is_forked() {
            self.0.manifest.note(add);
        }
    }
}
