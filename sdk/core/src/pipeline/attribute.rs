//! Kernels find the intervals that launched them: the drain's end of a kernel recorder.

use crate::HostNs;
use crate::gpu::{ActivitySink, RawKernel};
use crate::record::{Batch, KernelRecord, PathInfo, SpanRecord};
use crate::run::KernelAccount;
use crate::shared::Shared;
use crate::vocabulary::Phase;
use crossbeam_channel::{Receiver, Sender};
use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Kernels that may wait for their interval to end.
///
/// Overload policy: beyond this they go out without their path, because a step so long would otherwise fill the memory.
const MAX_WAITING: usize = 1 << 19;

/// Intervals remembered for kernels that come late.
const MAX_REMEMBERED: usize = 1 << 16;

/// Time between two requests in a window that goes on: a recorder that hands over its buffers holds up launches.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// A window whose steps do not all arrive is closed after this long.
const CLOSE_ANYWAY: Duration = Duration::from_secs(5);

/// What the drain asks of the recorder's thread.
#[derive(Debug)]
pub(crate) enum Ask {
    /// Deliver everything about work the device has finished.
    Collect(u64),
    /// All kernels of the window are in.
    CloseWindow,
    /// Deliver what there is and end.
    Stop(u64),
}

/// The answer to [`Ask`], or news in between (ticket 0).
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) ticket: u64,
    pub(crate) sink: ActivitySink,
}

/// The drain's end of a kernel recorder.
pub(crate) struct Kernels {
    name: &'static str,
    ask: Sender<Ask>,
    deliveries: Receiver<Delivery>,
    error: Arc<Mutex<Option<String>>>,
    /// Highest ticket answered.
    answered: u64,
    asked: u64,
    asked_at: Option<Instant>,
    /// By the interval that launched them.
    waiting: FxHashMap<u64, Vec<RawKernel>>,
    waiting_count: usize,
    /// Delivered without an interval.
    stray: Vec<RawKernel>,
    remembered: FxHashMap<u64, Place>,
    steps_seen: u64,
    closing_since: Option<Instant>,
    recorded: u64,
    unattributed: u64,
    late: u64,
    dropped: u64,
}

/// Where an interval stands, for a kernel that comes after it has gone.
#[derive(Debug, Clone)]
struct Place {
    step: Option<u64>,
    phase: Option<Phase>,
    path: Arc<PathInfo>,
}

/// Kernels inside one interval, its descendants' included.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Inside {
    /// Whether the interval was in a window at all.
    pub(crate) recorded: bool,
    /// Sum of the kernels' durations.
    pub(crate) sum_ns: u64,
    /// First start and last end.
    pub(crate) extent: Option<(HostNs, HostNs)>,
}

/// What kernels mean for the spans of a batch, in their order.
pub(crate) struct Attribution(Vec<Inside>);

impl Attribution {
    pub(crate) fn per_span(&self) -> impl Iterator<Item = &Inside> {
        self.0.iter()
    }
}

impl Inside {
    fn add(&mut self, other: Inside) {
        self.recorded |= other.recorded;
        self.sum_ns += other.sum_ns;
        self.extent = match (self.extent, other.extent) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (one, other) => one.or(other),
        };
    }
}

impl Kernels {
    pub(crate) fn new(
        name: &'static str,
        ask: Sender<Ask>,
        deliveries: Receiver<Delivery>,
        error: Arc<Mutex<Option<String>>>,
    ) -> Self {
        Self {
            name,
            ask,
            deliveries,
            error,
            answered: 0,
            asked: 0,
            asked_at: None,
            waiting: FxHashMap::default(),
            waiting_count: 0,
            stray: Vec::new(),
            remembered: FxHashMap::default(),
            steps_seen: 0,
            closing_since: None,
            recorded: 0,
            unattributed: 0,
            late: 0,
            dropped: 0,
        }
    }

    /// Takes in what the recorder delivered.
    pub(crate) fn receive(&mut self, shared: &Shared) {
        while let Ok(delivery) = self.deliveries.try_recv() {
            self.answered = self.answered.max(delivery.ticket);
            self.dropped += delivery.sink.dropped;
            self.recorded += delivery.sink.kernels.len() as u64;
            for kernel in delivery.sink.kernels {
                match kernel.span {
                    Some(span) if self.waiting_count < MAX_WAITING => {
                        self.waiting.entry(shared.seq_of(span)).or_default().push(kernel);
                        self.waiting_count += 1;
                    }
                    _ => self.stray.push(kernel),
                }
            }
        }
    }

    /// Whether now is the time to ask: not while an answer is due, and not too often unless it is `urgent`.
    pub(crate) fn may_ask(&self, urgent: bool) -> bool {
        self.answered(self.asked) && (urgent || self.asked_at.is_none_or(|at| at.elapsed() >= ASK_EVERY))
    }

    /// Asks for everything up to now; the number says when it is there.
    pub(crate) fn ask(&mut self) -> u64 {
        self.asked += 1;
        self.asked_at = Some(Instant::now());
        if self.ask.send(Ask::Collect(self.asked)).is_err() {
            self.answered = self.asked;
        }
        self.asked
    }

    /// Whether what was asked for has come, or never will.
    pub(crate) fn answered(&self, ticket: u64) -> bool {
        self.answered >= ticket || self.error.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Asks for the last kernels and the end of the recorder's thread.
    pub(crate) fn stop(&mut self) -> u64 {
        self.asked += 1;
        if self.ask.send(Ask::Stop(self.asked)).is_err() {
            self.answered = self.asked;
        }
        self.asked
    }

    /// Moves the kernels of a batch's intervals into it, and adds up what each interval launched.
    pub(crate) fn attribute(
        &mut self,
        batch: &mut Batch,
        in_window: &[u32],
        shared: &Shared,
        window_steps: u64,
    ) -> Attribution {
        self.steps_seen += window_steps;
        if self.remembered.len() > MAX_REMEMBERED {
            self.remembered.clear();
        }
        let at: FxHashMap<u64, usize> = batch.spans.iter().enumerate().map(|(i, span)| (span.seq, i)).collect();
        let mut inside = vec![Inside::default(); batch.spans.len()];
        for &i in in_window {
            let i = i as usize;
            let span = &batch.spans[i];
            let kernels = self.waiting.remove(&span.seq).unwrap_or_default();
            self.waiting_count -= kernels.len();
            inside[i].recorded = true;
            for kernel in kernels {
                let end = kernel.start.plus_ns(kernel.dur_ns);
                inside[i].add(Inside { recorded: true, sum_ns: kernel.dur_ns, extent: Some((kernel.start, end)) });
                batch.kernels.push(record(kernel, Some(&place(span)), shared));
            }
            self.remembered.insert(span.seq, place(span));
        }
        // Children come after their parents in enter order, so from the back every interval is complete when it is passed on.
        for &i in in_window.iter().rev() {
            let i = i as usize;
            if let Some(&parent) = batch.spans[i].parent_seq.and_then(|seq| at.get(&seq)) {
                let own = inside[i];
                inside[parent].add(own);
            }
        }
        Attribution(inside)
    }

    /// Kernels that will find no interval: launched outside all of them, or after theirs had gone out.
    pub(crate) fn loose(&mut self, into: &mut Batch, shared: &Shared) {
        for kernel in std::mem::take(&mut self.stray) {
            self.unattributed += u64::from(kernel.span.is_none());
            into.kernels.push(record(kernel, None, shared));
        }
        let late: Vec<u64> = if self.remembered.is_empty() {
            Vec::new()
        } else {
            self.waiting.keys().copied().filter(|seq| self.remembered.contains_key(seq)).collect()
        };
        for seq in late {
            self.let_go(seq, into, shared);
        }
    }

    /// What is still waiting when no more intervals come.
    pub(crate) fn rest(&mut self, into: &mut Batch, shared: &Shared) {
        self.receive(shared);
        self.loose(into, shared);
        let left: Vec<u64> = self.waiting.keys().copied().collect();
        for seq in left {
            self.let_go(seq, into, shared);
        }
    }

    fn let_go(&mut self, seq: u64, into: &mut Batch, shared: &Shared) {
        let place = self.remembered.get(&seq).cloned();
        for kernel in self.waiting.remove(&seq).unwrap_or_default() {
            self.waiting_count -= 1;
            self.late += 1;
            into.kernels.push(record(kernel, place.as_ref(), shared));
        }
    }

    /// Lets the recorder be switched off once every step of the window has come through here.
    pub(crate) fn close_window_when_done(&mut self, shared: &Shared) {
        let Some(window) = shared.kernels.as_ref().map(|k| &k.window).filter(|w| w.is_closing()) else {
            self.closing_since = None;
            return;
        };
        let since = *self.closing_since.get_or_insert_with(Instant::now);
        if self.steps_seen >= window.taken() || since.elapsed() > CLOSE_ANYWAY {
            self.steps_seen = window.taken();
            let _ = self.ask.send(Ask::CloseWindow);
        }
    }

    /// For the manifest.
    pub(crate) fn account(&self, shared: &Shared) -> KernelAccount {
        let window = shared.kernels.as_ref().map(|k| &k.window);
        KernelAccount {
            recorder: self.name.to_string(),
            windows: window.map_or(0, |w| w.windows()),
            steps: window.map_or(0, |w| w.taken()),
            recorded: self.recorded,
            unattributed: self.unattributed,
            late: self.late,
            dropped: self.dropped,
            clock_bound_ns: None,
            error: self.error.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

fn place(span: &SpanRecord) -> Place {
    Place { step: span.step, phase: span.phase, path: span.path.clone() }
}

fn record(kernel: RawKernel, place: Option<&Place>, shared: &Shared) -> KernelRecord {
    let launched = kernel.launch_start.zip(kernel.launch_dur_ns).map(|(start, dur)| start.plus_ns(dur));
    KernelRecord {
        kind: kernel.kind,
        name: kernel.name,
        seq: kernel.span.map(|span| shared.seq_of(span)),
        span_id: kernel.span,
        step: place.and_then(|p| p.step),
        phase: place.and_then(|p| p.phase),
        path: place.map(|p| p.path.clone()),
        device: kernel.device,
        stream: kernel.stream,
        gpu_start: kernel.start,
        gpu_dur_ns: kernel.dur_ns,
        grid: kernel.grid,
        block: kernel.block,
        registers: kernel.registers,
        shared_static: kernel.shared_static,
        shared_dynamic: kernel.shared_dynamic,
        bytes: kernel.bytes,
        launch: kernel.launch,
        launch_start: kernel.launch_start,
        launch_dur_ns: kernel.launch_dur_ns,
        queue_delay_ns: launched.map(|end| kernel.start.since(end)),
        correlation: kernel.correlation,
        graph: kernel.graph,
    }
}
