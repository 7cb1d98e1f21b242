//! The drain: empties the threads' rings, resolves the records, and hands batches to the exporters' lanes.

mod counts;
mod links;
mod passing_on;
mod source;

pub(crate) use links::{Command, DrainReport, Links, Pace};

use super::CpuMeter;
use super::accounts::{Accounts, BatchTime};
use super::ask_filters::FilterQuery;
use super::capture_run::{CaptureEnd, OpenCapture, WaitingCapture};
use super::enrich::Enricher;
use super::fanout::Lane;
use super::in_place::InPlace;
use super::resolve::{ResolveContext, Resolver, ThreadStream};
use super::resolved::ResolvedRecords;
use super::stack_join::Stacks;
use crate::HostNs;
use crate::budget::Cost;
use crate::clock::TickMapper;
use crate::diagnostics::panic_message;
use crate::layer::thread::outlived::OUTLIVED_KEPT;
use crate::raw::Raw;
use crate::record::{Batch, RecordKind, RequestRecord, SpanId, ThreadInfo};
use crate::run::{Code, MachineMeter};
use crate::shared::{RawRequest, SessionState};
use crossbeam_channel::{RecvTimeoutError, Sender};
use passing_on::{pass_on, send_batch};
use rustc_hash::FxHashSet;
use source::{Source, ThreadSums};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Spans after which a batch is sent.
const BATCH_SPANS: usize = 8_192;

/// Pause between rounds in a window of kernels.
const WINDOW_PAUSE: Duration = Duration::from_millis(2);

/// The same while a capture waits for its last records.
const CLOSING_PAUSE: Duration = Duration::from_millis(10);

/// Time that a flush gives the device to reach the marks in its queue.
const FLUSH_PATIENCE: Duration = Duration::from_millis(500);

/// Reported when a guard was forgotten for the first time.
const FORGOTTEN: &str = "a span was still open when its step or request had ended and others began on the same thread, \
     as if its guard had been forgotten (mem::forget): it is not in the run; what comes after it is recorded as if it \
     had been left";

/// Names of threads that are remembered; after that many, every thread's name carries its number.
const MAX_THREAD_NAMES: usize = 4_096;

/// How often a budget for the cost of recording is adjusted to what was found.
const ADJUST_EVERY: Duration = Duration::from_millis(100);

/// The thread `cs-drain`.
pub(crate) struct Drain {
    shared: Arc<SessionState>,
    links: Links,
    pace: Pace,
    lanes: Vec<Lane>,
    mapper: TickMapper,
    resolver: Resolver,
    sources: Vec<Source>,
    thread_names: FxHashSet<Arc<str>>,
    resolved: ResolvedRecords,
    enricher: Enricher,
    /// What each request caused.
    accounts: Accounts,
    /// Counts of threads that have ended.
    gone: ThreadSums,
    counts: [u64; RecordKind::ALL.len()],
    /// A capture that has not begun yet.
    next_capture: Option<WaitingCapture>,
    capture: Option<OpenCapture>,
    /// Threads that are writing captured runs.
    captures: Vec<JoinHandle<()>>,
    /// Whether new threads came in the latest round.
    threads_come: bool,
    /// Whether filters hide the model's spans.
    asking: FilterQuery,
    machine: MachineMeter,
    /// Steps that had begun when samples came last.
    begun_at_samples: u64,
    /// When the latest round over the rings began.
    round_began: HostNs,
    /// When the budget was adjusted last.
    adjusted: Instant,
}

impl Drain {
    pub(crate) fn new(
        shared: Arc<SessionState>,
        links: Links,
        pace: Pace,
        lanes: Vec<Lane>,
        mapper: TickMapper,
        enricher: Enricher,
    ) -> Self {
        let mut resolver = Resolver::new();
        resolver.in_place = shared.probe.as_ref().map(|_| InPlace::default());
        let mut accounts = Accounts::default();
        accounts.learn(&links.manifest.get());
        Self {
            shared,
            links,
            pace,
            lanes,
            mapper,
            resolver,
            sources: Vec::new(),
            thread_names: FxHashSet::default(),
            resolved: ResolvedRecords::default(),
            enricher,
            accounts,
            gone: ThreadSums::default(),
            counts: [0; RecordKind::ALL.len()],
            next_capture: None,
            capture: None,
            captures: Vec::new(),
            threads_come: false,
            asking: FilterQuery::default(),
            machine: MachineMeter::default(),
            begun_at_samples: 0,
            round_began: HostNs(i64::MIN),
            adjusted: Instant::now(),
        }
    }

    /// Works until the session ends. A panic is reported at once, because the program may go on for days without being
    /// recorded.
    pub(crate) fn run(self) {
        let shared = self.shared.clone();
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| self.work())) {
            let said = panic_message(payload.as_ref());
            // Nobody reads the rings from here on: close the session, so that threads do not keep what they would add.
            shared.control.close();
            shared.new_threads.lock().unwrap_or_else(PoisonError::into_inner).clear();
            let message = format!("the pipeline panicked, so nothing is recorded from here on: {said}");
            shared.diagnostics.report("", message);
            resume_unwind(payload);
        }
    }

    fn work(mut self) {
        // Runs at the application's own priority: its work grows with the application's, and a ring that it does not
        // empty in time loses records. At a lower priority it did not get enough time on machines with more busy
        // threads than cores.
        crate::layer::thread::mute_this_thread();
        self.shared.diagnostics.adopt_thread();
        let meter = self.links.background.meter();
        let mut pause = self.pace.interval;
        loop {
            // Somebody waits for a capture that lets no more steps in, also in a session that rarely empties its rings.
            let closing = self.capture.as_ref().is_some_and(OpenCapture::is_closing);
            match self.links.commands.recv_timeout(if closing { pause.min(CLOSING_PAUSE) } else { pause }) {
                Err(RecvTimeoutError::Timeout) => {
                    let busiest = self.cycle(&meter, false);
                    pause = self.next_pause(pause, busiest);
                }
                Ok(Command::Flush(done)) => {
                    self.cycle_until_known(&meter, FLUSH_PATIENCE);
                    let waiting = self.accounts.release();
                    pass_on(&self.lanes, waiting, &mut self.counts);
                    for lane in &self.lanes {
                        lane.request_flush(done.clone());
                    }
                }
                Ok(Command::Capture(request)) => {
                    self.next_capture = Some(WaitingCapture::new(*request, &self.shared.control));
                    pause = pause.min(WINDOW_PAUSE);
                }
                Ok(Command::Stop(answer)) => {
                    self.stop(&meter, &answer);
                    return;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.begin_capture(&meter);
        }
    }

    /// How long to sleep after a round. `busiest` is the number of records in the fullest ring, scaled to a ring of the
    /// usual size.
    fn next_pause(&self, last: Duration, busiest: usize) -> Duration {
        let pause = self.pause_for_rings(last, busiest);
        if self.next_capture.is_some() || self.enricher.closes_window(&self.shared) {
            // Somebody waits for the capture. Steps after a window still pay for the recorder until it is off, so the
            // window must be closed soon.
            pause.min(WINDOW_PAUSE)
        } else if self.enricher.is_waiting() {
            pause.min(self.pace.interval)
        } else {
            pause
        }
    }

    /// Waking up costs more than a hundred records (about 60 µs, mostly in the operating system and from cold caches),
    /// so rings that fill slowly are emptied less often, but often enough that a sudden burst of 400,000 records a
    /// second does not overflow a ring of the default size. A ring that is over a quarter full would overflow if the
    /// next burst is as large, so it is emptied sooner.
    fn pause_for_rings(&self, last: Duration, busiest: usize) -> Duration {
        let capacity = self.shared.ring_capacity;
        // If many threads come and go, the rings of those that have ended must be freed quickly.
        if busiest * 4 > capacity || (self.threads_come && self.shared.ring_room.is_scarce()) {
            self.pace.interval / 8
        } else if busiest * 8 > capacity {
            self.pace.interval
        } else {
            (last * 2).clamp(self.pace.interval, self.pace.interval * 4)
        }
    }

    /// Makes rounds until nothing waits for the device any more, or `patience` is over. Returns the records of the last
    /// round.
    fn cycle_until_known(&mut self, meter: &CpuMeter, patience: Duration) -> usize {
        let deadline = Instant::now() + patience;
        loop {
            let busiest = self.cycle(meter, true);
            if !self.enricher.is_waiting() || Instant::now() >= deadline {
                return busiest;
            }
            std::thread::sleep(Duration::from_micros(500));
        }
    }

    /// Makes one round over everything. It is `urgent` at a flush and at the end. Returns the most records found in one
    /// ring, scaled up if the ring is small.
    fn cycle(&mut self, meter: &CpuMeter, urgent: bool) -> usize {
        // The records of requests that have closed by now are all in the rings already. Requests are forgotten after
        // those records are resolved.
        let closed: Vec<RawRequest> = self.links.requests.try_iter().collect();
        self.adopt_new_threads();
        let began = self.mapper.now();
        let mut busiest = 0;
        for at in 0..self.sources.len() {
            busiest = busiest.max(self.drain_source(at));
        }
        self.note_open_steps(began);
        self.retire_ended_threads();
        self.hold_budget();
        self.take_requests(closed);
        self.take_samples();
        self.take_perturbations();
        self.note_model(urgent);
        self.pass_on_manifest();
        self.asking.ask(&self.shared, urgent);
        self.shared.setup_notes.take(&self.shared.notices);
        self.shared.notices.tell(&self.shared.diagnostics);
        self.send(urgent);
        let tally = self.tally();
        if self.capture.as_mut().is_some_and(|capture| capture.is_done(&self.shared.control, &tally)) {
            self.end_capture();
        }
        // A guard that is late may still be dropped. It is certain to be forgotten only if its interval was given up,
        // or its thread has ended.
        let given_up = |source: &Source| source.counts.forgotten.load(Ordering::Relaxed) > OUTLIVED_KEPT as u64;
        if self.gone.loss.forgotten_guards > 0 || self.sources.iter().any(given_up) {
            self.shared.notices.say(Code::GuardsForgotten, FORGOTTEN);
        }
        *self.links.tally.lock().unwrap_or_else(PoisonError::into_inner) = tally;
        // After the rings were read: what is in them is older than a new piece, and finding an old one costs more.
        self.mapper.maybe_resync();
        meter.update();
        busiest
    }

    /// Leaves out more steps, or fewer, by what recording was found to cost.
    fn hold_budget(&mut self) {
        if self.shared.control.budget().is_none() || self.adjusted.elapsed() < ADJUST_EVERY {
            return;
        }
        self.adjusted = Instant::now();
        let found = self.resolver.in_place_lately(&ResolveContext { shared: &self.shared, mapper: &self.mapper });
        if let (Some(budget), Some(found)) = (self.shared.control.budget(), found) {
            budget.adjust(Cost::of(&found, self.resolver.window_share()));
        }
    }

    /// Notes since when, at the earliest, a step can be open of which no record has come. `began`: the time before the
    /// rings were read. Also before somebody asks for it: the first samples may be of long ago.
    fn note_open_steps(&mut self, began: HostNs) {
        for source in &mut self.sources {
            let [begun, lost] =
                [&source.counts.steps_due, &source.counts.steps_lost].map(|n| n.load(Ordering::Acquire));
            let open = begun > lost + source.stream.steps_ended;
            source.known_until = if open { source.known_until.max(source.stream.last_end) } else { began };
        }
        self.round_began = began;
    }

    fn take_samples(&mut self) {
        let mut steps_ran = None;
        while let Ok(samples) = self.links.samples.try_recv() {
            let steps_ran = *steps_ran.get_or_insert_with(|| {
                let steps = self.tally().steps;
                // What an experiment adds is no work of the program's.
                let begun = steps.begun - steps.perturbed;
                let before = std::mem::replace(&mut self.begun_at_samples, begun);
                begun > before || steps.open_at_end > 0
            });
            self.machine.add(&samples, steps_ran);
            if let Some(capture) = &mut self.capture {
                capture.add_samples(&samples);
            }
            self.resolved.batch.samples.extend(samples);
        }
    }

    /// Takes the stretches of an experiment that have ended, and ends it when it has its pairs.
    fn take_perturbations(&mut self) {
        if self.shared.experiments.load(Ordering::Relaxed) == 0 {
            return;
        }
        let Self { shared, resolved, mapper, .. } = self;
        shared.each_experiment(|experiment| {
            resolved.batch.perturbations.extend(experiment.rows(|ticks| mapper.to_host(ticks)));
        });
    }

    /// Begins the capture that was asked for, once the recorder of kernels is on or is not waited for any longer.
    fn begin_capture(&mut self, meter: &CpuMeter) {
        if !self.next_capture.as_ref().is_some_and(|waiting| waiting.is_over(&self.shared.control)) {
            return;
        }
        // The records now in the rings are from before the window and belong only to the session.
        self.cycle(meter, false);
        let Some(waiting) = self.next_capture.take() else { return };
        self.capture = OpenCapture::begin(waiting, &self.shared.control, self.tally(), self.mapper.now());
    }

    /// Ends the capture that is under way, if there is one, and writes its run with the records it has.
    fn end_capture(&mut self) {
        let Some(capture) = self.capture.take() else { return };
        let end = CaptureEnd {
            tally: self.tally(),
            manifest: self.links.manifest.get(),
            clock: self.mapper.info(),
            per_interval_ns: self.pace.per_interval_ns,
            now: self.mapper.now(),
        };
        self.captures.retain(|thread| !thread.is_finished());
        self.captures.extend(capture.finish(end, &self.shared.control, &self.shared.diagnostics));
    }

    /// Adds what is known of the model that was loaded, where the program itself has said nothing.
    fn note_model(&self, urgent: bool) {
        let Some((facts, before)) = self.shared.watch.model_news(urgent) else { return };
        self.links.manifest.note(|m| {
            for (key, value) in facts {
                if m.model.get(&key).is_none_or(|known| before.get(&key) == Some(known)) {
                    m.model.insert(key, value);
                }
            }
        });
    }

    /// Hands on what became known of the run at once, so that even a run that is killed says which model it was of.
    fn pass_on_manifest(&mut self) {
        if let Some(manifest) = self.links.manifest.take_change().map(Arc::new) {
            self.accounts.learn(&manifest);
            self.lanes.iter().for_each(|lane| lane.update(&manifest));
        }
    }

    fn adopt_new_threads(&mut self) {
        let new = std::mem::take(&mut *self.shared.new_threads.lock().unwrap_or_else(PoisonError::into_inner));
        self.threads_come = !new.is_empty();
        for thread in new {
            // Tables contain only the name, and pools give all their threads the same one. The name is copied, because
            // what the thread itself allocated stays in its heap: between rings that come and go it would keep their
            // pages in use.
            let named = |name| ThreadInfo::new(thread.info.index, thread.info.os_id, name);
            let mut info = Arc::new(named(Arc::from(&*thread.info.name)));
            let known = self.thread_names.len() >= MAX_THREAD_NAMES || !self.thread_names.insert(info.name.clone());
            if known {
                let name = format!("{}#{}", info.name, info.index).into();
                info = Arc::new(named(name));
            }
            if thread.share.is_none() {
                self.shared.notices.say(
                    Code::ThreadsWithoutRing,
                    "a thread found no room for a ring: what it does is not recorded but counted; give rings more \
                     memory (ring_memory), make them smaller (ring_capacity), or let fewer threads enter spans",
                );
            }
            if let Some(stacks) = &mut self.enricher.stacks {
                stacks.adopt(&info);
            }
            self.resolver.threads.add(&info);
            self.sources.push(Source {
                stream: ThreadStream::new(info),
                known_until: self.round_began,
                ring: thread.ring,
                counts: thread.counts,
                drained: 0,
                share: thread.share,
            });
        }
    }

    fn drain_source(&mut self, at: usize) -> usize {
        let Self { shared, mapper, resolver, sources, resolved, enricher, .. } = self;
        let source = &mut sources[at];
        let around = ResolveContext { shared, mapper };
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
        waiting * shared.ring_capacity.div_ceil(capacity)
    }

    /// Removes threads that have ended, once their ring is empty.
    fn retire_ended_threads(&mut self) {
        let mut at = 0;
        while at < self.sources.len() {
            let source = &self.sources[at];
            // The order matters: a thread that has ended writes nothing more, so a ring that is empty after that stays
            // empty.
            if source.ring.is_abandoned() && source.ring.is_empty() {
                let mut source = self.sources.swap_remove(at);
                let around = ResolveContext { shared: &self.shared, mapper: &self.mapper };
                self.resolver.finish_thread(&mut source.stream, &around, &mut self.resolved);
                self.enricher.thread_ended(source.stream.info.index);
                self.resolver.thread_ended(source.stream.info.index);
                if let Some(stacks) = &mut self.enricher.stacks {
                    stacks.thread_ended(&source.stream.info);
                }
                self.gone.add(&source);
            } else {
                at += 1;
            }
        }
    }

    fn take_requests(&mut self, closed: Vec<RawRequest>) {
        for raw in closed {
            let start = self.mapper.to_host(raw.start);
            let end = self.mapper.to_host(raw.end);
            let number = u64::from(raw.number);
            let v = raw.values;
            let mut request = RequestRecord::new(
                number,
                self.shared.request_trace(raw.number),
                self.shared.request_span_id(number),
                v.operation.unwrap_or_else(|| "inference".into()),
                v.model.unwrap_or_else(|| "unknown".into()),
                start,
                end.since(start),
            );
            request.parent_span_id = v.parent_span_id.map(SpanId);
            request.caller_sampled = v.caller_sampled;
            request.ttft_ns = v.ttft_seconds.map(|s| (s * 1e9) as u64);
            request.last_token_ns = v.last_token_seconds.map(|s| (s * 1e9) as u64);
            request.queue_ns = raw.first_step.map(|first| self.mapper.to_host(first).since(start));
            request.prompt_tokens = v.prompt_tokens;
            request.output_tokens = v.output_tokens;
            request.batch = v.annotation.get_batch();
            request.outcome = v.outcome;
            request.perturbed = raw.perturbed.then_some(true);
            self.resolved.batch.requests.push(request);
            self.shared.forget_request(raw.number);
        }
    }

    fn send(&mut self, urgent: bool) {
        let known_until = self.known_until();
        let Self { shared, lanes, mapper, resolver, resolved, enricher, accounts, counts, capture, .. } = self;
        resolver.add_unrecorded(resolved);
        enricher.add(std::mem::take(resolved));
        let experiment = match shared.experiments.load(Ordering::Relaxed) {
            0 => None,
            _ => shared.experiment().filter(|experiment| !experiment.is_over()),
        };
        let send = |batch: Batch| {
            if let Some(experiment) = &experiment {
                experiment.learn_spans(&batch.spans);
                experiment.learn_steps(&batch.steps, |name| shared.names.text_of(name));
            }
            send_batch(lanes, accounts, capture, batch, counts);
        };
        enricher.advance(shared, urgent, mapper, known_until, send);
        if self.accounts.is_waiting() || self.accounts.counts_energy(Instant::now()) {
            self.settle_accounts(false);
        }
    }

    /// Every step that began before has been resolved.
    fn known_until(&self) -> HostNs {
        self.sources.iter().map(|source| source.known_until).min().unwrap_or(self.round_began)
    }

    /// Divides what was counted of energy, as far as steps are known, and passes on what comes of it.
    fn settle_accounts(&mut self, is_last: bool) {
        self.enricher.devices().for_each(|uuid| self.accounts.works_on(uuid));
        let (without_record, in_unrecorded) = self.without_record();
        let around = BatchTime {
            known_until: self.enricher.passed_until(self.known_until()).0,
            now: self.mapper.now().0,
            at: Instant::now(),
            without_record,
            in_unrecorded,
            is_last,
        };
        let settled = self.accounts.settle(&around);
        pass_on(&self.lanes, settled, &mut self.counts);
    }

    /// Resolves what is buffered of every thread.
    fn finish_threads(&mut self) {
        let Self { shared, mapper, resolver, sources, resolved, .. } = self;
        let around = ResolveContext { shared, mapper };
        for source in sources {
            resolver.finish_thread(&mut source.stream, &around, resolved);
        }
    }

    fn stop(mut self, meter: &CpuMeter, answer: &Sender<DrainReport>) {
        self.shared.control.close();
        // Steps under way when the session closes may still write; a few rounds pick up what comes at once.
        let deadline = Instant::now() + Duration::from_millis(50);
        loop {
            let busiest = self.cycle(meter, true);
            if busiest == 0 || Instant::now() >= deadline {
                break;
            }
        }
        // What is still buffered belongs to steps that never ended.
        self.finish_threads();
        self.cycle_until_known(meter, self.pace.gpu_patience);
        // Steps under way went on meanwhile. From here on nothing more is read.
        self.finish_threads();
        self.send(true);
        let Self { shared, pace, lanes, enricher, accounts, counts, capture, mapper, .. } = &mut self;
        enricher.stop_kernels(shared, pace.gpu_patience);
        enricher.release_all(shared, mapper, |batch| send_batch(lanes, accounts, capture, batch, counts));
        self.settle_accounts(true);
        self.mapper.resync();
        if let Some(waiting) = self.next_capture.take() {
            waiting.give_up(&self.shared.control);
        }
        self.end_capture();
        self.note_outside_phases();
        let mut tally = self.tally();
        if tally.loss.forgotten_guards > 0 {
            self.shared.notices.say(Code::GuardsForgotten, FORGOTTEN);
            self.shared.notices.tell(&self.shared.diagnostics);
        }
        // Intervals emitted since the final round were not read.
        let loss = &mut tally.loss;
        loss.after_shutdown =
            loss.emitted.saturating_sub(tally.drained + loss.ring_full + loss.too_deep + loss.no_ring);
        // These are counted before and after the resolver: they differ only if it loses intervals.
        let entered = tally.counts[RecordKind::Span as usize].saturating_sub(self.enricher.replayed());
        loss.unresolved = tally.drained.saturating_sub(entered);
        // Those that have ended since the rings were read for the last time have no record either.
        loss.requests_open_at_end =
            self.shared.open_requests.load(Ordering::Relaxed) + self.links.requests.try_iter().count() as u64;
        let clock = self.mapper.info();
        let gpu = self.enricher.account(&self.shared, self.mapper.ns_per_tick());
        let stacks = self.enricher.stacks.as_ref().map(Stacks::account);
        let in_place = self.resolver.in_place(&ResolveContext { shared: &self.shared, mapper: &self.mapper });
        let cost = in_place.as_ref().map(|found| Cost::of(found, self.resolver.window_share()));
        let budget = self.shared.control.budget().map(|budget| budget.kept(cost, &tally.steps));
        meter.update();
        let (machine, pool_threads, captures) = (self.machine.result(), self.machine.pool_threads(), self.captures);
        let _ = answer.send(DrainReport {
            lanes: self.lanes,
            tally,
            clock,
            gpu,
            stacks,
            in_place,
            budget,
            machine,
            pool_threads,
            captures,
        });
    }
}
