//! The drain: empties the threads' rings, resolves, and hands batches to the exporters' lanes.

use super::capture::{CaptureEnd, CaptureRequest, Capturing};
use super::enrich::{Enricher, Resolved};
use super::fanout::Lane;
use super::in_place::InPlace;
use super::resolve::{Resolver, Surroundings, ThreadStream};
use super::{BackgroundCpu, CpuMeter};
use crate::clock::TickMapper;
use crate::layer::thread::outlived::OUTLIVED_KEPT;
use crate::raw::Raw;
use crate::record::{Batch, RecordKind, RequestRecord, SampleRecord, SpanId, ThreadInfo};
use crate::ring_room::RingShare;
use crate::run::{ClockInfo, Code, GpuAccount, InPlaceOverhead, LossCounts, RunManifest, StepCounts};
use crate::shared::{RawRequest, Shared, ThreadCounts};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use rustc_hash::FxHashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Spans in a batch before it is sent.
const BATCH_SPANS: usize = 8_192;

/// Pause between rounds in a window of kernels.
const WINDOW_PAUSE: Duration = Duration::from_millis(2);

/// Time that a flush gives the device to reach what it was given.
const FLUSH_PATIENCE: Duration = Duration::from_millis(500);

/// What is told when a guard was forgotten for the first time.
const FORGOTTEN: &str = "a span was still open when its step or request had ended and others began on the same thread, \
     as if its guard had been forgotten (mem::forget): it is not in the run; what comes after it is recorded as if it \
     had been left";

/// Names of threads remembered; from there on every thread's name carries its number.
const MAX_THREAD_NAMES: usize = 4_096;

/// Commands to the drain thread.
pub(crate) enum Command {
    /// Empty the rings, then flush every exporter; each answers whether it could.
    Flush(Sender<bool>),
    /// Begin a run of the next steps.
    Capture(Box<CaptureRequest>),
    /// Empty the rings for the last time and answer.
    Stop(Sender<DrainReport>),
}

/// What the drain knows at the end.
pub(crate) struct DrainReport {
    pub(crate) lanes: Vec<Lane>,
    pub(crate) facts: Facts,
    pub(crate) clock: ClockInfo,
    pub(crate) gpu: Option<GpuAccount>,
    pub(crate) in_place: Option<InPlaceOverhead>,
    /// Threads that write captured runs.
    pub(crate) captures: Vec<JoinHandle<()>>,
}

/// Numbers about the run so far, for the verdict and for statistics.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Facts {
    pub(crate) loss: LossCounts,
    /// Records resolved, by kind.
    pub(crate) counts: [u64; RecordKind::ALL.len()],
    pub(crate) orphans: u64,
    pub(crate) outlived_parent: u64,
    pub(crate) step_ns: u64,
    /// Time that GPU marks took on the application's threads.
    pub(crate) marks_ns: u64,
    pub(crate) model_spans: u64,
    pub(crate) helper_spans: u64,
    pub(crate) phase_steps: u64,
    pub(crate) hollow_phase_steps: u64,
    /// Intervals read from the rings.
    pub(crate) drained: u64,
    /// Steps by what became of them.
    pub(crate) steps: StepCounts,
}

impl Facts {
    /// What happened since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let less = |f: fn(&Self) -> u64| f(self).saturating_sub(f(before));
        Self {
            loss: LossCounts {
                emitted: less(|f| f.loss.emitted),
                ring_full: less(|f| f.loss.ring_full),
                too_deep: less(|f| f.loss.too_deep),
                no_ring: less(|f| f.loss.no_ring),
                threads_without_ring: less(|f| f.loss.threads_without_ring),
                after_shutdown: less(|f| f.loss.after_shutdown),
                unresolved: less(|f| f.loss.unresolved),
                open_at_end: 0,
                unmatched_exits: less(|f| f.loss.unmatched_exits),
                forgotten_guards: less(|f| f.loss.forgotten_guards),
                requests_lost: less(|f| f.loss.requests_lost),
                requests_open_at_end: 0,
                requests_paused: less(|f| f.loss.requests_paused),
                samples_lost: less(|f| f.loss.samples_lost),
            },
            counts: std::array::from_fn(|kind| self.counts[kind].saturating_sub(before.counts[kind])),
            orphans: less(|f| f.orphans),
            outlived_parent: less(|f| f.outlived_parent),
            step_ns: less(|f| f.step_ns),
            marks_ns: less(|f| f.marks_ns),
            model_spans: less(|f| f.model_spans),
            helper_spans: less(|f| f.helper_spans),
            phase_steps: less(|f| f.phase_steps),
            hollow_phase_steps: less(|f| f.hollow_phase_steps),
            drained: less(|f| f.drained),
            steps: StepCounts {
                begun: less(|f| f.steps.begun),
                recorded: less(|f| f.steps.recorded),
                captured: less(|f| f.steps.captured),
                scheduled_out: less(|f| f.steps.scheduled_out),
                left_plain: less(|f| f.steps.left_plain),
                paused: less(|f| f.steps.paused),
                lost: less(|f| f.steps.lost),
                open_at_end: self.steps.open_at_end,
                schedule: self.steps.schedule,
            },
        }
    }
}

/// Sums over threads.
#[derive(Clone, Copy, Default)]
struct ThreadSums {
    loss: LossCounts,
    drained: u64,
    steps_lost: u64,
    steps_due: u64,
    steps_scheduled_out: u64,
    steps_plain: u64,
    steps_paused: u64,
}

pub(crate) struct Drain {
    pub(crate) shared: Arc<Shared>,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) requests: Receiver<RawRequest>,
    pub(crate) samples: Receiver<Vec<SampleRecord>>,
    pub(crate) commands: Receiver<Command>,
    pub(crate) interval: Duration,
    /// Longest time that the device gets at the end to reach what it was given.
    pub(crate) gpu_patience: Duration,
    pub(crate) facts: Arc<Mutex<Facts>>,
    pub(crate) queued: Arc<AtomicU64>,
    pub(crate) background: Arc<BackgroundCpu>,
    pub(crate) manifest: Arc<Mutex<RunManifest>>,
    /// Set when the manifest changed.
    pub(crate) manifest_changed: Arc<AtomicBool>,
    pub(crate) per_interval_ns: f64,
}

struct Source {
    stream: ThreadStream,
    ring: rtrb::Consumer<Raw>,
    counts: Arc<ThreadCounts>,
    drained: u64,
    /// Given back with the ring.
    share: Option<RingShare>,
}

struct State {
    mapper: TickMapper,
    resolver: Resolver,
    sources: Vec<Source>,
    thread_names: FxHashSet<Arc<str>>,
    resolved: Resolved,
    enricher: Enricher,
    /// Of threads that ended.
    gone: ThreadSums,
    counts: [u64; RecordKind::ALL.len()],
    capture: Option<Capturing>,
    /// Threads that write captured runs.
    captures: Vec<JoinHandle<()>>,
    /// Whether threads came in the latest round.
    threads_come: bool,
}

impl Drain {
    pub(crate) fn run(self, mapper: TickMapper, enricher: Enricher) {
        // At the application's own priority: its work grows with the application's, and a ring that it does not empty in time loses
        // records. At a lower one a machine with more threads at work than cores left it less time than it needs.
        crate::layer::thread::mute_this_thread();
        self.shared.diagnostics.adopt_thread();
        let meter = self.background.meter();
        let mut resolver = Resolver::new();
        resolver.in_place = self.shared.probe.as_ref().map(|_| InPlace::default());
        let mut state = State {
            mapper,
            resolver,
            sources: Vec::new(),
            thread_names: FxHashSet::default(),
            resolved: Resolved::default(),
            enricher,
            gone: ThreadSums::default(),
            counts: [0; RecordKind::ALL.len()],
            capture: None,
            captures: Vec::new(),
            threads_come: false,
        };
        let mut pause = self.interval;
        loop {
            match self.commands.recv_timeout(pause) {
                Err(RecvTimeoutError::Timeout) => {
                    let busiest = self.cycle(&mut state, &meter, false);
                    pause = self.next_pause(pause, busiest, state.threads_come);
                    if state.enricher.closes_window(&self.shared) {
                        // Steps after a window still pay for the recorder until it is off: close it soon.
                        pause = pause.min(WINDOW_PAUSE);
                    } else if state.enricher.is_waiting() {
                        pause = pause.min(self.interval);
                    }
                }
                Ok(Command::Flush(done)) => {
                    self.cycle_until_known(&mut state, &meter, FLUSH_PATIENCE);
                    for lane in &self.lanes {
                        lane.request_flush(done.clone());
                    }
                }
                Ok(Command::Capture(request)) => {
                    // What the rings hold now is before the window: let it count for the session alone.
                    self.cycle(&mut state, &meter, false);
                    let (facts, now) = (self.facts(&state), state.mapper.now());
                    state.capture = Capturing::begin(*request, &self.shared.control, facts, now);
                }
                Ok(Command::Stop(answer)) => {
                    self.stop(state, &meter, &answer);
                    return;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// How long to sleep after a round that found the fullest ring as full as if `busiest` records were in one of the
    /// usual size.
    ///
    /// Waking costs more than a hundred records do (some 60 µs, most of it the kernel's and cold caches), so rings that fill
    /// slowly are looked at less often, but never so seldom that a sudden burst of 400,000 records a second overflows one of
    /// the default size. A ring over a quarter full would overflow if the next burst is as large: look again sooner.
    fn next_pause(&self, last: Duration, busiest: usize, threads_come: bool) -> Duration {
        let capacity = self.shared.ring_capacity;
        // Where threads come and go in a hurry, the rings of those that went are wanted back.
        if busiest * 4 > capacity || (threads_come && self.shared.ring_room.is_scarce()) {
            self.interval / 8
        } else if busiest * 8 > capacity {
            self.interval
        } else {
            (last * 2).clamp(self.interval, self.interval * 4)
        }
    }

    /// Rounds until nothing waits for the device any more, or `patience` is over. Returns the records of the last round.
    fn cycle_until_known(&self, state: &mut State, meter: &CpuMeter, patience: Duration) -> usize {
        let deadline = Instant::now() + patience;
        loop {
            let busiest = self.cycle(state, meter, true);
            if !state.enricher.is_waiting() || Instant::now() >= deadline {
                return busiest;
            }
            std::thread::sleep(Duration::from_micros(500));
        }
    }

    /// One round over everything; what is behind is `urgent` at a flush and at the end. Returns the most records found in one ring,
    /// of a small one in proportion.
    fn cycle(&self, state: &mut State, meter: &CpuMeter, urgent: bool) -> usize {
        state.mapper.maybe_resync();
        // Requests that have closed by now have no records but what is in the rings already; they are forgotten after those.
        let closed: Vec<RawRequest> = self.requests.try_iter().collect();
        self.adopt_new_threads(state);
        let mut busiest = 0;
        for at in 0..state.sources.len() {
            busiest = busiest.max(self.drain_source(state, at));
        }
        self.retire_ended_threads(state);
        self.take_requests(state, closed);
        while let Ok(samples) = self.samples.try_recv() {
            state.resolved.batch.samples.extend(samples);
        }
        self.pass_on_facts();
        self.shared.notices.tell(&self.shared.diagnostics);
        self.send(state, urgent);
        let facts = self.facts(state);
        if state.capture.as_ref().is_some_and(|capture| capture.is_done(&self.shared.control, &facts)) {
            self.end_capture(state);
        }
        // A guard that is late may still be dropped. One is forgotten for sure once it was given up, or its thread has ended.
        let given_up = |source: &Source| source.counts.forgotten.load(Ordering::Relaxed) > OUTLIVED_KEPT as u64;
        if state.gone.loss.forgotten_guards > 0 || state.sources.iter().any(given_up) {
            self.shared.notices.say(Code::GuardsForgotten, FORGOTTEN);
        }
        *self.facts.lock().unwrap_or_else(PoisonError::into_inner) = facts;
        meter.update();
        busiest
    }

    /// Writes the captured run, if there is one under way, with what it has.
    fn end_capture(&self, state: &mut State) {
        let Some(capture) = state.capture.take() else { return };
        let end = CaptureEnd {
            facts: self.facts(state),
            manifest: self.manifest.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            clock: state.mapper.info(),
            per_interval_ns: self.per_interval_ns,
            now: state.mapper.now(),
        };
        state.captures.retain(|thread| !thread.is_finished());
        state.captures.extend(capture.finish(end, &self.shared.control, &self.shared.diagnostics));
    }

    /// Facts about the run go out at once, so that a run that is killed still says which model it was of.
    fn pass_on_facts(&self) {
        if self.manifest_changed.swap(false, Ordering::Acquire) {
            let manifest = Arc::new(self.manifest.lock().unwrap_or_else(PoisonError::into_inner).clone());
            self.lanes.iter().for_each(|lane| lane.update(&manifest));
        }
    }

    fn adopt_new_threads(&self, state: &mut State) {
        let new = std::mem::take(&mut *self.shared.new_threads.lock().unwrap_or_else(PoisonError::into_inner));
        state.threads_come = !new.is_empty();
        for thread in new {
            // Tables carry the name alone, and pools give all their threads the same one. It is copied, because what the thread allocated
            // stays behind in its heap: between rings that come and go it would keep their pages.
            let mut info = Arc::new(ThreadInfo { name: Arc::from(&*thread.info.name), ..(*thread.info).clone() });
            let known = state.thread_names.len() >= MAX_THREAD_NAMES || !state.thread_names.insert(info.name.clone());
            if known {
                let name = format!("{}#{}", info.name, info.index).into();
                info = Arc::new(ThreadInfo { name, ..(*info).clone() });
            }
            if thread.share.is_none() {
                self.shared.notices.say(
                    Code::ThreadsWithoutRing,
                    "a thread found no room for a ring: what it does is not recorded but counted; give rings more \
                     memory (ring_memory), make them smaller (ring_capacity), or let fewer threads enter spans",
                );
            }
            state.sources.push(Source {
                stream: ThreadStream::new(info),
                ring: thread.ring,
                counts: thread.counts,
                drained: 0,
                share: thread.share,
            });
        }
    }

    fn drain_source(&self, state: &mut State, at: usize) -> usize {
        let State { mapper, resolver, sources, resolved, enricher, .. } = state;
        let source = &mut sources[at];
        let around = Surroundings { shared: &self.shared, mapper };
        let waiting = source.ring.slots();
        let mut left = waiting;
        while left > 0 {
            let n = left.min(4096);
            let Ok(chunk) = source.ring.read_chunk(n) else {
                break;
            };
            for raw in chunk {
                if matches!(raw, Raw::Interval(interval) if !interval.open) {
                    source.drained += 1;
                }
                resolver.feed(&mut source.stream, raw, &around, resolved);
            }
            left -= n;
            if resolved.batch.spans.len() >= BATCH_SPANS {
                enricher.add(std::mem::take(resolved));
            }
        }
        let capacity = source.ring.buffer().capacity().max(1);
        waiting * self.shared.ring_capacity.div_ceil(capacity)
    }

    /// Threads that ended have no more to say once their ring is empty.
    fn retire_ended_threads(&self, state: &mut State) {
        let mut at = 0;
        while at < state.sources.len() {
            let source = &state.sources[at];
            // Order matters: a thread that is gone writes no more, so an empty ring after that is empty for good.
            if source.ring.is_abandoned() && source.ring.is_empty() {
                let mut source = state.sources.swap_remove(at);
                let around = Surroundings { shared: &self.shared, mapper: &state.mapper };
                state.resolver.finish_thread(&mut source.stream, &around, &mut state.resolved);
                state.enricher.thread_ended(source.stream.info.index);
                state.gone.add(&source);
            } else {
                at += 1;
            }
        }
    }

    fn take_requests(&self, state: &mut State, closed: Vec<RawRequest>) {
        for raw in closed {
            let start = state.mapper.to_host(raw.start);
            let end = state.mapper.to_host(raw.end);
            let number = u64::from(raw.number);
            let v = raw.values;
            state.resolved.batch.requests.push(RequestRecord {
                request: number,
                trace_id: self.shared.request_trace(raw.number),
                span_id: self.shared.request_span_id(number),
                parent_span_id: v.parent_span_id.map(SpanId),
                caller_sampled: v.caller_sampled,
                operation: v.operation.unwrap_or_else(|| "inference".into()),
                model: v.model.unwrap_or_else(|| "unknown".into()),
                host_start: start,
                host_dur_ns: end.since(start),
                ttft_ns: v.ttft_seconds.map(|s| (s * 1e9) as u64),
                last_token_ns: v.last_token_seconds.map(|s| (s * 1e9) as u64),
                queue_ns: raw.first_step.map(|first| state.mapper.to_host(first).since(start)),
                prompt_tokens: v.prompt_tokens,
                output_tokens: v.output_tokens,
                batch: v.annotation.get_batch(),
            });
            self.shared.forget_request(raw.number);
        }
    }

    fn send(&self, state: &mut State, urgent: bool) {
        let State { mapper, resolved, enricher, counts, capture, .. } = state;
        enricher.add(std::mem::take(resolved));
        let send = |batch| send_batch(&self.lanes, capture, batch, counts);
        enricher.advance(&self.shared, urgent, &|| mapper.now(), send);
        self.queued.store(self.lanes.iter().map(Lane::queued).max().unwrap_or(0), Ordering::Relaxed);
    }

    fn facts(&self, state: &State) -> Facts {
        let mut sums = state.gone;
        state.sources.iter().for_each(|source| sums.add(source));
        let ThreadSums { mut loss, drained, .. } = sums;
        loss.requests_paused = self.shared.requests_paused.load(Ordering::Relaxed);
        loss.requests_lost = self.shared.requests_lost.load(Ordering::Relaxed);
        loss.samples_lost = self.shared.samples_lost.load(Ordering::Relaxed);
        Facts {
            loss,
            drained,
            steps: self.steps(&sums, &state.resolver),
            counts: state.counts,
            orphans: state.resolver.orphans,
            outlived_parent: state.resolver.outlived_parent,
            step_ns: state.resolver.step_ns,
            marks_ns: self
                .shared
                .gpu
                .as_ref()
                .map_or(0, |gpu| (gpu.counts.ticks.load(Ordering::Relaxed) as f64 * state.mapper.ns_per_tick()) as u64),
            model_spans: state.resolver.model_spans,
            helper_spans: state.resolver.helper_spans,
            phase_steps: state.resolver.phase_steps,
            hollow_phase_steps: state.resolver.hollow_phase_steps,
        }
    }

    /// Steps by what became of them. Those that are to be recorded and neither have come nor are lost are still open.
    fn steps(&self, sums: &ThreadSums, resolver: &Resolver) -> StepCounts {
        StepCounts {
            begun: sums.steps_due + sums.steps_scheduled_out + sums.steps_plain + sums.steps_paused,
            recorded: resolver.steps - resolver.steps_captured,
            captured: resolver.steps_captured,
            scheduled_out: sums.steps_scheduled_out,
            left_plain: sums.steps_plain,
            paused: sums.steps_paused,
            lost: sums.steps_lost,
            open_at_end: sums.steps_due.saturating_sub(resolver.steps + sums.steps_lost),
            schedule: self.shared.control.schedule(),
        }
    }

    fn stop(self, mut state: State, meter: &CpuMeter, answer: &Sender<DrainReport>) {
        self.shared.control.close();
        // Steps under way when the session closes may still write; a few rounds catch what comes at once.
        let deadline = Instant::now() + Duration::from_millis(50);
        loop {
            let busiest = self.cycle(&mut state, meter, true);
            if busiest == 0 || Instant::now() >= deadline {
                break;
            }
        }
        // What is still buffered belongs to steps that never ended.
        let State { mapper, resolver, sources, resolved, .. } = &mut state;
        let around = Surroundings { shared: &self.shared, mapper };
        for source in sources.iter_mut() {
            resolver.finish_thread(&mut source.stream, &around, resolved);
        }
        self.cycle_until_known(&mut state, meter, self.gpu_patience);
        let State { enricher, counts, capture, .. } = &mut state;
        enricher.stop_kernels(&self.shared, self.gpu_patience);
        enricher.release_all(&self.shared, |batch| send_batch(&self.lanes, capture, batch, counts));
        state.mapper.resync();
        self.end_capture(&mut state);
        let mut facts = self.facts(&state);
        if facts.loss.forgotten_guards > 0 {
            self.shared.notices.say(Code::GuardsForgotten, FORGOTTEN);
            self.shared.notices.tell(&self.shared.diagnostics);
        }
        // Whatever was emitted since the final round is a record that nobody will read.
        let loss = &mut facts.loss;
        loss.after_shutdown =
            loss.emitted.saturating_sub(facts.drained + loss.ring_full + loss.too_deep + loss.no_ring);
        // Two counts taken at different ends of the resolver: they differ only if it loses something.
        loss.unresolved = facts.drained.saturating_sub(facts.counts[RecordKind::Span as usize]);
        loss.requests_open_at_end = self.shared.open_requests.load(Ordering::Relaxed);
        let clock = state.mapper.info();
        let gpu = state.enricher.account(&self.shared, state.mapper.ns_per_tick());
        let State { mapper, resolver, .. } = &mut state;
        let in_place = resolver.in_place(&Surroundings { shared: &self.shared, mapper });
        meter.update();
        let _ = answer.send(DrainReport { lanes: self.lanes, facts, clock, gpu, in_place, captures: state.captures });
    }
}

fn send_batch(
    lanes: &[Lane],
    capture: &mut Option<Capturing>,
    batch: Batch,
    counts: &mut [u64; RecordKind::ALL.len()],
) {
    if batch.is_empty() {
        return;
    }
    let ready = Arc::new(batch);
    for kind in RecordKind::ALL {
        counts[kind as usize] += ready.count(kind);
    }
    if let Some(capture) = capture {
        capture.take(&ready);
    }
    for lane in lanes {
        lane.send(&ready);
    }
}

impl ThreadSums {
    fn add(&mut self, source: &Source) {
        let (counts, loss) = (&source.counts, &mut self.loss);
        self.drained += source.drained;
        // What is lost is counted as emitted first, and read first: so it is never more. Acquire pairs with the writer's Release: records
        // counted here are visible in the ring.
        let [ring_full, too_deep, no_ring] =
            [&counts.ring_full, &counts.too_deep, &counts.no_ring].map(|count| count.load(Ordering::Acquire));
        let emitted = counts.emitted.load(Ordering::Acquire);
        loss.emitted += emitted;
        loss.ring_full += ring_full;
        loss.too_deep += too_deep;
        loss.no_ring += no_ring;
        loss.threads_without_ring += u64::from(source.share.is_none());
        loss.unmatched_exits += counts.unmatched.load(Ordering::Relaxed);
        loss.forgotten_guards += counts.forgotten.load(Ordering::Relaxed);
        // Intervals too deep to be kept, or of threads without a ring, are emitted without having been entered into the
        // stack.
        let entered =
            counts.entered.load(Ordering::Relaxed).saturating_sub(Shared::first_seq(source.stream.info.index));
        loss.open_at_end += entered.saturating_sub(emitted.saturating_sub(too_deep + no_ring));
        // In this order: a step is counted as due before it is lost.
        self.steps_lost += counts.steps_lost.load(Ordering::Acquire);
        self.steps_due += counts.steps_due.load(Ordering::Relaxed);
        self.steps_scheduled_out += counts.steps_scheduled_out.load(Ordering::Relaxed);
        self.steps_plain += counts.steps_plain.load(Ordering::Relaxed);
        self.steps_paused += counts.steps_paused.load(Ordering::Relaxed);
    }
}
