//! The drain's end of a sampler of stacks: samples find the intervals that they fall into, and intervals what their
//! thread did meanwhile.
//!
//! Records of a step come when it has ended, so a sample waits until every step that was open when it was taken has
//! come. No I/O and no clocks here.

use super::thread_places::{Interval, ThreadPlaces};
use super::thread_time::{SwitchedTo, ThreadTime};
use crate::HostNs;
use crate::record::{Batch, PathInfo, SpanRecord, StackRecord, StackSampleRecord, ThreadInfo};
use crate::run::StackAccount;
use crate::stacks::{MonotonicNs, RawStackSample, StackSink, ThreadChange};
use crate::vocabulary::{Phase, ThreadState};
use crossbeam_channel::{Receiver, TryRecvError};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Samples that may wait for their step to end: with two threads at 499 Hz, four minutes.
///
/// Overload policy: beyond this the oldest go out without an interval, and are counted.
const MOST_WAITING: usize = 1 << 18;

/// Threads that have ended and are known still.
const MOST_ENDED: usize = 1_024;

/// Intervals remembered for samples that have not come.
const MOST_PLACES: usize = 1 << 20;

/// The drain's end of a sampler.
pub(crate) struct Stacks {
    deliveries: Receiver<StackSink>,
    error: Arc<Mutex<Option<String>>>,
    /// Whether the sampler's thread has ended, and all it delivered is here.
    ended: bool,
    /// Everything that happened before has been delivered.
    through: HostNs,
    /// The same of samples.
    samples_through: HostNs,
    threads: FxHashMap<u64, ThreadTime>,
    /// Intervals by thread.
    places: FxHashMap<u64, ThreadPlaces>,
    waiting: VecDeque<(HostNs, RawStackSample)>,
    /// Whether all that wait are in order of time.
    sorted: bool,
    new_stacks: Vec<StackRecord>,
    /// Stacks below an entry point of a pool's threads, and threads that were seen in one.
    of_pools: FxHashSet<u64>,
    pool_threads: FxHashSet<u64>,
    infos: FxHashMap<u64, Arc<ThreadInfo>>,
    /// Threads that have ended, the oldest first; samples of them may still wait.
    ended_threads: VecDeque<Arc<ThreadInfo>>,
    names: FxHashMap<Arc<str>, u32>,
    account: StackAccount,
}

/// Where a sample belongs.
#[derive(Default)]
struct SamplePlace {
    step: Option<u64>,
    phase: Option<Phase>,
    seq: Option<u64>,
    path: Option<Arc<PathInfo>>,
    pool: bool,
}

impl Stacks {
    pub(crate) fn new(
        source: &'static str,
        deliveries: Receiver<StackSink>,
        error: Arc<Mutex<Option<String>>>,
    ) -> Self {
        Self {
            deliveries,
            error,
            ended: false,
            through: HostNs(i64::MIN),
            samples_through: HostNs(i64::MIN),
            threads: FxHashMap::default(),
            places: FxHashMap::default(),
            waiting: VecDeque::new(),
            sorted: true,
            new_stacks: Vec::new(),
            of_pools: FxHashSet::default(),
            pool_threads: FxHashSet::default(),
            infos: FxHashMap::default(),
            ended_threads: VecDeque::new(),
            names: FxHashMap::default(),
            account: StackAccount { source: source.into(), ..StackAccount::default() },
        }
    }

    /// Notes a thread that enters intervals, by the name that its records have.
    pub(crate) fn adopt(&mut self, thread: &Arc<ThreadInfo>) {
        self.infos.insert(thread.os_id, thread.clone());
    }

    /// Such a thread has ended. It is known for a while, for samples that still wait.
    pub(crate) fn thread_ended(&mut self, thread: &Arc<ThreadInfo>) {
        self.ended_threads.push_back(thread.clone());
        if self.ended_threads.len() > MOST_ENDED
            && let Some(oldest) = self.ended_threads.pop_front()
            // The system may have given its number to another one.
            && self.infos.get(&oldest.os_id).is_some_and(|info| info.index == oldest.index)
        {
            self.infos.remove(&oldest.os_id);
        }
    }

    /// Takes in what was delivered. `offset` is the host's time less that of the monotonic clock, nanoseconds.
    pub(crate) fn receive(&mut self, offset: i64) {
        let host = |at: MonotonicNs| HostNs((at.0 as i64).saturating_add(offset));
        loop {
            let sink = match self.deliveries.try_recv() {
                Ok(sink) => sink,
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.ended = true;
                    // One that panicked has not told of its threads' ends.
                    for thread in self.threads.values_mut() {
                        thread.ended.get_or_insert(self.through);
                    }
                    return;
                }
            };
            self.account.lost += sink.lost;
            for stack in &sink.stacks {
                let below = stack.parent.is_some_and(|parent| self.of_pools.contains(&parent));
                if below || is_of_pool(stack) {
                    self.of_pools.insert(stack.stack);
                }
            }
            self.new_stacks.extend(sink.stacks);
            for event in &sink.events {
                self.event(event.tid, host(event.time), &event.change);
            }
            for sample in sink.samples {
                let at = host(sample.time);
                self.sorted &= self.waiting.back().is_none_or(|(last, _)| *last <= at);
                if sample.stack.is_some_and(|stack| self.of_pools.contains(&stack)) {
                    self.pool_threads.insert(sample.tid);
                }
                self.account.samples += 1;
                self.waiting.push_back((at, sample));
            }
            self.through = self.through.max(host(sink.through));
            self.samples_through = self.samples_through.max(host(sink.samples_through));
        }
    }

    fn event(&mut self, tid: u64, at: HostNs, change: &ThreadChange) {
        if let ThreadChange::Attached { name, switches, page_faults, running } = change {
            let known = self.threads.insert(tid, ThreadTime::new(name.clone(), at, *switches, *page_faults, *running));
            self.account.threads += u64::from(known.is_none());
            // A number may have come to another thread. Threads that enter intervals are adopted again.
            if self.infos.get(&tid).is_some_and(|info| info.index == 0) {
                self.infos.remove(&tid);
            }
            match is_of_candle_pool(name) {
                true => self.pool_threads.insert(tid),
                false => self.pool_threads.remove(&tid),
            };
        } else if let Some(thread) = self.threads.get_mut(&tid) {
            thread.take(at, change);
        }
    }

    /// Whether it is known what threads did until `time`, as far as that will ever be known.
    pub(crate) fn is_known(&self, time: HostNs) -> bool {
        self.through >= time || self.ended
    }

    /// Gives intervals and steps what their thread did meanwhile, and remembers where they were for samples.
    pub(crate) fn note(&mut self, batch: &mut Batch) {
        let through = self.through;
        let mut at = 0;
        while at < batch.spans.len() {
            let tid = batch.spans[at].thread.os_id;
            let of_thread = batch.spans[at..].iter().take_while(|span| span.thread.os_id == tid).count();
            self.note_spans(tid, &mut batch.spans[at..at + of_thread]);
            at += of_thread;
        }
        for step in &mut batch.steps {
            let thread = self.threads.get(&step.thread.os_id);
            let did = ThreadActivity::between(thread, through, step.host_start, step.host_dur_ns);
            (step.cpu_ns, step.preempted_ns, step.blocked_ns) = (did.cpu_ns, did.preempted_ns, did.blocked_ns);
            step.page_faults = did.page_faults;
        }
    }

    fn note_spans(&mut self, tid: u64, spans: &mut [SpanRecord]) {
        let thread = self.threads.get(&tid);
        // What a graph replayed took no time of the thread.
        for span in spans.iter_mut().filter(|span| span.graph.is_none()) {
            let did = ThreadActivity::between(thread, self.through, span.host_start, span.host_dur_ns);
            (span.cpu_ns, span.preempted_ns, span.blocked_ns) = (did.cpu_ns, did.preempted_ns, did.blocked_ns);
            span.page_faults = did.page_faults;
        }
        // Entries of a request's span stand above steps: they say nothing about where the time went.
        let mut intervals =
            spans.iter().filter(|span| span.step.is_some() && span.graph.is_none()).map(Interval::of).peekable();
        if intervals.peek().is_some() {
            self.places.entry(tid).or_default().add(intervals);
        }
    }

    /// Moves samples into a batch. `until`: all steps that were open before have come, and all later ones begin after.
    pub(crate) fn join(&mut self, until: HostNs, into: &mut Batch) {
        into.stacks.append(&mut self.new_stacks);
        // At the end nothing is waited for.
        let last = until == HostNs(i64::MAX);
        let through = if self.ended || last { HostNs(i64::MAX) } else { self.samples_through };
        let excess = self.waiting.len() > MOST_WAITING || self.has_too_many_places(until.min(through));
        let until = if excess { through } else { until.min(through) };
        if !self.sorted {
            self.waiting.make_contiguous().sort_by_key(|(at, _)| *at);
            self.sorted = true;
        }
        let ready = self.waiting.partition_point(|(at, _)| *at < until);
        let ready = ready.max(self.waiting.len().saturating_sub(MOST_WAITING));
        into.stack_samples.reserve(ready);
        if ready > 0 {
            self.places.values_mut().for_each(ThreadPlaces::order);
        }
        for _ in 0..ready {
            let Some((at, sample)) = self.waiting.pop_front() else { break };
            let row = self.row(at, &sample);
            self.account.unplaced += u64::from(excess && row.step.is_none());
            into.stack_samples.push(row);
        }
        self.forget(until, excess);
    }

    /// Whether there are more places than are kept, though none that nobody needs.
    fn has_too_many_places(&mut self, until: HostNs) -> bool {
        let too_many = |this: &Self| this.places.values().map(ThreadPlaces::len).sum::<usize>() > MOST_PLACES;
        if too_many(self) {
            self.places.values_mut().for_each(|places| places.forget(until, true));
        }
        too_many(self)
    }

    /// Forgets what no later sample or step can need; `at_once` even where that is not worth the while.
    fn forget(&mut self, until: HostNs, at_once: bool) {
        self.places.retain(|_, places| {
            places.forget(until, at_once);
            places.len() > 0
        });
        self.threads.values_mut().for_each(|thread| thread.prune(until));
        self.threads.retain(|_, thread| thread.ended.is_none_or(|ended| ended >= until));
    }

    fn row(&mut self, at: HostNs, sample: &RawStackSample) -> StackSampleRecord {
        let belongs = self.belongs(at, sample);
        let mut row = StackSampleRecord::new(at, self.info(sample.tid), sample.state, sample.weight_ns);
        row.stack = sample.stack;
        row.kernel = sample.kernel;
        (row.step, row.seq, row.phase, row.path, row.pool) =
            (belongs.step, belongs.seq, belongs.phase, belongs.path, belongs.pool);
        row
    }

    fn belongs(&self, at: HostNs, sample: &RawStackSample) -> SamplePlace {
        if let Some(own) = self.places.get(&sample.tid).and_then(|places| places.innermost(at)) {
            return SamplePlace::to(own, false);
        }
        // A pool's thread that is off its CPU computes for nobody.
        if sample.state != ThreadState::Running || !self.pool_threads.contains(&sample.tid) {
            return SamplePlace::default();
        }
        let open: Vec<(u64, &Interval)> =
            self.places.iter().filter_map(|(tid, places)| Some((*tid, places.innermost(at)?))).collect();
        let waits = |tid: &u64| self.threads.get(tid).and_then(|thread| thread.does_at(at)) == Some(SwitchedTo::Waits);
        let mut waiting = open.iter().filter(|(tid, _)| waits(tid));
        match (&open[..], waiting.next(), waiting.next()) {
            ([], ..) => SamplePlace::default(),
            ([(_, only)], ..) | (_, Some((_, only)), None) => SamplePlace::to(only, true),
            ([(_, first), rest @ ..], ..) => {
                let shared = rest.iter().all(|(_, other)| other.step == first.step);
                SamplePlace {
                    step: first.step.filter(|_| shared),
                    phase: first.phase.filter(|_| shared),
                    pool: true,
                    ..SamplePlace::default()
                }
            }
        }
    }

    /// The thread as its rows name it. Threads of a pool are all called alike, so that all but the first get a number.
    fn info(&mut self, tid: u64) -> Arc<ThreadInfo> {
        if let Some(known) = self.infos.get(&tid) {
            return known.clone();
        }
        let name = self.threads.get(&tid).map_or_else(|| "thread".into(), |thread| thread.name.clone());
        let n = self.names.entry(name.clone()).and_modify(|n| *n += 1).or_insert(1);
        let name = if *n == 1 { name } else { format!("{name}#{n}").into() };
        let info = Arc::new(ThreadInfo::new(0, tid, name));
        self.infos.insert(tid, info.clone());
        info
    }

    /// The account for the manifest.
    pub(crate) fn account(&self) -> StackAccount {
        let error = self.error.lock().unwrap_or_else(PoisonError::into_inner).clone();
        StackAccount { error, ..self.account.clone() }
    }
}

impl SamplePlace {
    fn to(interval: &Interval, pool: bool) -> Self {
        Self {
            step: interval.step,
            phase: interval.phase,
            seq: Some(interval.seq),
            path: Some(interval.path.clone()),
            pool,
        }
    }
}

/// What a thread did in an interval or step, as far as it is known.
#[derive(Default)]
struct ThreadActivity {
    cpu_ns: Option<u64>,
    preempted_ns: Option<u64>,
    blocked_ns: Option<u64>,
    page_faults: Option<u64>,
}

impl ThreadActivity {
    /// `through`: what happened later is not known yet.
    fn between(thread: Option<&ThreadTime>, through: HostNs, start: HostNs, dur_ns: u64) -> Self {
        let end = start.plus_ns(dur_ns);
        let Some(thread) = thread.filter(|_| end <= through) else { return Self::default() };
        let spent = thread.between(start, end);
        Self {
            cpu_ns: spent.map(|spent| spent.cpu_ns),
            preempted_ns: spent.map(|spent| spent.preempted_ns),
            blocked_ns: spent.map(|spent| spent.blocked_ns),
            page_faults: thread.page_faults(start, end),
        }
    }
}

/// Whether only threads that compute for others are inside this function: those of rayon's pool, and of tokio's for work
/// that blocks.
fn is_of_pool(stack: &StackRecord) -> bool {
    const OF_POOLS: [&str; 4] = [
        "rayon_core::registry::ThreadBuilder",
        "rayon_core::registry::main_loop",
        "rayon_core::registry::WorkerThread",
        "tokio::runtime::blocking::pool::Inner",
    ];
    stack.function.as_ref().is_some_and(|name| OF_POOLS.iter().any(|part| name.contains(part)))
}

/// Whether a thread of this name is one of candle's pool for quantised products.
fn is_of_candle_pool(name: &str) -> bool {
    name.starts_with("candle-bp-")
}
