//! What the layer, the pipeline and the handle of one session share.

use crate::clock::{TickSource, Ticks};
use crate::control::Control;
use crate::diagnostics::Diagnostics;
use crate::gpu::{Correlator, MarkingState};
use crate::modules::{Slot, Watch};
use crate::names::Names;
use crate::notices::Notices;
use crate::perturb::{Experiment, PerturbRefused};
use crate::probe::Probe;
use crate::raw::Raw;
use crate::record::{SEQ_BITS, SpanId, ThreadInfo, TraceId};
use crate::requests::OpenRequests;
use crate::ring_room::{RingRoom, RingShare};
use crate::run::LoadedModel;
use crate::setup_notes;
use crate::splitmix;
use crate::tap::{Tap, TapSlot};
use crate::visible::Visible;
use crossbeam_channel::Sender;
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Buckets of the table of epochs, which shows when a span id was last given out.
pub(crate) const EPOCHS: usize = 4096;

/// Threads of a session are numbered below this. The ids of requests are those of intervals of this one.
pub(crate) const NO_THREAD_FROM: u32 = 0x7f_ffff;

pub(crate) struct SessionState {
    pub(crate) session: u64,
    /// The process that started the session.
    process: u32,
    pub(crate) ticks: TickSource,
    pub(crate) control: Control,
    pub(crate) names: Names,
    /// Weights and modules of models that are loaded.
    pub(crate) watch: Watch,
    pub(crate) taps: Vec<TapSlot>,
    pub(crate) gpu: Option<MarkingState>,
    /// Is told about steps and their intervals; `None` if the session has no recorder of kernels.
    pub(crate) correlator: Option<Arc<dyn Correlator>>,
    /// Whether it wants to know the intervals of steps outside of windows, too.
    pub(crate) follows_graphs: bool,
    /// Leaves some steps plain; `None` unless that was asked for.
    pub(crate) probe: Option<Probe>,
    /// Whether enters and exits matter to anything besides a ring.
    pub(crate) hooked: bool,
    pub(crate) excluded_targets: Vec<String>,
    pub(crate) diagnostics: Diagnostics,
    pub(crate) notices: Notices,
    /// Whether the model's spans reach the layer.
    pub(crate) visible: Visible,
    /// Which findings about the process the session has.
    pub(crate) setup_notes: setup_notes::NotesRead,
    pub(crate) ring_capacity: usize,
    pub(crate) ring_room: Arc<RingRoom>,
    /// Incremented whenever a span id of the bucket is given out again, so that the threads' caches are safe although
    /// ids are reused.
    pub(crate) epochs: Box<[AtomicU32]>,
    pub(crate) new_threads: Mutex<Vec<NewThread>>,
    next_thread: AtomicU32,
    next_request: AtomicU32,
    pub(crate) requests: Sender<RawRequest>,
    pub(crate) requests_lost: AtomicU64,
    pub(crate) samples_lost: AtomicU64,
    /// Requests that are not recorded because recording was off throughout.
    pub(crate) requests_paused: AtomicU64,
    /// Spans of requests that have not closed.
    pub(crate) open_requests: AtomicU64,
    /// What steps report about open requests.
    pub(crate) steps_of_requests: OpenRequests,
    /// The latest experiment, behind those whose rows may not have been taken yet; and how many there were.
    experiments_kept: Mutex<Vec<Arc<Experiment>>>,
    pub(crate) experiments: AtomicU64,
    /// Whether a phase was marked so far: then the application's own outermost spans are no steps.
    pub(crate) phases_marked: AtomicBool,
    /// Number of the name of the first of these.
    pub(crate) outside_phases: AtomicU32,
    trace_overrides: Mutex<FxHashMap<u32, u128>>,
    span_base: u64,
    trace_base: u128,
}

/// What a session does besides writing to rings, and where it reports failures.
#[derive(Default)]
pub(crate) struct Hooks {
    pub(crate) taps: Vec<Arc<dyn Tap>>,
    pub(crate) gpu: Option<MarkingState>,
    pub(crate) correlator: Option<Arc<dyn Correlator>>,
    pub(crate) probe: Option<Probe>,
    pub(crate) diagnostics: Diagnostics,
}

/// Sizes of the threads' rings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rings {
    /// Records per ring.
    pub(crate) capacity: usize,
    /// Bytes of all rings together, including the other state that is kept per thread.
    pub(crate) memory: u64,
}

/// A thread that entered its first span.
pub(crate) struct NewThread {
    pub(crate) info: Arc<ThreadInfo>,
    pub(crate) ring: rtrb::Consumer<Raw>,
    pub(crate) counts: Arc<ThreadCounts>,
    /// Its share of the room for rings; `None` if there was no room left. The ring then has room for nothing.
    pub(crate) share: Option<RingShare>,
}

/// One thread's counters: written only by that thread, read by the drain.
#[derive(Debug, Default)]
pub(crate) struct ThreadCounts {
    pub(crate) emitted: AtomicU64,
    /// Steps that began and were to be recorded.
    pub(crate) steps_due: AtomicU64,
    /// Steps that the schedule left out.
    pub(crate) steps_scheduled_out: AtomicU64,
    /// Steps that were left plain.
    pub(crate) steps_plain: AtomicU64,
    /// Steps that were part of an experiment.
    pub(crate) steps_perturbed: AtomicU64,
    /// Steps that began while recording was off.
    pub(crate) steps_paused: AtomicU64,
    /// Ends of steps that are not to be recorded.
    pub(crate) unrecorded_ended: AtomicU64,
    pub(crate) ring_full: AtomicU64,
    /// Steps among the intervals of `ring_full` and `no_ring`.
    pub(crate) steps_lost: AtomicU64,
    pub(crate) too_deep: AtomicU64,
    /// Intervals, if the thread has no ring.
    pub(crate) no_ring: AtomicU64,
    pub(crate) unmatched: AtomicU64,
    /// Intervals that outlived their step and had others begin after that.
    pub(crate) forgotten: AtomicU64,
    /// `seq` of the latest interval entered.
    pub(crate) entered: AtomicU64,
    /// Intervals of the application's own spans that were outside all phases in a program that marks them.
    pub(crate) outside_phases: AtomicU64,
}

impl ThreadCounts {
    /// Steps that have begun.
    pub(crate) fn steps(&self) -> u64 {
        let Self { steps_due, steps_scheduled_out, steps_plain, steps_perturbed, steps_paused, .. } = self;
        [steps_due, steps_scheduled_out, steps_plain, steps_perturbed, steps_paused]
            .iter()
            .map(|n| n.load(Ordering::Relaxed))
            .sum()
    }

    /// Ends and beginnings so far of steps that are not to be recorded.
    pub(crate) fn unrecorded(&self) -> (u64, u64) {
        // First, so that an end is never seen without its beginning.
        let ended = self.unrecorded_ended.load(Ordering::Acquire);
        let Self { steps_scheduled_out, steps_plain, steps_perturbed, steps_paused, .. } = self;
        let begun = [steps_scheduled_out, steps_plain, steps_perturbed, steps_paused];
        (ended, begun.iter().map(|n| n.load(Ordering::Acquire)).sum())
    }
}

/// A request whose span closes.
#[derive(Debug, Clone)]
pub(crate) struct RawRequest {
    pub(crate) number: u32,
    pub(crate) start: Ticks,
    pub(crate) end: Ticks,
    /// Start of its first step, recorded or not.
    pub(crate) first_step: Option<Ticks>,
    /// Whether steps of it were part of an experiment.
    pub(crate) perturbed: bool,
    pub(crate) values: crate::fields::FieldValues,
}

impl SessionState {
    /// What is known of models that were loaded.
    pub(crate) fn loaded_model(&self) -> Option<LoadedModel> {
        let mut names = Vec::new();
        self.names.extend(&mut names);
        self.watch.summary(&names)
    }

    /// Tells the taps which module the spans of a name stand for, when that becomes known.
    pub(crate) fn tell_module(&self, name: u32, slot: &Slot) {
        if let Some(module) = slot.news() {
            self.taps.iter().for_each(|tap| tap.call(&self.notices, |tap| tap.module(name, &module.name)));
        }
    }

    pub(crate) fn new(
        control: Control,
        hooks: Hooks,
        excluded_targets: Vec<String>,
        rings: Rings,
        requests: Sender<RawRequest>,
    ) -> Self {
        static SESSIONS: AtomicU64 = AtomicU64::new(1);
        let session = SESSIONS.fetch_add(1, Ordering::Relaxed);
        Self {
            session,
            process: std::process::id(),
            ticks: TickSource::new(),
            control,
            names: Names::new(),
            watch: Watch::new(session),
            hooked: !hooks.taps.is_empty() || hooks.gpu.is_some() || hooks.correlator.is_some(),
            taps: hooks.taps.into_iter().map(TapSlot::new).collect(),
            gpu: hooks.gpu,
            follows_graphs: hooks.correlator.as_ref().is_some_and(|correlator| correlator.follows_graphs()),
            correlator: hooks.correlator,
            probe: hooks.probe,
            excluded_targets,
            diagnostics: hooks.diagnostics,
            notices: Notices::default(),
            visible: Visible::default(),
            setup_notes: setup_notes::NotesRead::new(),
            ring_capacity: rings.capacity,
            ring_room: Arc::new(RingRoom::new(rings.memory)),
            epochs: (0..EPOCHS).map(|_| AtomicU32::new(0)).collect(),
            new_threads: Mutex::new(Vec::new()),
            next_thread: AtomicU32::new(1),
            next_request: AtomicU32::new(1),
            requests,
            requests_lost: AtomicU64::new(0),
            samples_lost: AtomicU64::new(0),
            requests_paused: AtomicU64::new(0),
            open_requests: AtomicU64::new(0),
            steps_of_requests: OpenRequests::new(),
            experiments_kept: Mutex::default(),
            experiments: AtomicU64::new(0),
            phases_marked: AtomicBool::new(false),
            outside_phases: AtomicU32::new(crate::names::OTHER),
            trace_overrides: Mutex::new(FxHashMap::default()),
            // Ids grow from a random base: they are unique over runs, and consecutive within a run, so that they
            // compress to almost nothing.
            span_base: rand::random::<u64>() >> 1,
            trace_base: rand::random(),
        }
    }

    /// Whether this process was forked from the one that started the session. It then has none of the session's
    /// threads, and any lock may be held by a thread that does not exist here. Makes a system call: not for the hot
    /// path.
    pub(crate) fn is_forked(&self) -> bool {
        std::process::id() != self.process
    }

    /// Whether a step of this kind, which was to be recorded, is left plain instead.
    #[inline]
    pub(crate) fn leaves_plain(&self, kind: u32) -> bool {
        self.probe.as_ref().is_some_and(|probe| probe.leaves_plain(kind))
    }

    #[inline]
    pub(crate) fn epoch(&self, span: u64) -> &AtomicU32 {
        &self.epochs[span as usize % EPOCHS]
    }

    /// The latest experiment.
    pub(crate) fn experiment(&self) -> Option<Arc<Experiment>> {
        self.all_experiments().last().cloned()
    }

    fn all_experiments(&self) -> MutexGuard<'_, Vec<Arc<Experiment>>> {
        self.experiments_kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an experiment, made with its number, unless another one goes on.
    pub(crate) fn set_experiment(
        &self,
        make: impl FnOnce(u64) -> Result<Experiment, PerturbRefused>,
    ) -> Result<(), PerturbRefused> {
        let mut all = self.all_experiments();
        if all.last().is_some_and(|latest| !latest.is_over()) {
            return Err(PerturbRefused::Busy);
        }
        if let Some(before) = all.last() {
            // It has its pairs, and what is only prepared does not begin in its place.
            before.end();
            self.control.end_experiment();
        }
        all.push(Arc::new(make(self.experiments.load(Ordering::Relaxed) + 1)?));
        self.experiments.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Begins the experiment that was taken.
    pub(crate) fn begin_experiment(&self) -> Result<(), PerturbRefused> {
        let all = self.all_experiments();
        let Some(latest) = all.last().filter(|latest| !latest.is_over()) else {
            return Err(PerturbRefused::NotPrepared);
        };
        latest.begins();
        if self.control.begin_experiment() { Ok(()) } else { Err(PerturbRefused::Ended) }
    }

    /// Calls `take` for every experiment whose rows may not have been taken. Steps are recorded as usual again once the
    /// latest has its pairs.
    pub(crate) fn each_experiment(&self, mut take: impl FnMut(&Experiment)) {
        let mut all = self.all_experiments();
        all.iter().for_each(|experiment| take(experiment));
        // Those before it are over, and nothing more comes of them.
        let before = all.len().saturating_sub(1);
        all.drain(..before);
        if all.last().is_some_and(|latest| latest.is_left()) {
            self.control.end_experiment();
        }
    }

    /// Hands a thread's ring to the drain, unless the session has ended, because nobody would take it then.
    pub(crate) fn announce_thread(&self, thread: NewThread) {
        let mut list = self.new_threads.lock().unwrap_or_else(PoisonError::into_inner);
        // Checked while the lock is held, which the drain takes after it has closed the session: what is added here is
        // still read.
        if !self.control.is_closed() {
            list.push(thread);
        }
    }

    pub(crate) fn next_thread(&self) -> u32 {
        self.next_thread.fetch_add(1, Ordering::Relaxed)
    }

    /// As if so many threads had been before.
    #[cfg(test)]
    pub(crate) fn set_next_thread(&self, number: u32) {
        self.next_thread.store(number, Ordering::Relaxed);
    }

    pub(crate) fn next_request(&self) -> u32 {
        self.next_request.fetch_add(1, Ordering::Relaxed)
    }

    /// First `seq` of a thread.
    pub(crate) fn first_seq(thread: u32) -> u64 {
        u64::from(thread) << SEQ_BITS
    }

    #[inline]
    pub(crate) fn span_id(&self, seq: u64) -> SpanId {
        let id = self.span_base.wrapping_add(seq);
        SpanId(if id == 0 { 1 } else { id })
    }

    /// The `seq` of the interval with this span id.
    pub(crate) fn seq_of(&self, span: SpanId) -> u64 {
        span.0.wrapping_sub(self.span_base)
    }

    /// Span id of a request itself; requests use the numbers of a thread that cannot exist.
    pub(crate) fn request_span_id(&self, request: u64) -> SpanId {
        self.span_id((u64::from(NO_THREAD_FROM) << SEQ_BITS) + request)
    }

    /// Trace id of a request.
    pub(crate) fn request_trace(&self, request: u32) -> TraceId {
        let overrides = self.trace_overrides.lock().unwrap_or_else(PoisonError::into_inner);
        match overrides.get(&request) {
            Some(&id) => TraceId(id),
            None => self.derived_trace(u64::from(request)),
        }
    }

    /// Trace id of a step that belongs to no request.
    pub(crate) fn step_trace(&self, step: u64) -> TraceId {
        self.derived_trace((1 << 63) | step)
    }

    /// Trace id of a range that belongs to no request and stands above steps.
    pub(crate) fn range_trace(&self, seq: u64) -> TraceId {
        self.derived_trace((1 << 62) | seq)
    }

    fn derived_trace(&self, n: u64) -> TraceId {
        // A hash of the number, added to a random base: distinct numbers give distinct ids.
        let low = splitmix::mixed(n.wrapping_add(self.trace_base as u64));
        let id = (self.trace_base & !u128::from(u64::MAX)) | u128::from(low);
        TraceId(if id == 0 { 1 } else { id })
    }

    /// Lets a request join its caller's trace.
    pub(crate) fn set_request_trace(&self, request: u32, trace: u128) {
        let mut overrides = self.trace_overrides.lock().unwrap_or_else(PoisonError::into_inner);
        overrides.insert(request, trace);
    }

    /// Number of requests that have joined their callers' traces and are remembered.
    #[cfg(test)]
    pub(crate) fn joined_traces(&self) -> usize {
        self.trace_overrides.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Removes what is remembered of a request that ended.
    pub(crate) fn forget_request(&self, request: u32) {
        self.trace_overrides.lock().unwrap_or_else(PoisonError::into_inner).remove(&request);
    }

    pub(crate) fn is_excluded(&self, target: &str) -> bool {
        self.excluded_targets
            .iter()
            .map(String::as_str)
            .chain([crate::diagnostics::TARGET])
            .any(|t| target.strip_prefix(t).is_some_and(|rest| rest.is_empty() || rest.starts_with("::")))
    }
}
