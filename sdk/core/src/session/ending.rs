//! Ends a session: flushes it and closes its account, within its time limit.

use crate::HostNs;
use crate::account::RunEnd;
use crate::clock::deadline;
use crate::diagnostics::panic_message;
use crate::handle::Handle;
use crate::pipeline::drain::{Command, DrainReport};
use crate::pipeline::fanout::{ClosedExporters, close_all, finish_all};
use crate::pipeline::{BackgroundCpu, collect};
use crate::run::{Code, ExporterReport, Finding, Place, RunManifest, Verdict};
use crate::session::SessionBuilder;
use crossbeam_channel::{Sender, bounded};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time that collectors get to stop.
const COLLECTOR_PATIENCE: Duration = Duration::from_secs(1);

/// Time that the sampler of stacks gets to name the last ones.
const STACKS_PATIENCE: Duration = Duration::from_secs(5);

/// Keeps a session alive. Dropping it flushes and ends the session within the shutdown timeout.
#[must_use = "the session ends when this guard is dropped"]
#[derive(Debug)]
pub struct Session {
    pub(super) handle: Handle,
    pub(super) drain_thread: Option<JoinHandle<()>>,
    pub(super) collect_thread: Option<JoinHandle<()>>,
    pub(super) stop_collect: Option<Sender<()>>,
    pub(super) stack_thread: Option<JoinHandle<()>>,
    pub(super) stop_stacks: Option<Sender<()>>,
    pub(super) failures: collect::Failures,
    /// Findings from the start of the session.
    pub(super) findings: Vec<Finding>,
    pub(super) background: Arc<BackgroundCpu>,
    pub(super) shutdown_timeout: Duration,
    pub(super) finished: Option<RunManifest>,
    pub(super) collectors_hang: bool,
}

impl Session {
    /// The options of a new session.
    pub fn builder() -> SessionBuilder {
        SessionBuilder::default()
    }

    /// The handle, which controls the session from elsewhere.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Longest time that ending the session may take.
    pub fn shutdown_timeout(&self) -> Duration {
        self.shutdown_timeout
    }

    /// Ends the session and returns the final manifest: counts, losses, verdict.
    ///
    /// In a process that was forked from the one that started the session, it returns at once, with a manifest that
    /// contains only the finding [`Code::ForkedProcess`]: the run belongs to the parent.
    pub fn finish(mut self) -> RunManifest {
        self.shutdown();
        self.finished.clone().unwrap_or_default()
    }

    fn shutdown(&mut self) {
        let Some(drain_thread) = self.drain_thread.take() else {
            return;
        };
        if self.handle.0.shared.is_forked() {
            return self.leave_to_parent(drain_thread);
        }
        let deadline = deadline(self.shutdown_timeout);
        // Collectors first, because their last samples belong to the run. The time for a collector that hangs is
        // limited, so that it does not cost what the others recorded.
        self.stop_collect = None;
        if let Some(thread) = self.collect_thread.take() {
            let patience = COLLECTOR_PATIENCE.min(self.shutdown_timeout / 4);
            self.collectors_hang = !join_until(thread, Instant::now() + patience);
        }
        // Then the sampler, whose last samples the drain takes before it ends.
        self.stop_stacks = None;
        if let Some(thread) = self.stack_thread.take() {
            join_until(thread, Instant::now() + STACKS_PATIENCE.min(self.shutdown_timeout / 4));
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

    /// In a forked child the session still belongs to the parent: its threads and exporters exist only there, and locks
    /// may be held forever by threads that this process does not have. So nothing is asked, closed or freed.
    fn leave_to_parent(&mut self, drain_thread: JoinHandle<()>) {
        std::mem::forget((drain_thread, self.collect_thread.take(), self.stop_collect.take()));
        std::mem::forget((self.stack_thread.take(), self.stop_stacks.take()));
        std::mem::forget((self.handle.clone(), self.failures.clone(), self.background.clone()));
        let finding = Finding::new(
            Code::ForkedProcess,
            "this process was forked from the one that records: nothing of it is recorded",
            "the run is the parent's and goes on there; to record the child, start a session of its own after the fork",
        );
        self.handle.0.shared.diagnostics.report("", format!("{}; {}", finding.message(), finding.remedy()));
        let verdict = Verdict::of(vec![finding]);
        self.finished = Some(RunManifest { verdict, ..RunManifest::default() });
    }

    /// The manifest if the pipeline does not answer, because it is stuck or has panicked.
    fn manifest_without_pipeline(&self, drain: JoinHandle<()>, deadline: Instant) -> RunManifest {
        let finding = match outcome_until(drain, deadline) {
            Some(outcome) => {
                let said = outcome.as_ref().err().map_or("it ended before the session", |p| panic_message(p.as_ref()));
                Finding::new(
                    Code::PipelinePanicked,
                    "the pipeline panicked, so the run stays incomplete: {error}",
                    "please report it with this message; a source of GPU time of your own runs in the pipeline too",
                )
                .text("error", said)
            }
            None => {
                let finding = Finding::new(
                    Code::PipelineStuck,
                    "the pipeline did not stop within {patience}, so the run stays incomplete",
                    "raise the shutdown timeout, or record fewer steps with a schedule",
                )
                .ns("patience", u64::try_from(self.shutdown_timeout.as_nanos()).unwrap_or(u64::MAX));
                self.handle.0.shared.diagnostics.report("", finding.message());
                finding
            }
        };
        let mut manifest = self.handle.0.manifest.get();
        manifest.verdict.add(finding);
        manifest
    }

    /// Closes the exporters. Returns the threads that still write captured runs.
    fn finish_exporters(&mut self, mut report: DrainReport, deadline: Instant) -> Vec<JoinHandle<()>> {
        let closed = close_all(&report.lanes, deadline);
        let manifest = Arc::new(self.final_manifest(&report, &closed));
        finish_all(&mut report.lanes, &closed.unresponsive, &manifest, deadline);
        let mut manifest = (*manifest).clone();
        for (lane, before) in report.lanes.iter().zip(&mut manifest.exporters) {
            // Late exporters were not asked to finish, and their account is closed.
            if closed.unresponsive.contains(&lane.name) {
                continue;
            }
            let after = lane.ledger.report(lane.name);
            if after.last_error != before.last_error {
                // Too late for the manifest that was exported, but in time for the caller of `finish`.
                manifest.verdict.add(finish_failed(&after));
                *before = after;
            }
        }
        self.finished = Some(manifest);
        report.captures
    }

    fn final_manifest(&self, report: &DrainReport, closed: &ClosedExporters) -> RunManifest {
        let inner = &self.handle.0;
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let noticed: Vec<Finding> = self.findings.iter().cloned().chain(inner.shared.notices.findings()).collect();
        let mut m = inner.manifest.get();
        let closing = RunEnd {
            ended: HostNs::now(),
            tally: report.tally,
            modules: inner.shared.loaded_model(),
            clock: report.clock.clone(),
            exporters: closed.reports.clone(),
            unresponsive: &closed.unresponsive,
            gpu: report.gpu.clone(),
            stacks: report.stacks.clone(),
            per_interval_ns: inner.per_interval_ns,
            in_place: report.in_place.clone(),
            budget: report.budget,
            machine: report.machine,
            pool_threads: report.pool_threads,
            background_cpu_ns: self.background.total_ns(),
            collector_failures: &failures,
            collectors_hang: self.collectors_hang,
            noticed: &noticed,
            paused_throughout: inner.started_paused && !inner.ever_started.load(Ordering::Relaxed),
            capture: false,
        };
        closing.close(&mut m);
        m
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shutdown();
    }
}

fn finish_failed(report: &ExporterReport) -> Finding {
    Finding::new(
        Code::ExporterFinishFailed,
        "exporter {exporter}: {error}",
        "its last output is missing or out of date; what it had finished before is intact",
    )
    .at(Place::Exporter, report.name.as_str())
    .text("error", report.last_error.as_deref().unwrap_or("unknown error"))
}

/// Joins a thread, unless that takes longer than allowed; then the thread is left running. Returns whether it was
/// joined.
fn join_until(thread: JoinHandle<()>, deadline: Instant) -> bool {
    outcome_until(thread, deadline).is_some()
}

/// Like [`join_until`], but returns how the thread ended.
fn outcome_until(thread: JoinHandle<()>, deadline: Instant) -> Option<std::thread::Result<()>> {
    while !thread.is_finished() {
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Some(thread.join())
}
