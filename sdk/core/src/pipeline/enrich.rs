//! Enrich: gives resolved intervals their GPU time once the device has reached it, and passes them on.
//!
//! Batches wait here, in order, until every mark in them is known and the kernels of their steps have arrived. Nothing
//! waits for the device itself: what is not known yet is checked again in the next round, and what never comes is given
//! up and counted.
//!
//! It has no clock of its own and does no I/O: times come in, records go out.

use super::attribute::{Attribution, Kernels};
use super::mark_times::{Lookup, MarkTimes};
use super::resolved::{ColdStep, MarkedSpan, ResolvedRecords};
use super::stack_join::Stacks;
use crate::HostNs;
use crate::clock::TickMapper;
use crate::gpu::{GpuClock, GpuTiming};
use crate::record::{Batch, GpuTime};
use crate::run::{CrossCheck, GpuAccount};
use crate::shared::SessionState;
use crate::vocabulary::{GpuSource, GpuTier};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Intervals that may wait for the device.
///
/// Overload policy: beyond this the oldest batch goes on without the GPU time that is still missing, because memory
/// must stay bounded and host times alone are better than nothing.
const MAX_HELD: usize = 524_288;

/// Longest time that a batch waits, whatever the clock reports.
const PATIENCE: Duration = Duration::from_secs(60);

/// Longest time that a cold step marked in full waits for a warm one of its kind. It does not wait while a window of
/// kernels is being closed, because the recorder slows the program down until then.
const COLD_PATIENCE: Duration = Duration::from_secs(1);

/// Longest time that a batch waits for what its threads did meanwhile.
const STACKS_PATIENCE: Duration = Duration::from_secs(1);

/// Most cold steps listed in the account.
const MAX_COLD: usize = 256;

/// Time that the kernels of a step without marks get to finish before they are fetched.
const UNMARKED_GRACE: Duration = Duration::from_millis(200);

/// Time between two polls of the clock while few marks are under way. A poll takes locks of the driver, for which
/// launches then wait: measured on a small model, polling every 10 ms costs it a percent.
const POLL_EVERY: Duration = Duration::from_millis(50);

/// Marks under way from which on the clock is polled at once, so that its pool of events does not run out. The limit is
/// lower for the first marks, because pools start small and grow with use.
const PRESSING: u64 = 2_048;
const PRESSING_AT_FIRST: u64 = 512;
const FIRST_MARKS: u64 = 16_384;

/// Ratios kept for the cross-check of marks against kernels.
const MAX_RATIOS: usize = 16_384;

/// Intervals shorter than this are left out of the cross-check: a mark itself takes a microsecond or two.
const CROSS_CHECK_FROM_NS: u64 = 100_000;

/// How far an interval may lie outside its parent before it is counted: the resolution of the device's clock, plus the
/// possible error of the clocks' correlation over the parent's duration.
fn nesting_tolerance(parent_ns: i64) -> i64 {
    1_000 + parent_ns / 10_000
}

/// A batch that is held back.
struct HeldBatch {
    resolved: ResolvedRecords,
    since: Instant,
    waits_for: WaitsFor,
    /// First start and last end of its intervals on the host.
    begins: HostNs,
    ends: HostNs,
    /// Marked intervals, counted from the first, up to the last one that was not known at the last check; all later
    /// ones are known.
    unknown: usize,
    /// What `MarkTimes::learnt` returned at that check.
    looked_at: Option<u64>,
}

/// What a batch waits for; one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitsFor {
    /// For the device to finish its work.
    Device,
    /// For its kernels, which come with the answer to this ticket.
    Kernels(u64),
    Nothing,
}

impl HeldBatch {
    fn new(resolved: ResolvedRecords) -> Self {
        let unknown = resolved.marked.len();
        let spans = &resolved.batch.spans;
        let begins = spans.iter().map(|span| span.host_start).min().unwrap_or(HostNs(i64::MAX));
        let ends = spans.iter().map(|span| span.host_start.plus_ns(span.host_dur_ns)).max();
        let ends = ends.unwrap_or(HostNs(i64::MIN));
        Self { resolved, since: Instant::now(), waits_for: WaitsFor::Device, begins, ends, unknown, looked_at: None }
    }

    fn has_kernels(&self) -> bool {
        !self.resolved.in_window.is_empty()
    }

    /// Whether the device has finished everything that the batch launched. It has if the last marks are known; without
    /// marks, all that can be done is wait for a while. There may be thousands of batches and a million marks, so
    /// nothing is checked again before something new was learnt, and known marks are not checked again.
    fn is_done(&mut self, mark_times: &MarkTimes) -> bool {
        if self.resolved.marked.is_empty() && self.has_kernels() {
            return self.since.elapsed() >= UNMARKED_GRACE;
        }
        if self.looked_at.replace(mark_times.learnt()) != Some(mark_times.learnt()) {
            let mut marked = self.resolved.marked[..self.unknown].iter();
            let first_unknown = marked.rposition(|m| !mark_times.is_known(m.thread, m.marks));
            self.unknown = first_unknown.map_or(0, |at| at + 1);
        }
        self.unknown == 0
    }
}

/// Keeps batches back until their GPU time is known.
pub(crate) struct Enricher {
    clock: Option<Box<dyn GpuClock>>,
    mark_times: MarkTimes,
    kernels: Option<Kernels>,
    pub(crate) stacks: Option<Stacks>,
    /// Whether GPU time was asked for, rather than taken in case the program uses a GPU.
    expected: bool,
    held: VecDeque<HeldBatch>,
    held_spans: usize,
    intervals: BTreeMap<&'static str, u64>,
    /// When the clock was last polled.
    polled: Option<Instant>,
    outside_parent: u64,
    ratios: Vec<f32>,
    compared: u64,
    /// Kinds of steps of which a warm one was marked in full.
    warm: FxHashSet<u32>,
    /// Cold steps whose parts keep their times, and (`cold_stripped`) the number of those whose parts do not.
    cold_kept: Vec<u64>,
    cold_stripped: u64,
}

impl Enricher {
    pub(crate) fn new(clock: Option<Box<dyn GpuClock>>, kernels: Option<Kernels>, expected: bool) -> Self {
        Self {
            clock,
            mark_times: MarkTimes::default(),
            kernels,
            stacks: None,
            expected,
            held: VecDeque::new(),
            held_spans: 0,
            intervals: BTreeMap::new(),
            polled: None,
            outside_parent: 0,
            ratios: Vec::new(),
            compared: 0,
            warm: FxHashSet::default(),
            cold_kept: Vec::new(),
            cold_stripped: 0,
        }
    }

    /// With a sampler of stacks.
    pub(crate) fn with_stacks(self, stacks: Option<Stacks>) -> Self {
        Self { stacks, ..self }
    }

    /// A thread has ended; its intervals may still wait for the device.
    pub(crate) fn thread_ended(&mut self, thread: u32) {
        self.mark_times.thread_ended(thread);
    }

    /// Rows of intervals that graphs replayed, which no thread entered.
    pub(crate) fn replayed(&self) -> u64 {
        self.kernels.as_ref().map_or(0, Kernels::replayed)
    }

    /// Whether any batch waits.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether a window of kernels is to be closed as soon as its kernels have arrived.
    pub(crate) fn closes_window(&self, shared: &SessionState) -> bool {
        self.kernels.as_ref().is_some_and(|kernels| kernels.is_hurried(shared))
    }

    /// Whether to poll the clock now.
    fn is_due(&self, shared: &SessionState) -> bool {
        let Some(last) = self.polled else { return true };
        let (timed, lost) = self.mark_times.marks();
        let recorded = shared.gpu.as_ref().map_or(0, |gpu| gpu.counts.recorded.load(Relaxed));
        let pressing = if timed < FIRST_MARKS { PRESSING_AT_FIRST } else { PRESSING };
        last.elapsed() >= POLL_EVERY || recorded.saturating_sub(timed + lost) >= pressing || self.closes_window(shared)
    }

    /// UUIDs of the devices that have marks.
    pub(crate) fn devices(&self) -> impl Iterator<Item = &Arc<str>> {
        self.mark_times.uuids()
    }

    /// Until when every step has been passed on, if all that began before `resolved` are here or were passed on.
    pub(crate) fn passed_until(&self, resolved: HostNs) -> HostNs {
        let held = self.held.iter().map(|held| held.begins).min();
        held.map_or(resolved, |held| held.min(resolved))
    }

    /// Takes in a batch.
    pub(crate) fn add(&mut self, resolved: ResolvedRecords) {
        if resolved.batch.is_empty() {
            return;
        }
        self.held_spans += resolved.batch.spans.len();
        self.warm.extend(&resolved.warm);
        if let Some(kernels) = &mut self.kernels {
            kernels.steps_ended(&resolved.window_steps);
        }
        self.held.push_back(HeldBatch::new(resolved));
    }

    /// Polls the sources, at once if it is `urgent`, and passes on what is complete.
    pub(crate) fn advance(
        &mut self,
        shared: &SessionState,
        urgent: bool,
        mapper: &TickMapper,
        known_until: HostNs,
        mut out: impl FnMut(Batch),
    ) {
        let host: &dyn Fn() -> HostNs = &|| mapper.now();
        let due = urgent || self.is_due(shared);
        if let Some(clock) = self.clock.as_mut().filter(|_| due) {
            let mark_times = &mut self.mark_times;
            clock.poll(host, &mut |report| mark_times.take(report));
            self.polled = Some(Instant::now());
        }
        let hurried = urgent || self.closes_window(shared);
        if let Some(kernels) = &mut self.kernels {
            kernels.receive(shared);
        }
        if let Some(stacks) = &mut self.stacks {
            stacks.receive(mapper.monotonic_offset());
        }
        self.look_at_held(hurried);
        while self.held.front().is_some_and(|front| self.may_go(front, hurried)) {
            let Some(held) = self.held.pop_front() else { break };
            self.held_spans -= held.resolved.batch.spans.len();
            out(self.finish(held, shared));
        }
        if let Some(kernels) = &mut self.kernels {
            let mut loose = Batch::default();
            kernels.loose(&mut loose, shared);
            if !loose.is_empty() {
                out(loose);
            }
            kernels.close_window_when_done(shared, host);
        }
        // A batch that is held may have the step that a sample is looking for.
        self.join_samples(self.passed_until(known_until), out);
    }

    /// Passes on samples of stacks that need not wait for a step any more.
    fn join_samples(&mut self, known_until: HostNs, mut out: impl FnMut(Batch)) {
        let Some(stacks) = &mut self.stacks else { return };
        let mut joined = Batch::default();
        stacks.join(known_until, &mut joined);
        if !joined.is_empty() {
            out(joined);
        }
    }

    /// Finds out what each batch waits for now. The recorder is asked once for the kernels of all batches that the
    /// device has finished.
    fn look_at_held(&mut self, hurried: bool) {
        let Self { held, mark_times, kernels, .. } = self;
        let may_ask = kernels.as_ref().is_some_and(|kernels| kernels.may_ask(hurried));
        let answered = kernels.as_ref().map_or(0, |kernels| kernels.answered_up_to());
        let mut asked = None;
        for held in held {
            held.waits_for = match (held.waits_for, &mut *kernels) {
                (WaitsFor::Device, Some(kernels)) if held.has_kernels() => match may_ask && held.is_done(mark_times) {
                    true => WaitsFor::Kernels(*asked.get_or_insert_with(|| kernels.ask())),
                    false => WaitsFor::Device,
                },
                (WaitsFor::Device, _) if held.is_done(mark_times) => WaitsFor::Nothing,
                (WaitsFor::Kernels(delivery), _) if delivery <= answered => WaitsFor::Nothing,
                (same, _) => same,
            };
        }
    }

    /// Whether the oldest batch is passed on now.
    fn may_go(&self, oldest: &HeldBatch, hurried: bool) -> bool {
        let waited = oldest.since.elapsed();
        if self.held_spans > MAX_HELD || waited > PATIENCE {
            return true;
        }
        let hopes_for_warm = !hurried
            && waited < COLD_PATIENCE
            && oldest.resolved.cold.iter().any(|cold| !self.warm.contains(&cold.kind));
        let unseen =
            waited < STACKS_PATIENCE && self.stacks.as_ref().is_some_and(|stacks| !stacks.is_known(oldest.ends));
        oldest.waits_for == WaitsFor::Nothing && !hopes_for_warm && !unseen
    }

    /// Fetches the last kernels and ends the recorder's thread; waits no longer than `patience`.
    pub(crate) fn stop_kernels(&mut self, shared: &SessionState, patience: Duration) {
        let Some(kernels) = &mut self.kernels else { return };
        let ticket = kernels.stop();
        let deadline = Instant::now() + patience;
        while !kernels.answered(ticket) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(500));
            kernels.receive(shared);
        }
    }

    /// Passes on everything, known or not. No more batches come.
    pub(crate) fn release_all(&mut self, shared: &SessionState, mapper: &TickMapper, mut out: impl FnMut(Batch)) {
        while let Some(held) = self.held.pop_front() {
            out(self.finish(held, shared));
        }
        self.held_spans = 0;
        if let Some(kernels) = &mut self.kernels {
            let mut rest = Batch::default();
            kernels.rest(&mut rest, shared);
            if !rest.is_empty() {
                out(rest);
            }
        }
        if let Some(stacks) = &mut self.stacks {
            stacks.receive(mapper.monotonic_offset());
        }
        self.join_samples(HostNs(i64::MAX), out);
    }

    /// Gives a batch's records their GPU time, as far as it is known.
    fn finish(&mut self, held: HeldBatch, shared: &SessionState) -> Batch {
        let ResolvedRecords { mut batch, marked, in_window, window_steps, cold, .. } = held.resolved;
        if !marked.is_empty() {
            self.set_marked(&mut batch, &marked, cold);
            self.check_nesting(&batch);
        }
        if let Some(source) = &mut self.kernels {
            source.learn_graphs(&batch);
        }
        if let Some(source) = self.kernels.as_mut().filter(|_| !in_window.is_empty()) {
            source.steps_came(&window_steps);
            let attribution = source.attribute(&mut batch, &in_window, shared);
            self.apply(&mut batch, &attribution);
        }
        if !marked.is_empty() || !in_window.is_empty() {
            let times: FxHashMap<u64, GpuTime> = batch.spans.iter().filter_map(|s| Some((s.seq, s.gpu?))).collect();
            batch.steps.iter_mut().for_each(|step| step.gpu = times.get(&step.seq).copied());
        }
        if let Some(stacks) = &mut self.stacks {
            stacks.note(&mut batch);
        }
        batch
    }

    /// Sets the times between marks. Parts of a cold step get none if there was a warm step of its kind.
    fn set_marked(&mut self, batch: &mut Batch, marked: &[MarkedSpan], cold: Vec<ColdStep>) {
        let (stripped, kept): (Vec<ColdStep>, Vec<ColdStep>) =
            cold.into_iter().partition(|c| self.warm.contains(&c.kind));
        self.cold_stripped += stripped.len() as u64;
        let room = MAX_COLD.saturating_sub(self.cold_kept.len());
        self.cold_kept.extend(kept.iter().map(|c| c.step).take(room));
        for m in marked {
            let outcome = match self.mark_times.between(m.thread, m.marks) {
                Lookup::Known(_) if stripped.iter().any(|c| c.root < m.span && m.span <= c.last) => "cold",
                Lookup::Known(gpu) => {
                    if let Some(span) = batch.spans.get_mut(m.span as usize) {
                        span.gpu = Some(gpu);
                    }
                    "timed"
                }
                Lookup::OneMark => "one_mark",
                Lookup::Lost => "lost",
                Lookup::Forgotten => "forgotten",
                Lookup::Pending => "late",
            };
            *self.intervals.entry(outcome).or_default() += 1;
        }
    }

    /// Times from kernels replace those from marks, and marks are checked against them.
    fn apply(&mut self, batch: &mut Batch, attribution: &Attribution) {
        for (span, inside) in batch.spans.iter_mut().zip(attribution.per_span()) {
            if !inside.recorded {
                continue;
            }
            if let (Some(marks), Some((first, last))) = (span.gpu, inside.extent)
                && marks.source == GpuSource::Event
                && marks.dur_ns >= CROSS_CHECK_FROM_NS
            {
                self.compared += 1;
                if self.ratios.len() < MAX_RATIOS {
                    self.ratios.push(marks.dur_ns as f32 / last.since(first).max(1) as f32);
                }
            }
            span.gpu = inside.gpu_time();
        }
    }

    fn check_nesting(&mut self, batch: &Batch) {
        let mut open: Vec<(u64, i64, i64)> = Vec::new();
        for span in &batch.spans {
            let Some(parent) = span.parent_seq else {
                open.clear();
                if let Some(gpu) = span.gpu {
                    open.push((span.seq, gpu.start.0, gpu.start.plus_ns(gpu.dur_ns).0));
                }
                continue;
            };
            // Enter order: the parent is on the stack unless it has no GPU time.
            while open.last().is_some_and(|(seq, ..)| *seq != parent) {
                open.pop();
            }
            let Some(gpu) = span.gpu else { continue };
            let (start, end) = (gpu.start.0, gpu.start.plus_ns(gpu.dur_ns).0);
            if let Some((_, from, to)) = open.last() {
                let tolerance = nesting_tolerance(to - from);
                self.outside_parent += u64::from(start < from - tolerance || end > to + tolerance);
            }
            open.push((span.seq, start, end));
        }
    }

    /// The account for the manifest; `None` if no GPU time was asked for.
    pub(crate) fn account(&self, shared: &SessionState, ns_per_tick: f64) -> Option<GpuAccount> {
        let used = shared.gpu.as_ref().is_some_and(|gpu| gpu.counts.recorded.load(Relaxed) > 0);
        if !((self.clock.is_some() && (self.expected || used)) || self.kernels.is_some()) {
            return None;
        }
        let timing = shared.gpu.as_ref().map_or(GpuTiming::tier(GpuTier::Off), |gpu| gpu.timing);
        let mut account = GpuAccount {
            clock: self.clock.as_ref().map(|clock| clock.name().to_string()),
            timing: timing.tier.to_string(),
            budget: timing.budget,
            intervals: self.intervals.iter().map(|(k, n)| ((*k).to_string(), *n)).collect(),
            devices: self.mark_times.devices(),
            outside_parent: self.outside_parent,
            kernels: self.kernels.as_ref().map(|kernels| kernels.account(shared)),
            cross_check: self.cross_check(),
            statistics: self.clock.as_ref().map(|clock| clock.statistics()).unwrap_or_default(),
            ..GpuAccount::default()
        };
        if let Some(gpu) = &shared.gpu {
            let c = &gpu.counts;
            let recorded = c.recorded.load(Relaxed);
            let (timed, lost) = self.mark_times.marks();
            account.marks = [
                ("recorded", recorded),
                ("timed", timed),
                ("lost", lost),
                ("outstanding", recorded.saturating_sub(timed + lost)),
                ("shared", c.shared.load(Relaxed)),
                ("no_context", c.no_context.load(Relaxed)),
                ("capturing", c.capturing.load(Relaxed)),
                ("full", c.full.load(Relaxed)),
                ("failed", c.failed.load(Relaxed)),
            ]
            .map(|(name, n)| (name.to_string(), n))
            .into();
            // A cold step whose parts lost their times still has its own.
            account.steps_full = c.steps_full.load(Relaxed).saturating_sub(self.cold_stripped);
            account.steps_partial = c.steps_partial.load(Relaxed) + self.cold_stripped;
            account.cold_steps.clone_from(&self.cold_kept);
            account.steps_unmarked = c.steps_unmarked.load(Relaxed);
            account.marks_ns = (c.ticks.load(Relaxed) as f64 * ns_per_tick) as u64;
            account.marks_wait_ns = (c.wait_ticks.load(Relaxed) as f64 * ns_per_tick) as u64;
            account.mark_cost_ns = (recorded > 0).then(|| account.marks_ns as f64 / recorded as f64);
        }
        Some(account)
    }

    fn cross_check(&self) -> Option<CrossCheck> {
        let mut ratios = self.ratios.clone();
        ratios.sort_by(f32::total_cmp);
        let at = |share: f64| ratios.get(((ratios.len() as f64 - 1.0) * share).round() as usize).copied();
        Some(CrossCheck {
            n: self.compared,
            median_ratio: f64::from(at(0.5)?),
            p05: f64::from(at(0.05)?),
            p95: f64::from(at(0.95)?),
        })
    }
}

#[cfg(test)]
#[path = "enrich_tests.rs"]
mod tests;
