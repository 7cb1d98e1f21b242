//! Writes a run of some steps while the session goes on: the records of these steps go to one more exporter, which is
//! closed afterwards.

use super::fanout::{ClosedExporters, Lane, close_all, finish_all};
use super::threads;
use crate::HostNs;
use crate::account::RunEnd;
use crate::capture::EndedAt;
use crate::control::{Control, KernelWindow};
use crate::diagnostics::Diagnostics;
use crate::record::{Batch, RecordKind, RequestRecord, SampleRecord, StepRecord};
use crate::run::{ClockInfo, Code, Finding, MachineMeter, RunManifest, Severity, StepCounts};
use crate::tally::Tally;
use crossbeam_channel::Sender;
use rustc_hash::FxHashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// After this time without a new step, steps that have begun are no longer waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// The same, if steps were lost: they may be the missing ones.
const PATIENCE_AFTER_LOSS: Duration = Duration::from_secs(5);

/// The same, once the user wants no more steps: until then those that have begun may still wait for the device.
const PATIENCE_AT_END: Duration = Duration::from_secs(5);

/// Time that the rows of requests get once all steps are there: a request ends after its steps.
const ROWS_PATIENCE: Duration = Duration::from_millis(50);

/// From this value on, it is not known how many intervals a step lost.
const UNCOUNTED: u64 = u16::MAX as u64;

/// Time that the exporter gets to write its records.
const CLOSE_WITHIN: Duration = Duration::from_secs(60);

/// Longest wait for the recorder of kernels before a capture begins without it.
const KERNELS_PATIENCE: Duration = Duration::from_secs(10);

/// What the drain needs in order to begin a capture.
pub(crate) struct CaptureRequest {
    pub(crate) lane: Lane,
    pub(crate) run_id: String,
    pub(crate) steps: u64,
    /// Set when the user wants no more steps.
    pub(crate) ended: Arc<EndedAt>,
    /// Receives the manifest of the finished run.
    pub(crate) finished: Sender<RunManifest>,
    /// Receives the numbers of the steps before the first of them begins; `None` if a window is open already.
    pub(crate) begun: Sender<Option<Range<u64>>>,
    /// Released when another capture may begin.
    pub(crate) busy: Busy,
}

/// Keeps other captures from beginning while it lives.
pub(crate) struct Busy(Arc<AtomicBool>);

impl Busy {
    /// `None` while another capture is under way.
    pub(crate) fn claim(flag: &Arc<AtomicBool>) -> Option<Self> {
        (!flag.swap(true, Ordering::AcqRel)).then(|| Self(flag.clone()))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A capture that begins when the recorder of kernels is on, or is not waited for any longer.
pub(crate) struct WaitingCapture {
    request: CaptureRequest,
    until: Instant,
}

impl WaitingCapture {
    pub(crate) fn new(request: CaptureRequest, control: &Control) -> Self {
        let asked = control.kernels().is_some_and(KernelWindow::ask_for_capture);
        Self { request, until: Instant::now() + if asked { KERNELS_PATIENCE } else { Duration::ZERO } }
    }

    /// Whether the capture is to begin now.
    pub(crate) fn is_over(&self, control: &Control) -> bool {
        control.kernels().is_none_or(|window| window.is_on() || window.has_failed()) || Instant::now() >= self.until
    }

    /// Releases the recorder and the exporter.
    pub(crate) fn give_up(self, control: &Control) {
        control.end_capture();
        self.request.lane.request_abandon();
    }
}

/// A capture under way.
pub(crate) struct OpenCapture {
    request: CaptureRequest,
    /// Numbers of the steps; of those that had begun, once the user wants no more.
    window: Range<u64>,
    /// Steps that were asked for.
    wanted: u64,
    /// When no more steps were let in, because all had come or the user wants no more.
    closed: Option<Instant>,
    /// When all of them had come.
    complete: Option<Instant>,
    /// Requests that the captured steps work for and that have not ended.
    requests: FxHashSet<u64>,
    seen: u64,
    /// When the window was opened, on the run's time line: the system clock may have been set meanwhile.
    started: HostNs,
    last_seen: Instant,
    /// A step that goes on may have intervals all the time; this is when one came that had ended.
    last_step: Instant,
    before: Tally,
    step_ns: u64,
    model_spans: u64,
    /// Intervals of these steps that were dropped; `None` if a step lost more than it can count.
    dropped: Option<u64>,
    /// Intervals whose parent was dropped.
    orphans: u64,
    machine: MachineMeter,
}

impl OpenCapture {
    /// Opens the window. If one is open already, the request is dropped and the result is `None`.
    pub(crate) fn begin(waiting: WaitingCapture, control: &Control, before: Tally, now: HostNs) -> Option<Self> {
        let window = control.open_window(waiting.request.steps, true);
        let _ = waiting.request.begun.send(window.clone());
        let Some(window) = window else {
            waiting.give_up(control);
            return None;
        };
        if let Some(recorder) = control.kernels() {
            recorder.go_without();
        }
        let request = waiting.request;
        Some(Self {
            request,
            wanted: window.end - window.start,
            window,
            closed: None,
            complete: None,
            requests: FxHashSet::default(),
            seen: 0,
            started: now,
            last_seen: Instant::now(),
            last_step: Instant::now(),
            before,
            step_ns: 0,
            model_spans: 0,
            dropped: Some(0),
            orphans: 0,
            machine: MachineMeter::default(),
        })
    }

    /// Takes samples as they come. A capture is short, and its steps follow each other: all its time counts.
    pub(crate) fn add_samples(&mut self, samples: &[SampleRecord]) {
        self.machine.add(samples, true);
    }

    /// Takes the records of the captured steps from `batch`.
    pub(crate) fn take(&mut self, batch: &Batch) {
        self.take_end();
        let inside = |step: Option<u64>| step.is_some_and(|step| self.window.contains(&step));
        let steps: Vec<_> = batch.steps.iter().filter(|s| inside(Some(s.step))).cloned().collect();
        let mut spans: Vec<_> = batch.spans.iter().filter(|s| inside(s.step)).cloned().collect();
        // What is around a step, such as a request's span, is not in this run.
        let roots: FxHashSet<u64> = steps.iter().map(|s| s.seq).collect();
        spans.iter_mut().filter(|s| roots.contains(&s.seq)).for_each(|s| s.parent_seq = None);
        let kernels: Vec<_> = batch.kernels.iter().filter(|k| inside(k.step)).cloned().collect();
        self.requests.extend(steps.iter().flat_map(StepRecord::requests));
        // A request ends after its steps: its row may come later, or the capture may end before it does. A request that
        // began before the capture has steps that are missing here, and would look as if it had been idle.
        let whole = |r: &&RequestRecord| self.requests.remove(&r.request) && r.host_start >= self.started;
        let requests = batch.requests.iter().filter(whole).cloned().collect();
        let samples = batch.samples.iter().filter(|s| s.time >= self.started).cloned().collect();
        self.seen += steps.len() as u64;
        for step in &steps {
            let lost = step.intervals_lost.filter(|lost| *lost < UNCOUNTED);
            self.dropped = self.dropped.zip(lost).map(|(sum, lost)| sum + lost);
        }
        self.orphans += spans.iter().filter(|s| s.path.is_orphan()).count() as u64;
        self.step_ns += steps.iter().map(|s| s.host_dur_ns).sum::<u64>();
        self.model_spans += spans.iter().filter(|s| &*s.path.target != crate::llm::TARGET).count() as u64;
        if !steps.is_empty() {
            self.last_step = Instant::now();
        }
        if !spans.is_empty() || !steps.is_empty() {
            self.last_seen = Instant::now();
        }
        let mut taken = Batch::default();
        (taken.spans, taken.steps, taken.requests) = (spans, steps, requests);
        (taken.samples, taken.kernels) = (samples, kernels);
        if !taken.is_empty() {
            self.request.lane.send(&Arc::new(taken));
        }
    }

    /// Whether no more records are to come. Steps that have begun are waited for, also if the user wants no more: they
    /// may have ended long ago, and their records wait for the device.
    pub(crate) fn is_done(&mut self, control: &Control, tally: &Tally) -> bool {
        self.take_end();
        if self.complete.is_none() && self.seen >= self.window.end - self.window.start {
            self.complete = Some(Instant::now());
            self.close(control);
            // The kernels of all captured steps have come.
            control.end_capture();
        }
        match (self.complete, self.closed) {
            (Some(since), _) => self.requests.is_empty() || since.elapsed() > ROWS_PATIENCE,
            (None, Some(since)) => since.max(self.last_step).elapsed() > PATIENCE_AT_END,
            (None, None) => {
                let lost = tally.steps.lost > self.before.steps.lost;
                let patience = if lost { PATIENCE_AFTER_LOSS } else { PATIENCE };
                control.steps() >= self.window.end && self.last_seen.elapsed() > patience
            }
        }
    }

    /// Leaves out the steps that the user does not want any more, who has closed the window.
    fn take_end(&mut self) {
        if self.closed.is_none()
            && let Some(end) = self.request.ended.get()
        {
            self.closed = Some(Instant::now());
            self.window.end = end;
        }
    }

    /// Whether no more steps are let in.
    pub(crate) fn is_closing(&self) -> bool {
        self.closed.is_some()
    }

    /// Lets no more steps in.
    fn close(&mut self, control: &Control) {
        if self.closed.is_none() {
            control.close_window(self.window.end);
            self.closed = Some(Instant::now());
        }
    }

    /// Writes the run on a thread of its own, because that may take long.
    pub(crate) fn finish(
        mut self,
        end: CaptureEnd,
        control: &Control,
        diagnostics: &Diagnostics,
    ) -> Option<JoinHandle<()>> {
        self.close(control);
        // The kernels of all captured steps have come by now, unless they were no longer waited for.
        control.end_capture();
        let begun = control.steps().min(self.window.end).saturating_sub(self.window.start);
        // If no thread can be started, the exporter sees its queue close and keeps what it can.
        threads::spawn("cs-capture", move || self.write(end, begun))
            .inspect_err(|e| {
                let what = "a captured run stays incomplete, because there is no thread to finish it";
                diagnostics.report("", format!("{what}: {e}; {}", threads::NO_THREAD));
            })
            .ok()
    }

    /// `begun` steps have begun; those that did not arrive still go on, or were lost.
    fn write(self, end: CaptureEnd, begun: u64) {
        // This thread reports no problems: those of the exporter are reported by the exporter's own thread.
        super::prepare_background_thread(&Diagnostics::default());
        let mut tally = end.tally.since(&self.before);
        let Self { request, wanted, seen, started, step_ns, model_spans, requests, dropped, orphans, machine, .. } =
            self;
        let machine = machine.result();
        let CaptureRequest { lane, run_id, finished, busy, .. } = request;
        let mut lanes = [lane];
        let deadline = Instant::now() + CLOSE_WITHIN;
        let ClosedExporters { reports, unresponsive } = close_all(&lanes, deadline);
        for kind in RecordKind::ALL {
            tally.counts[kind as usize] = reports.iter().filter_map(|report| report.received.get(kind.table())).sum();
        }
        let spans = tally.counts[RecordKind::Span as usize];
        tally.step_ns = step_ns;
        tally.model_spans = model_spans;
        tally.helper_spans = spans - model_spans.min(spans);
        tally.drained = spans;
        tally.orphans = orphans;
        // Of the intervals that the session lost meanwhile, only those of these steps count. The steps state how many
        // they lost; but if a step is missing that may have been lost itself, all of the session's lost intervals may
        // have been theirs.
        let missing = begun.saturating_sub(seen).min(tally.steps.lost);
        tally.steps = StepCounts {
            begun,
            captured: seen,
            lost: missing,
            open_at_end: begun.saturating_sub(seen + missing),
            ..StepCounts::default()
        };
        if let Some(dropped) = dropped.filter(|_| missing == 0) {
            tally.loss.ring_full = dropped;
        }
        tally.loss.emitted = spans + tally.loss.lost();
        tally.loss.requests_open_at_end = requests.len() as u64;
        let mut m = end.manifest;
        m.run_id = run_id;
        m.started_ns = started.0;
        let closing = RunEnd {
            ended: end.now,
            tally,
            clock: end.clock,
            exporters: reports,
            unresponsive: &unresponsive,
            per_interval_ns: end.per_interval_ns,
            machine,
            // Without a step nothing can be said about its spans; the finding about the capture is added below.
            paused_throughout: seen == 0,
            capture: true,
            ..RunEnd::default()
        };
        closing.close(&mut m);
        if seen < wanted {
            let remedy = if missing > 0 {
                "others were dropped (see ring_full): capture again when the machine has less to do"
            } else {
                "it was ended before the others came; ask again while the program is at work"
            };
            let finding = Finding::new(
                Code::CaptureCutShort,
                "the capture has {seen} of the {wanted} steps that were asked for",
                remedy,
            )
            .count("seen", seen)
            .count("wanted", wanted);
            m.verdict.add(if seen == 0 { finding.severity(Severity::Error) } else { finding });
        }
        let m = Arc::new(m);
        finish_all(&mut lanes, &unresponsive, &m, deadline);
        drop(busy);
        let _ = finished.send((*m).clone());
    }
}

/// What the session knows when a capture ends.
pub(crate) struct CaptureEnd {
    pub(crate) tally: Tally,
    pub(crate) manifest: RunManifest,
    pub(crate) clock: ClockInfo,
    pub(crate) per_interval_ns: f64,
    pub(crate) now: HostNs,
}
