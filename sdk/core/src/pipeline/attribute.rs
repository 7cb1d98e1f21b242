//! The drain's end of a recorder of kernels: kernels find the intervals that launched them.

mod incomplete;
mod inside;
mod kernel_rows;
mod of_graphs;
mod unplaced;

pub(crate) use inside::{Attribution, Extent, KernelsInside};

use super::graph_patterns::GraphPatterns;
use super::replay_sizes::ReplaySizes;
use super::replays::{GraphNodes, PlaceInReplay, Replay, rows};
use crate::HostNs;
use crate::gpu::{ActivitySink, OUTSIDE_WINDOW, RawKernel};
use crate::record::{Batch, KernelRecord, SpanRecord};
use crate::run::KernelAccount;
use crate::shared::SessionState;
use crossbeam_channel::{Receiver, Sender};
use inside::join;
use kernel_rows::{IntervalPlace, behind, insert_replayed, place, record, replayed_seq, sum_of};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use unplaced::UnplacedKernels;

/// Kernels that may wait for their interval to end.
///
/// Overload policy: beyond this they go out without a path, because waiting for a very long step would fill the memory.
const MAX_WAITING: usize = 1 << 19;

/// Intervals remembered for kernels that come late.
const MAX_REMEMBERED: usize = 1 << 16;

/// Windows remembered for kernels without an interval that come after their window was closed.
const MAX_WINDOWS: usize = 64;

/// Time between two requests while a window goes on: a recorder delays launches while it hands over its buffers.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// If not all steps of a window arrive, it is closed after this long, even if it is a capture's.
const CLOSE_ANYWAY: Duration = Duration::from_secs(5);

/// What the drain asks of the recorder's thread.
#[derive(Debug)]
pub(crate) enum Ask {
    /// Deliver everything about work that the device has finished.
    Collect(u64),
    /// All steps of the window have ended: nothing more is to be recorded.
    Pause,
    /// All kernels of the window have arrived.
    CloseWindow,
    /// Deliver what there is, then end.
    Stop(u64),
}

/// The answer to an [`Ask`], or a delivery without one (ticket 0).
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) ticket: u64,
    pub(crate) sink: ActivitySink,
}

/// The drain's end of a kernel recorder.
pub(crate) struct Kernels {
    ask: Sender<Ask>,
    deliveries: Receiver<Delivery>,
    error: Arc<Mutex<Option<String>>>,
    /// The highest ticket that was answered.
    answered: u64,
    asked: u64,
    asked_at: Option<Instant>,
    /// Kernels that wait for their interval, by the `seq` of the interval that launched them.
    waiting: FxHashMap<u64, Vec<RawKernel>>,
    waiting_count: usize,
    /// Kernels without an interval, until it is known whether a window's steps ran when they were launched.
    stray: Vec<RawKernel>,
    /// What was known when these kernels were last sorted.
    stray_known: Option<StrayKnown>,
    /// Kernels that came when no more could wait for their interval.
    excess: Vec<RawKernel>,
    /// First start and last end of the steps of closed windows, and (`current`) of the window under way.
    windows: VecDeque<Extent>,
    current: Option<Extent>,
    remembered: FxHashMap<u64, IntervalPlace>,
    /// Where what graphs replay was captured, and how many replayed intervals got a row.
    nodes: GraphNodes,
    replayed: u64,
    /// What is known to run below which layers, for graphs whose capture nobody saw; and how many kernels replays have.
    patterns: GraphPatterns,
    sizes: ReplaySizes,
    /// Intervals, by `seq`, whose replays had fewer than usual, and how many beyond what was told: these may still come,
    /// late.
    short: FxHashMap<u64, u64>,
    /// Steps of windows that have arrived, or are no longer waited for.
    steps_seen: u64,
    /// Steps of windows that have ended on the host, whether or not their kernels have come.
    steps_ended: u64,
    /// Whether the recorder was asked to pause, for the window under way.
    pausing: bool,
    /// Intervals, by `seq`, that will not get all their kernels, and how many records of theirs were lost or go out
    /// without a path.
    lacking: FxHashMap<u64, u64>,
    /// Whether records were lost of which nobody knows whose they were, in the deliveries since the last one that answers:
    /// the kernels of intervals that go out before the next answer may be incomplete.
    suspect: bool,
    /// Of these records, the ones that no replay has been found to lack.
    suspect_records: u64,
    /// How many were lost so in deliveries after which nothing has gone out yet.
    lost_unanswered: u64,
    /// Steps below this number are not waited for: their window was closed without them.
    given_up: u64,
    /// When the recorder was switched off for that reason; what such a step launched later is not known.
    given_up_at: HostNs,
    closing_since: Option<Instant>,
    /// Counts of what became of kernels so far.
    counts: KernelAccount,
    /// Error bound stated by the recorder, and (`too_early_ns`) how long before their launch kernels seem to have
    /// begun.
    clock_bound_ns: Option<u64>,
    too_early_ns: u64,
}

/// A step of a window that is not inside another step of the window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowStep {
    pub(crate) number: u64,
    /// Its start and end.
    pub(crate) extent: Extent,
}

/// What decides about stray kernels: their number, the latest closed window, the one under way, and whether steps of a
/// window may still come.
type StrayKnown = (usize, Option<Extent>, Option<Extent>, bool);

/// Where a kernel without an interval was launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StrayLaunch {
    /// While steps of a window ran.
    Within,
    /// Before the first step of a window or after the last one.
    Outside,
    /// Not known before more steps of a window have come.
    Unknown,
}

impl Kernels {
    pub(crate) fn new(
        name: &'static str,
        ask: Sender<Ask>,
        deliveries: Receiver<Delivery>,
        error: Arc<Mutex<Option<String>>>,
    ) -> Self {
        Self {
            ask,
            deliveries,
            error,
            answered: 0,
            asked: 0,
            asked_at: None,
            waiting: FxHashMap::default(),
            waiting_count: 0,
            stray: Vec::new(),
            stray_known: None,
            excess: Vec::new(),
            windows: VecDeque::new(),
            current: None,
            remembered: FxHashMap::default(),
            nodes: GraphNodes::default(),
            replayed: 0,
            patterns: GraphPatterns::default(),
            sizes: ReplaySizes::default(),
            short: FxHashMap::default(),
            steps_seen: 0,
            steps_ended: 0,
            pausing: false,
            lacking: FxHashMap::default(),
            suspect: false,
            suspect_records: 0,
            lost_unanswered: 0,
            given_up: 0,
            given_up_at: HostNs(0),
            closing_since: None,
            counts: KernelAccount { recorder: name.into(), ..KernelAccount::default() },
            clock_bound_ns: None,
            too_early_ns: 0,
        }
    }

    /// Takes in what the recorder has delivered.
    pub(crate) fn receive(&mut self, shared: &SessionState) {
        if let Some(correlator) = &shared.correlator {
            let mut nodes = Vec::new();
            correlator.graph_nodes(&mut nodes);
            for node in nodes {
                self.nodes.add(node, node.span.map(|span| shared.seq_of(span)));
            }
        }
        while let Ok(delivery) = self.deliveries.try_recv() {
            self.answered = self.answered.max(delivery.ticket);
            self.counts.dropped += delivery.sink.dropped;
            let known = || self.windows.iter().chain(&self.current);
            let within = |at: &&HostNs| known().any(|(start, end)| (*start..=*end).contains(at));
            let strays = delivery.sink.stray_unfinished.iter().filter(within).count() as u64;
            let outside = delivery.sink.outside_unfinished + delivery.sink.stray_unfinished.len() as u64 - strays;
            self.counts.dropped += strays;
            self.counts.recorded += delivery.sink.kernels.len() as u64 + outside;
            self.counts.outside_window += outside;
            self.note_lost(&delivery, shared);
            self.clock_bound_ns = self.clock_bound_ns.max(delivery.sink.clock_bound_ns);
            for kernel in delivery.sink.kernels {
                match kernel.span {
                    Some(OUTSIDE_WINDOW) => self.counts.outside_window += 1,
                    Some(span) if self.waiting_count < MAX_WAITING => {
                        self.waiting.entry(shared.seq_of(span)).or_default().push(kernel);
                        self.waiting_count += 1;
                    }
                    Some(span) => {
                        self.lacks_one(shared.seq_of(span));
                        self.excess.push(kernel);
                    }
                    None => self.stray.push(kernel),
                }
            }
        }
    }

    /// Whether to ask now: not while an answer is awaited, and not too often unless it is `urgent`.
    pub(crate) fn may_ask(&self, urgent: bool) -> bool {
        self.answered(self.asked) && (urgent || self.asked_at.is_none_or(|at| at.elapsed() >= ASK_EVERY))
    }

    /// Asks for everything up to now. Returns the ticket of the answer.
    pub(crate) fn ask(&mut self) -> u64 {
        self.asked += 1;
        self.asked_at = Some(Instant::now());
        if self.ask.send(Ask::Collect(self.asked)).is_err() {
            self.answered = self.asked;
        }
        self.asked
    }

    /// Whether the answer to this ticket has come, or will never come.
    pub(crate) fn answered(&self, ticket: u64) -> bool {
        self.answered >= ticket || self.answered_up_to() >= ticket
    }

    /// The highest ticket whose answer has come, or will never come.
    pub(crate) fn answered_up_to(&self) -> u64 {
        let failed = self.error.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if failed { u64::MAX } else { self.answered }
    }

    /// Asks for the last kernels, and ends the recorder's thread. Returns the ticket of the answer.
    pub(crate) fn stop(&mut self) -> u64 {
        self.asked += 1;
        if self.ask.send(Ask::Stop(self.asked)).is_err() {
            self.answered = self.asked;
        }
        self.asked
    }

    /// Notes steps of a window that have ended on the host.
    pub(crate) fn steps_ended(&mut self, steps: &[WindowStep]) {
        self.steps_ended += steps.iter().filter(|step| step.number >= self.given_up).count() as u64;
    }

    /// Notes steps of a window that have arrived.
    pub(crate) fn steps_came(&mut self, steps: &[WindowStep]) {
        for step in steps {
            if step.number < self.given_up {
                // The step's window was closed without it: it must not count as one of the window under way.
                self.remember_window(step.extent);
            } else {
                self.steps_seen += 1;
                self.current = join(self.current, Some(step.extent));
            }
        }
    }

    fn remember_window(&mut self, extent: Extent) {
        if self.windows.len() == MAX_WINDOWS {
            self.windows.pop_front();
        }
        self.windows.push_back(extent);
    }

    /// Replayed intervals that got a row.
    pub(crate) fn replayed(&self) -> u64 {
        self.replayed
    }

    /// Learns from a batch which intervals graphs were captured in.
    pub(crate) fn learn_graphs(&mut self, batch: &Batch) {
        self.nodes.learn(batch);
    }

    /// Moves the kernels of a batch's intervals into the batch, and adds up what each interval launched.
    pub(crate) fn attribute(&mut self, batch: &mut Batch, in_window: &[u32], shared: &SessionState) -> Attribution {
        if self.remembered.len() > MAX_REMEMBERED {
            self.remembered.clear();
        }
        let at: FxHashMap<u64, usize> = batch.spans.iter().enumerate().map(|(i, span)| (span.seq, i)).collect();
        let mut inside = vec![KernelsInside::default(); batch.spans.len()];
        let mut replayed = Vec::new();
        let (mut unplaced, mut eager) = (Vec::new(), self.patterns.looks_at_steps().then(Vec::new));
        for &i in in_window {
            let i = i as usize;
            let span = &batch.spans[i];
            let kernels = self.waiting.remove(&span.seq).unwrap_or_default();
            self.waiting_count -= kernels.len();
            inside[i].recorded = true;
            let told = self.goes_out_incomplete(span.seq);
            // Asked in any case: what was told of may be a part of what is missing.
            inside[i].incomplete = self.lacks_untold(span, &kernels, told) || told.is_some();
            let mut replays = Vec::new();
            for kernel in kernels {
                self.counts.of_graphs += u64::from(kernel.graph.is_some());
                let Some(kernel) = self.place_in_replay(kernel, &mut replays) else { continue };
                if let Some(graph) = kernel.graph {
                    UnplacedKernels::put(&mut unplaced, i, graph, kernel);
                    continue;
                }
                if let Some(eager) = &mut eager {
                    eager.push(self.patterns.see(i, &kernel));
                }
                self.launched_by(i, kernel, batch, &mut inside, shared);
            }
            let span = &batch.spans[i];
            self.remembered.insert(span.seq, place(span));
            replayed.extend(replays.into_iter().map(|(_, replay)| (i, replay)));
        }
        self.learn_patterns(batch, &at, &inside, eager.unwrap_or_default(), &replayed, &unplaced);
        for unplaced in unplaced {
            let (launcher, replays) = (unplaced.launcher, &mut replayed);
            for kernel in self.find_layers(batch, &at, unplaced, replays) {
                self.launched_by(launcher, kernel, batch, &mut inside, shared);
            }
        }
        replayed.sort_by_key(|(launcher, replay)| (*launcher, replay.launched()));
        let mut rows = Vec::new();
        for (launcher, replay) in replayed {
            let launched = replay.launched();
            let of_launch = self.replay(batch, &at, &mut inside, launcher, replay, shared);
            rows.push((behind(&batch.spans, launcher, launched), of_launch));
        }
        // Children come after their parents in enter order: from the end, every interval is complete before it is added
        // to its parent.
        for &i in in_window.iter().rev() {
            let i = i as usize;
            if let Some(&parent) = batch.spans[i].parent_seq.and_then(|seq| at.get(&seq)) {
                let own = inside[i];
                inside[parent].add(own);
            }
        }
        // If the recorder was switched off while an interval went on, or lost a record, the interval has more kernels
        // than these, and its GPU time is not known.
        for &i in in_window {
            let inside = &mut inside[i as usize];
            inside.recorded &= !inside.incomplete && !self.outlasts_recorder(&batch.spans[i as usize]);
        }
        insert_replayed(&mut batch.spans, &mut inside, rows);
        Attribution(inside)
    }

    /// Moves a kernel that span `launcher` launched itself into the batch.
    fn launched_by(
        &mut self,
        launcher: usize,
        kernel: RawKernel,
        batch: &mut Batch,
        inside: &mut [KernelsInside],
        shared: &SessionState,
    ) {
        inside[launcher].add(KernelsInside::of(&kernel));
        self.counts.attributed += 1;
        let row = self.row(kernel, Some(&place(&batch.spans[launcher])), shared);
        batch.kernels.push(row);
    }

    /// Moves the kernels of a replay, which span `launcher` launched, into the batch, and makes the rows of its intervals.
    fn replay(
        &mut self,
        batch: &mut Batch,
        at: &FxHashMap<u64, usize>,
        inside: &mut [KernelsInside],
        launcher: usize,
        mut replay: Replay,
        shared: &SessionState,
    ) -> Vec<SpanRecord> {
        let (stands, count) = replay.places(&batch.spans, at, launcher);
        let thread_seq = batch.spans[launcher].seq;
        let number = || {
            self.replayed += 1;
            let seq = replayed_seq(thread_seq, self.replayed);
            (seq, shared.span_id(seq))
        };
        let mut rows = rows(&replay, &stands, &mut batch.spans, launcher, number);
        let around: Vec<PlaceInReplay> = (0..stands.len()).map(|i| replay.around(i, &stands)).collect();
        let mut own = vec![KernelsInside::default(); count];
        // A lost record of the launch may be any interval's.
        let incomplete = inside[launcher].incomplete || self.outlasts_recorder(&batch.spans[launcher]);
        own.iter_mut().for_each(|own| own.incomplete = incomplete);
        for i in replay.take_mistimed(&self.nodes) {
            self.counts.recorded -= 1;
            self.counts.dropped += 1;
            self.counts.mistimed += 1;
            sum_of(stands[i], &mut own, inside, launcher).incomplete = true;
        }
        for (i, kernel) in replay.kernels {
            self.nodes.ran(&kernel);
            self.counts.attributed += 1;
            sum_of(stands[i], &mut own, inside, launcher).add(KernelsInside::of(&kernel));
            let span = stands[i].span(&rows, &batch.spans, launcher);
            let (seq, span_id, place) = (span.seq, span.span_id, place(span));
            let mut row = self.row(kernel, Some(&place), shared);
            (row.seq, row.span_id) = (Some(seq), Some(span_id));
            row.derived = replay.derived.then_some(true);
            batch.kernels.push(row);
        }
        for (i, stand) in stands.iter().enumerate().rev() {
            let PlaceInReplay::Replayed(row) = *stand else { continue };
            let sum = own[row];
            sum_of(around[i], &mut own, inside, launcher).add(sum);
            if !sum.incomplete {
                rows[row].gpu = sum.gpu_time();
            }
        }
        rows
    }

    /// Moves kernels that will find no interval into a batch: launched outside all intervals, or delivered late.
    pub(crate) fn loose(&mut self, into: &mut Batch, shared: &SessionState) {
        let window = shared.control.kernels();
        // If the recorder has failed, steps of its window may still be on their way.
        let more = window.is_some_and(|w| w.is_active() || w.has_failed());
        self.sort_out(into, shared, more);
    }

    /// `more`: steps of a window may still come.
    fn sort_out(&mut self, into: &mut Batch, shared: &SessionState, more: bool) {
        for kernel in std::mem::take(&mut self.excess) {
            self.counts.late += 1;
            let row = self.row(kernel, None, shared);
            into.kernels.push(row);
        }
        // During a long step, hundreds of thousands of them may wait: they are checked again only if something has
        // changed.
        let latest = self.windows.back().copied();
        let asked = if self.stray_known == Some((self.stray.len(), latest, self.current, more)) {
            Vec::new()
        } else {
            std::mem::take(&mut self.stray)
        };
        for kernel in asked {
            match self.launched(&kernel, more) {
                StrayLaunch::Outside => self.counts.outside_window += 1,
                StrayLaunch::Unknown if self.stray.len() < MAX_WAITING => self.stray.push(kernel),
                StrayLaunch::Within | StrayLaunch::Unknown => {
                    self.counts.unattributed += 1;
                    let row = self.row(kernel, None, shared);
                    into.kernels.push(row);
                }
            }
        }
        self.stray_known = Some((self.stray.len(), latest, self.current, more));
        let late: Vec<u64> = if self.remembered.is_empty() {
            Vec::new()
        } else {
            self.waiting.keys().copied().filter(|seq| self.remembered.contains_key(seq)).collect()
        };
        for seq in late {
            self.let_go(seq, into, shared);
        }
    }

    /// Moves all waiting kernels into a batch. No more intervals come.
    pub(crate) fn rest(&mut self, into: &mut Batch, shared: &SessionState) {
        self.receive(shared);
        self.sort_out(into, shared, false);
        let left: Vec<u64> = self.waiting.keys().copied().collect();
        for seq in left {
            self.let_go(seq, into, shared);
        }
    }

    fn let_go(&mut self, seq: u64, into: &mut Batch, shared: &SessionState) {
        let place = self.remembered.get(&seq).cloned();
        for kernel in self.waiting.remove(&seq).unwrap_or_default() {
            self.waiting_count -= 1;
            self.counts.late += 1;
            self.was_late(seq, &kernel);
            let row = self.row(kernel, place.as_ref(), shared);
            into.kernels.push(row);
        }
    }

    /// Where a kernel without an interval was launched. The recorder is on before the first step of a window and after
    /// the last one; if the window begins with the program's first step, it is on while the program loads its weights.
    fn launched(&self, kernel: &RawKernel, more: bool) -> StrayLaunch {
        let mut known = self.windows.iter().chain(&self.current);
        let Some(at) = kernel.launch_start else {
            // Without its launch call, only one thing is certain: what ran before a step began was launched before that
            // step.
            let first = self.windows.front().or(self.current.as_ref());
            return match first {
                Some((start, _)) if kernel.start >= *start => StrayLaunch::Within,
                None if more => StrayLaunch::Unknown,
                _ => StrayLaunch::Outside,
            };
        };
        if known.any(|(start, end)| (*start..=*end).contains(&at)) {
            StrayLaunch::Within
        } else if !more || self.current.is_some_and(|(start, _)| at < start) {
            StrayLaunch::Outside
        } else {
            StrayLaunch::Unknown
        }
    }

    /// A kernel's record. Also notes what the kernel shows about the error of the clocks.
    fn row(&mut self, kernel: RawKernel, place: Option<&IntervalPlace>, shared: &SessionState) -> KernelRecord {
        if let Some(start) = kernel.launch_start {
            self.too_early_ns = self.too_early_ns.max(start.since(kernel.start));
            let end = start.plus_ns(kernel.launch_dur_ns.unwrap_or(0));
            let early = end.since(kernel.start);
            if kernel.launch_dur_ns.is_some() && early > 0 {
                self.counts.negative_delays += 1;
                self.counts.most_negative_ns = self.counts.most_negative_ns.max(early);
            }
        }
        record(kernel, place, shared)
    }

    /// Whether kernels are needed soon: steps after a window still pay for the recorder until it is off.
    pub(crate) fn is_hurried(&self, shared: &SessionState) -> bool {
        shared.control.kernels_used_up() && self.closing_since.is_none_or(|since| since.elapsed() <= CLOSE_ANYWAY)
    }

    /// Lets the recorder be switched off once every step of the window has arrived here, or steps after the window have
    /// paid for it long enough. A capture itself announces when it has all its steps.
    pub(crate) fn close_window_when_done(&mut self, shared: &SessionState, host: &dyn Fn() -> HostNs) {
        // Read before the window's state: a step that begins from here on may belong to another window.
        let begun = shared.control.steps();
        let Some(window) = shared.control.kernels().filter(|_| shared.control.kernels_used_up()) else {
            (self.closing_since, self.pausing) = (None, false);
            return;
        };
        // The steps that follow need not be recorded any more. That also lets buffers become complete.
        if !self.pausing && self.steps_ended >= window.taken() {
            self.pausing = true;
            let _ = self.ask.send(Ask::Pause);
        }
        let since = *self.closing_since.get_or_insert_with(Instant::now);
        let missing = window.taken().saturating_sub(self.steps_seen);
        if missing > 0 || window.has_capture() {
            if since.elapsed() <= CLOSE_ANYWAY {
                return;
            }
            // The capture goes on waiting for its steps, without the recorder.
            shared.control.end_capture();
            (self.steps_seen, self.given_up, self.given_up_at) = (self.steps_seen + missing, begun, host());
            self.steps_ended = self.steps_ended.max(self.steps_seen);
            self.closing_since = None;
        }
        if let Some(extent) = self.current.take() {
            self.remember_window(extent);
        }
        self.forget_lost();
        let _ = self.ask.send(Ask::CloseWindow);
    }

    /// The account for the manifest.
    pub(crate) fn account(&self, shared: &SessionState) -> KernelAccount {
        let window = shared.control.kernels();
        KernelAccount {
            windows: window.map_or(0, |w| w.windows()),
            windows_missed: window.map_or(0, |w| w.missed()),
            steps: window.map_or(0, |w| w.taken()),
            clock_bound_ns: match (self.clock_bound_ns, self.too_early_ns) {
                (None, 0) => None,
                (bound, early) => Some(bound.unwrap_or(0).max(early)),
            },
            error: self.error.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            ..self.counts.clone()
        }
    }
}

#[cfg(test)]
#[path = "attribute/attribute_tests.rs"]
mod tests;
