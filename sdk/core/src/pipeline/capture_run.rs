//! A run of some steps beside the session's own exporters: what belongs to them goes to one more exporter, which then
//! ends.

use super::fanout::{Closed, Lane, close_all, finish_all};
use super::threads;
use crate::HostNs;
use crate::account::Closing;
use crate::control::{Control, KernelWindow};
use crate::diagnostics::Diagnostics;
use crate::record::{Batch, RecordKind, RequestRecord};
use crate::run::{ClockInfo, Code, Finding, RunManifest, Severity, StepCounts};
use crate::tally::Tally;
use crossbeam_channel::Sender;
use rustc_hash::FxHashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Steps that have begun are waited for this long after anything was last heard of them.
const PATIENCE: Duration = Duration::from_secs(60);

/// The same where steps were lost: it may have been these.
const PATIENCE_AFTER_LOSS: Duration = Duration::from_secs(5);

/// From here on a step does not say how much it lost.
const UNCOUNTED: u64 = u16::MAX as u64;

/// Time that the exporter gets to write what it was given.
const CLOSE_WITHIN: Duration = Duration::from_secs(60);

/// Longest wait for the recorder of kernels before a capture begins without.
const KERNELS_PATIENCE: Duration = Duration::from_secs(10);

/// What the drain needs to begin a capture.
pub(crate) struct CaptureRequest {
    pub(crate) lane: Lane,
    pub(crate) run_id: String,
    pub(crate) steps: u64,
    /// Told by the user that no more steps are wanted.
    pub(crate) ended: Arc<AtomicBool>,
    /// Hears of the finished run.
    pub(crate) finished: Sender<RunManifest>,
    /// Hears the numbers of the steps, before the first of them begins; `None` where a window is open already.
    pub(crate) begun: Sender<Option<Range<u64>>>,
    /// Cleared when another capture may begin.
    pub(crate) busy: Busy,
}

/// Keeps others out while it lives.
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
pub(crate) struct Waiting {
    request: CaptureRequest,
    until: Instant,
}

impl Waiting {
    pub(crate) fn new(request: CaptureRequest, control: &Control) -> Self {
        let asked = control.kernels().is_some_and(KernelWindow::ask_for_capture);
        Self { request, until: Instant::now() + if asked { KERNELS_PATIENCE } else { Duration::ZERO } }
    }

    /// Whether it is to begin now.
    pub(crate) fn is_over(&self, control: &Control) -> bool {
        control.kernels().is_none_or(|window| window.is_on() || window.has_failed()) || Instant::now() >= self.until
    }

    /// Lets go of the recorder and the exporter.
    pub(crate) fn give_up(self, control: &Control) {
        control.end_capture();
        self.request.lane.request_abandon();
    }
}

/// A capture under way.
pub(crate) struct Capturing {
    request: CaptureRequest,
    window: Range<u64>,
    /// Requests that the captured steps work for and that have not ended.
    requests: FxHashSet<u64>,
    seen: u64,
    /// When the window was opened, on the line of the run's times: the system clock may have been set meanwhile.
    started: HostNs,
    last_seen: Instant,
    before: Tally,
    step_ns: u64,
    model_spans: u64,
    /// Intervals of these steps that were dropped; `None` where a step lost more than it can say.
    dropped: Option<u64>,
    /// Those whose parent was.
    orphans: u64,
}

impl Capturing {
    /// Opens the window; `None`, and the request is dropped, where one is open already.
    pub(crate) fn begin(waiting: Waiting, control: &Control, before: Tally, now: HostNs) -> Option<Self> {
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
            window,
            requests: FxHashSet::default(),
            seen: 0,
            started: now,
            last_seen: Instant::now(),
            before,
            step_ns: 0,
            model_spans: 0,
            dropped: Some(0),
            orphans: 0,
        })
    }

    /// Takes what belongs to the captured steps.
    pub(crate) fn take(&mut self, batch: &Batch) {
        let inside = |step: Option<u64>| step.is_some_and(|step| self.window.contains(&step));
        let steps: Vec<_> = batch.steps.iter().filter(|s| inside(Some(s.step))).cloned().collect();
        let mut spans: Vec<_> = batch.spans.iter().filter(|s| inside(s.step)).cloned().collect();
        // What a step stands in, such as a request's span, is not in this run.
        let roots: FxHashSet<u64> = steps.iter().map(|s| s.seq).collect();
        spans.iter_mut().filter(|s| roots.contains(&s.seq)).for_each(|s| s.parent_seq = None);
        let kernels: Vec<_> = batch.kernels.iter().filter(|k| inside(k.step)).cloned().collect();
        self.requests.extend(steps.iter().filter_map(|s| s.request));
        // A request ends after its steps: its row may still come, or the capture ends before it does. One that began
        // before has steps that are not here, and would look as if it had been idle.
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
        if !spans.is_empty() || !steps.is_empty() {
            self.last_seen = Instant::now();
        }
        let taken = Batch { spans, steps, requests, samples, kernels };
        if !taken.is_empty() {
            self.request.lane.send(&Arc::new(taken));
        }
    }

    /// Whether nothing more is to come.
    pub(crate) fn is_done(&self, control: &Control, tally: &Tally) -> bool {
        let patience = if tally.steps.lost > self.before.steps.lost { PATIENCE_AFTER_LOSS } else { PATIENCE };
        self.seen >= self.window.end - self.window.start
            || self.request.ended.load(Ordering::Relaxed)
            || (control.steps() >= self.window.end && self.last_seen.elapsed() > patience)
    }

    /// Writes the run on a thread of its own, because that may take as long as it likes.
    pub(crate) fn finish(
        self,
        end: CaptureEnd,
        control: &Control,
        diagnostics: &Diagnostics,
    ) -> Option<JoinHandle<()>> {
        control.close_window(self.window.end);
        // The kernels of all captured steps have come by now, unless the capture was ended before.
        control.end_capture();
        let begun = control.steps().min(self.window.end).saturating_sub(self.window.start);
        // Where there is no thread to be had the exporter sees its queue close, and keeps what it can.
        threads::spawn("cs-capture", move || self.write(end, begun))
            .inspect_err(|e| {
                let what = "a captured run stays incomplete, because there is no thread to finish it";
                diagnostics.report("", format!("{what}: {e}; {}", threads::NO_THREAD));
            })
            .ok()
    }

    /// `begun` steps have begun; those of them that did not come go on, or were lost.
    fn write(self, end: CaptureEnd, begun: u64) {
        // Nothing is told from here: what the exporter says, its own thread tells.
        super::prepare_background_thread(&Diagnostics::default());
        let mut tally = end.tally.since(&self.before);
        let Self { request, window, seen, started, step_ns, model_spans, requests, dropped, orphans, .. } = self;
        let CaptureRequest { lane, run_id, finished, busy, .. } = request;
        let mut lanes = [lane];
        let deadline = Instant::now() + CLOSE_WITHIN;
        let Closed { reports, unresponsive } = close_all(&lanes, deadline);
        for kind in RecordKind::ALL {
            tally.counts[kind as usize] = reports.iter().filter_map(|report| report.received.get(kind.table())).sum();
        }
        let spans = tally.counts[RecordKind::Span as usize];
        tally.step_ns = step_ns;
        tally.model_spans = model_spans;
        tally.helper_spans = spans - model_spans.min(spans);
        tally.drained = spans;
        tally.orphans = orphans;
        // Of what the session dropped meanwhile only that counts which was of these steps. They say how much it was;
        // but where a step that is missing may have been dropped itself, all of it may have been theirs.
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
        let closing = Closing {
            ended: end.now,
            tally,
            clock: end.clock,
            exporters: reports,
            unresponsive: &unresponsive,
            per_interval_ns: end.per_interval_ns,
            // Without a step there is nothing to be said of its spans, but of the capture: see below.
            paused_throughout: seen == 0,
            capture: true,
            ..Closing::default()
        };
        closing.close(&mut m);
        let wanted = window.end - window.start;
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
