//! Fan-out: a bounded queue and a thread for each exporter, so that a slow or failing exporter delays nobody.

use super::threads;
use crate::DropReason;
use crate::diagnostics::{Diagnostics, panic_message};
use crate::exporter::{ExportError, Exporter, describe};
use crate::ledger::Ledger;
use crate::record::Batch;
use crate::run::{ExporterReport, RunManifest};
use crate::stats::ExporterQueue;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

enum Message {
    Batch(Arc<Batch>),
    Update(Arc<RunManifest>),
    Flush(Sender<bool>),
    Close(Sender<()>),
    Finish(Arc<RunManifest>, Sender<()>),
    Abandon,
}

/// Messages in a queue at most. Memory is bounded by the number of records, see `Lane::queued`.
const MAX_MESSAGES: usize = 4096;

/// Minimum time between two reports of problems of one exporter.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// One exporter with its queue and thread.
pub(crate) struct Lane {
    pub(crate) name: &'static str,
    pub(crate) ledger: Arc<Ledger>,
    sender: Sender<Message>,
    /// Records in the queue.
    queued: Arc<AtomicU64>,
    limit: u64,
    dead: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The queue of a lane, as others see it.
pub(crate) struct LaneQueue {
    exporter: &'static str,
    queued: Arc<AtomicU64>,
    limit: u64,
}

impl LaneQueue {
    /// How full it is now.
    pub(crate) fn now(&self) -> ExporterQueue {
        let queued = self.queued.load(Ordering::Relaxed);
        ExporterQueue { exporter: self.exporter.to_string(), queued, limit: self.limit }
    }
}

impl Lane {
    pub(crate) fn start(
        mut exporter: Box<dyn Exporter>,
        manifest: &RunManifest,
        limit: u64,
        background: Arc<super::BackgroundCpu>,
        diagnostics: &Diagnostics,
    ) -> Result<Self, ExportError> {
        diagnostics.within(|| exporter.start(manifest))?;
        let name = exporter.name();
        let ledger = Arc::new(Ledger::new());
        let (sender, receiver) = bounded(MAX_MESSAGES);
        let queued = Arc::new(AtomicU64::new(0));
        let dead = Arc::new(AtomicBool::new(false));
        let mut worker = Worker {
            exporter,
            name,
            ledger: ledger.clone(),
            queued: queued.clone(),
            dead: dead.clone(),
            panicked: false,
            last_log: None,
            unlogged: 0,
            untouched: true,
            diagnostics: diagnostics.clone(),
        };
        let work = move || {
            super::prepare_background_thread(&worker.diagnostics);
            let meter = background.meter();
            worker.run(&receiver, &meter);
        };
        let thread = threads::spawn(&format!("cs-{name}"), work)
            .map_err(|e| ExportError::fatal(format!("no thread for it: {e}; {}", threads::NO_THREAD)))?;
        Ok(Self { name, ledger, sender, queued, limit, dead, thread: Some(thread) })
    }

    /// Its queue, to look at from elsewhere.
    pub(crate) fn queue(&self) -> LaneQueue {
        LaneQueue { exporter: self.name, queued: self.queued.clone(), limit: self.limit }
    }

    /// Hands over a batch, or drops and counts it.
    pub(crate) fn send(&self, batch: &Arc<Batch>) {
        self.ledger.received(batch);
        let records = batch.len() as u64;
        if self.dead.load(Ordering::Relaxed) {
            return self.ledger.dropped_batch(batch, DropReason::Dead);
        }
        // A batch always fits into an empty queue, however large it is.
        let queued = self.queued.load(Ordering::Relaxed);
        if queued > 0 && queued + records > self.limit {
            return self.ledger.dropped_batch(batch, DropReason::QueueFull);
        }
        self.queued.fetch_add(records, Ordering::Relaxed);
        if let Err(error) = self.sender.try_send(Message::Batch(batch.clone())) {
            self.queued.fetch_sub(records, Ordering::Relaxed);
            let reason = match error {
                TrySendError::Full(_) => DropReason::QueueFull,
                TrySendError::Disconnected(_) => DropReason::Dead,
            };
            self.ledger.dropped_batch(batch, reason);
        }
    }

    /// Passes on what became known of the run. If the queue is full, this is skipped: the final manifest contains it
    /// too.
    pub(crate) fn update(&self, manifest: &Arc<RunManifest>) {
        let _ = self.sender.try_send(Message::Update(manifest.clone()));
    }

    /// Asks for a flush; `done` receives whether it was possible.
    pub(crate) fn request_flush(&self, done: Sender<bool>) {
        // A queue that is full even for this will not be empty soon: it is better to say so than to wait.
        if self.sender.try_send(Message::Flush(done.clone())).is_err() {
            let _ = done.send(false);
        }
    }

    /// Lets the exporter remove what it made at its start, because the session cannot start. Returns once that is done.
    pub(crate) fn abandon(mut self) {
        self.request_abandon();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    /// Like [`abandon`](Lane::abandon), without waiting. Nothing has been sent yet, so there is room in the queue.
    pub(crate) fn request_abandon(&self) {
        let _ = self.sender.try_send(Message::Abandon);
    }

    /// Joins the exporter's thread if it has ended.
    fn join_if_done(&mut self) {
        if self.thread.as_ref().is_some_and(JoinHandle::is_finished)
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

/// How the exporters closed.
pub(crate) struct ClosedExporters {
    /// Their accounts, in the order of the lanes.
    pub(crate) reports: Vec<ExporterReport>,
    /// Names of those that had not closed in time. What they had not settled by then counts as dropped, whatever they
    /// do afterwards, because the run's account must not depend on it.
    pub(crate) unresponsive: Vec<&'static str>,
}

/// Closes all exporters at the same time, so that a slow one does not use up the others' time.
pub(crate) fn close_all(lanes: &[Lane], deadline: Instant) -> ClosedExporters {
    let closing = ask_all(lanes.iter(), Message::Close, deadline);
    let mut closed = ClosedExporters { reports: Vec::new(), unresponsive: Vec::new() };
    for (lane, answer) in lanes.iter().zip(closing) {
        closed.reports.push(if answer.recv_deadline(deadline).is_ok() {
            lane.ledger.report(lane.name)
        } else {
            closed.unresponsive.push(lane.name);
            lane.ledger.report_without_pending(lane.name, DropReason::Shutdown)
        });
    }
    closed
}

/// Asks each of them, in the order of the lanes, and returns where they answer. Those with a full queue are waited for last: one
/// that hangs would use up the time of those behind it.
fn ask_all<'a>(
    lanes: impl Iterator<Item = &'a Lane>,
    ask: impl Fn(Sender<()>) -> Message,
    deadline: Instant,
) -> Vec<Receiver<()>> {
    let mut full = Vec::new();
    let each = |lane: &'a Lane| {
        let (done, answer) = bounded(1);
        if let Err(TrySendError::Full(message)) = lane.sender.try_send(ask(done)) {
            full.push((lane, message));
        }
        answer
    };
    let answers = lanes.map(each).collect();
    for (lane, message) in full {
        let _ = lane.sender.send_deadline(message, deadline);
    }
    answers
}

/// Gives all exporters except the `unresponsive` ones the final manifest, waits for them, and ends their threads.
pub(crate) fn finish_all(
    lanes: &mut [Lane],
    unresponsive: &[&'static str],
    manifest: &Arc<RunManifest>,
    deadline: Instant,
) {
    let responsive = lanes.iter().filter(|lane| !unresponsive.contains(&lane.name));
    for answer in ask_all(responsive, |done| Message::Finish(manifest.clone(), done), deadline) {
        let _ = answer.recv_deadline(deadline);
    }
    lanes.iter_mut().for_each(Lane::join_if_done);
}

struct Worker {
    exporter: Box<dyn Exporter>,
    name: &'static str,
    ledger: Arc<Ledger>,
    queued: Arc<AtomicU64>,
    dead: Arc<AtomicBool>,
    panicked: bool,
    last_log: Option<Instant>,
    unlogged: u64,
    diagnostics: Diagnostics,
    /// Whether the exporter has been started and has received nothing else.
    untouched: bool,
}

/// If its thread cannot be started, a worker is dropped immediately.
impl Drop for Worker {
    fn drop(&mut self) {
        if self.untouched {
            self.abandon();
        }
    }
}

impl Worker {
    fn run(&mut self, receiver: &Receiver<Message>, meter: &super::CpuMeter) {
        self.untouched = false;
        loop {
            match receiver.recv_timeout(Duration::from_secs(1)) {
                Ok(Message::Abandon) => {
                    self.abandon();
                    return;
                }
                Ok(Message::Batch(batch)) => {
                    self.call(|exporter, ledger| exporter.export(&batch, ledger), Some(&batch));
                    self.queued.fetch_sub(batch.len() as u64, Ordering::Relaxed);
                }
                Ok(Message::Update(manifest)) => self.call(|exporter, _| exporter.update(&manifest), None),
                Ok(Message::Flush(done)) => {
                    self.call(|exporter, ledger| exporter.flush(ledger), None);
                    let _ = done.send(!self.dead.load(Ordering::Relaxed));
                }
                Ok(Message::Close(done)) => {
                    self.call(|exporter, ledger| exporter.close(ledger), None);
                    let dead = self.dead.load(Ordering::Relaxed);
                    self.ledger.settle(if dead { DropReason::Dead } else { DropReason::Unaccounted });
                    meter.update();
                    let _ = done.send(());
                }
                Ok(Message::Finish(manifest, done)) => {
                    self.call(|exporter, _| exporter.finish(&manifest), None);
                    let _ = done.send(());
                    return;
                }
                Err(RecvTimeoutError::Timeout) => self.call(|exporter, ledger| exporter.tick(ledger), None),
                Err(RecvTimeoutError::Disconnected) => {
                    // The pipeline has ended without closing the exporter: keep what can be kept.
                    self.call(|exporter, ledger| exporter.close(ledger), None);
                    return;
                }
            }
            meter.update();
        }
    }

    fn abandon(&mut self) {
        let take_back = |exporter: &mut dyn Exporter, _: &Ledger| {
            exporter.abandon();
            Ok(())
        };
        self.call(take_back, None);
    }

    /// Calls the exporter, handles its error in this one place, and keeps a panic from spreading.
    fn call(&mut self, f: impl FnOnce(&mut dyn Exporter, &Ledger) -> Result<(), ExportError>, batch: Option<&Batch>) {
        match batch {
            Some(batch) if self.dead.load(Ordering::Relaxed) => {
                return self.ledger.dropped_batch(batch, DropReason::Dead);
            }
            // After a panic, the exporter's state is unknown; after a fatal error, it may still close what it had
            // written.
            _ if self.panicked => return,
            _ => {}
        }
        let exporter = self.exporter.as_mut();
        let ledger = &*self.ledger;
        match catch_unwind(AssertUnwindSafe(|| f(exporter, ledger))) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                let fatal = error.is_fatal();
                self.log(&describe(&error));
                if fatal {
                    self.die();
                }
            }
            Err(payload) => {
                self.panicked = true;
                let said = panic_message(payload.as_ref());
                self.log(&format!("the exporter panicked and gets no more records: {said}"));
                self.die();
            }
        }
    }

    /// From here on batches are dropped for the reason `dead`. What the exporter kept back is settled when it closes.
    fn die(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }

    fn log(&mut self, message: &str) {
        self.ledger.note_error(message.to_string());
        if self.last_log.is_some_and(|t| t.elapsed() < LOG_EVERY) {
            self.unlogged += 1;
            return;
        }
        let more = match std::mem::take(&mut self.unlogged) {
            0 => String::new(),
            n => format!(" ({n} more since the last line)"),
        };
        self.diagnostics.report(self.name, format!("{message}{more}"));
        self.last_log = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{RecordKind, SampleRecord};
    use std::sync::Barrier;

    /// Begins with its first batch, waits at the barrier, and then exports it after all.
    struct Slow(Arc<Barrier>);

    impl Exporter for Slow {
        fn name(&self) -> &'static str {
            "slow"
        }
        fn export(&mut self, batch: &Batch, ledger: &Ledger) -> Result<(), ExportError> {
            ledger.exported(RecordKind::Sample, 1);
            self.0.wait();
            self.0.wait();
            ledger.exported(RecordKind::Sample, batch.samples.len() as u64 - 1);
            self.0.wait();
            Ok(())
        }
    }

    #[test]
    fn the_account_of_an_exporter_that_is_late_adds_up_whatever_it_does_meanwhile() {
        let barrier = Arc::new(Barrier::new(2));
        let quick = crate::memory::MemoryExporter::new();
        let start = |exporter: Box<dyn Exporter>| {
            let run = RunManifest::default();
            Lane::start(exporter, &run, 100, Arc::default(), &Diagnostics::default()).expect("starts")
        };
        let lanes = [start(Box::new(quick)), start(Box::new(Slow(barrier.clone())))];
        let sample = SampleRecord::new(crate::HostNs(0), "cpu", "power", 1.0, "watts");
        let mut batch = Batch::default();
        batch.samples = vec![sample; 3];
        let batch = Arc::new(batch);
        lanes.iter().for_each(|lane| lane.send(&batch));
        barrier.wait();
        let ledger = lanes[1].ledger.clone();
        let closed = close_all(&lanes, Instant::now() + Duration::from_millis(300));
        barrier.wait();
        barrier.wait();
        assert_eq!(closed.unresponsive, ["slow"]);
        let accounts: Vec<(u64, u64, bool)> = closed.reports.iter().map(account).collect();
        assert_eq!(accounts, [(3, 0, true), (1, 2, true)], "what was not settled in time was dropped");
        assert_eq!(account(&ledger.report("slow")), (3, 0, true), "and its own goes on");
    }

    #[test]
    fn an_exporter_that_hangs_with_a_full_queue_takes_nobody_else_s_time() {
        let barrier = Arc::new(Barrier::new(2));
        let quick = crate::memory::MemoryExporter::new();
        let start = |exporter: Box<dyn Exporter>| {
            let run = RunManifest::default();
            Lane::start(exporter, &run, 1 << 20, Arc::default(), &Diagnostics::default()).expect("starts")
        };
        let lanes = [start(Box::new(Slow(barrier.clone()))), start(Box::new(quick))];
        let mut batch = Batch::default();
        batch.samples = vec![SampleRecord::new(crate::HostNs(0), "cpu", "power", 1.0, "watts"); 3];
        let batch = Arc::new(batch);
        lanes[0].send(&batch);
        barrier.wait();
        while lanes[0].sender.try_send(Message::Update(Arc::default())).is_ok() {}
        lanes[1].send(&batch);
        let closed = close_all(&lanes, Instant::now() + Duration::from_secs(3));
        assert_eq!(closed.unresponsive, ["slow"]);
        assert_eq!(account(&closed.reports[1]), (3, 0, true));
        barrier.wait();
        barrier.wait();
    }

    /// Samples exported and dropped, and whether the account is conserved.
    fn account(report: &ExporterReport) -> (u64, u64, bool) {
        (report.exported["samples"], report.dropped_total(RecordKind::Sample), report.conserved())
    }
}
