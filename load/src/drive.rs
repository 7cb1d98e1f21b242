//! One stage of load: its clients or its arrivals, from the first warm-up request to the end of the last measured one.

use crate::body::{Body, plain};
use crate::course::Course;
use crate::exchange::Client;
use crate::failure::{Failure, FailureKind};
use crate::level::Level;
use crate::options::LoadOptions;
use crate::pacer::{Arrivals, Tick, start};
use crate::prompts::Prompts;
use crate::record::{Part, RequestRecord};
use crate::watch::{Progress, Stop, Watch};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// A client that got no connection waits this long.
const AFTER_NO_CONNECTION: Duration = Duration::from_millis(100);
/// The server counts as gone after this many requests without an answer in a row, …
const ABSENT_REQUESTS: u32 = 5;
/// … over at least this time, in which nothing of any answer arrived.
const ABSENT_NS: u64 = 1_000_000_000;
/// Requests that only kept the load up may end by themselves for this long, once they are no longer needed.
const DRAIN_NS: u64 = 1_000_000_000;
/// Most ticks that the pacer is ahead of the sender; then it waits. Arrivals keep the times that were planned.
const MOST_TICKS: usize = 4096;
/// How often the stage is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// What all stages share.
pub(crate) struct LoadContext {
    pub(crate) client: Client,
    pub(crate) body: Body,
    pub(crate) target: String,
    pub(crate) prompts: Prompts,
    pub(crate) options: LoadOptions,
}

/// How a stage ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum StageEnd {
    Complete,
    Stopped,
    /// Since when the server has not answered, in nanoseconds since the run began.
    ServerGone(u64, String),
    /// The run holds as much as it may.
    OutOfRoom,
}

/// What a stage recorded.
pub(crate) struct StageRecords {
    pub(crate) records: Vec<RequestRecord>,
    pub(crate) window: Option<(u64, u64)>,
    /// By how much the sender ran late, in nanoseconds, at regular times of the window.
    pub(crate) beats: Vec<u64>,
    pub(crate) ended: StageEnd,
}

struct State {
    course: Course,
    records: Vec<RequestRecord>,
    beats: Vec<(u64, u64)>,
    started: u64,
    in_flight: u64,
    failed: u64,
    /// Requests without an answer in a row, and when the first of them failed.
    absent: (u32, u64),
    gone: Option<(u64, String)>,
}

/// A stage under way: its requests' clients share it.
struct RunningStage {
    shared: Arc<LoadContext>,
    stage: usize,
    state: Mutex<State>,
    cancel: watch::Receiver<Option<FailureKind>>,
}

/// A request that may begin.
struct Ticket {
    part: Part,
    number: u64,
}

pub(crate) async fn run_stage(
    shared: &Arc<LoadContext>,
    stage: usize,
    stages: Option<usize>,
    level: Level,
    stop: &Stop,
    watcher: &dyn Watch,
) -> std::io::Result<StageRecords> {
    let clock = shared.client.clock;
    let now = clock.now();
    let (cancel, cancelled) = watch::channel(None);
    let course = Course::new(shared.options.warmup_of(level), shared.options.amount, now);
    let state = State {
        course,
        records: Vec::new(),
        beats: Vec::new(),
        started: 0,
        in_flight: 0,
        failed: 0,
        absent: (0, 0),
        gone: None,
    };
    let running = Arc::new(RunningStage { shared: shared.clone(), stage, state: Mutex::new(state), cancel: cancelled });
    let (ticks, heard) = mpsc::channel(MOST_TICKS);
    let arrivals = match level {
        // Each stage has its own times, and the same ones in each run with this seed.
        Level::Rate(rate) => Some(Arrivals::new(rate, shared.options.seed.wrapping_add(stage as u64), now)),
        Level::Concurrency(_) => None,
    };
    start(clock, arrivals, ticks)?;
    let work = running.clone().work(level, heard);
    tokio::pin!(work);
    let mut look = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            () = &mut work => break,
            _ = look.tick() => {
                watcher.progress(&running.progress(stages, level));
                if let Some(why) = running.to_be_ended(stop) {
                    // Both at once: a request that waits here looks for the reason when the stage has stopped, and a
                    // client whose request was given up must not begin another one.
                    let mut state = running.state();
                    cancel.send_replace(Some(why));
                    state.course.stop(clock.now());
                }
            }
        }
    }
    Ok(running.finish(stop))
}

impl RunningStage {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn work(self: Arc<Self>, level: Level, ticks: mpsc::Receiver<Tick>) {
        match level {
            Level::Concurrency(clients) => self.closed_loop(clients, ticks).await,
            Level::Rate(_) => self.open_loop(ticks).await,
        }
    }

    async fn closed_loop(self: Arc<Self>, clients: u32, mut ticks: mpsc::Receiver<Tick>) {
        let mut tasks = JoinSet::new();
        for _ in 0..clients {
            let this = self.clone();
            tasks.spawn(async move {
                while let Some(ticket) = this.begin(None) {
                    if this.send(ticket, None).await {
                        tokio::time::sleep(AFTER_NO_CONNECTION).await;
                    }
                }
            });
        }
        loop {
            tokio::select! {
                ended = tasks.join_next() => if ended.is_none() { return },
                Some(tick) = ticks.recv() => self.beat(tick),
            }
        }
    }

    async fn open_loop(self: Arc<Self>, mut ticks: mpsc::Receiver<Tick>) {
        let most = self.shared.options.max_in_flight;
        let mut tasks = JoinSet::new();
        // What waits for room is a number and a time each, not a task: a server that does not answer makes many wait.
        let mut waiting: VecDeque<(Ticket, u64)> = VecDeque::new();
        loop {
            tokio::select! {
                tick = ticks.recv() => match tick {
                    Some(Tick::Arrival(planned)) => {
                        waiting.extend(self.begin(Some(planned)).map(|ticket| (ticket, planned)));
                    }
                    Some(tick) => self.beat(tick),
                    None => break,
                },
                Some(_) = tasks.join_next() => {}
            }
            while tasks.len() < most
                && let Some((ticket, planned)) = waiting.pop_front()
            {
                let this = self.clone();
                tasks.spawn(async move { this.send(ticket, Some(planned)).await });
            }
            if self.state().course.is_over(self.shared.client.clock.now()) {
                break;
            }
        }
        drop(ticks);
        for (ticket, planned) in waiting {
            self.leave_out(ticket, planned);
        }
        while tasks.join_next().await.is_some() {}
    }

    fn beat(&self, tick: Tick) {
        if let Tick::Beat(planned) = tick {
            let now = self.shared.client.clock.now();
            self.state().beats.push((planned, now.saturating_sub(planned)));
        }
    }

    fn begin(&self, planned: Option<u64>) -> Option<Ticket> {
        // The stage is ended at the next look; until then nothing begins.
        if self.shared.client.budget.is_spent() {
            return None;
        }
        let mut state = self.state();
        let part = state.course.begin(planned.unwrap_or_else(|| self.shared.client.clock.now()))?;
        state.started += 1;
        state.in_flight += 1;
        // Of each request at least this is held until the run ends.
        self.shared.client.budget.take(size_of::<RequestRecord>() as u64);
        Some(Ticket { part, number: state.started - 1 })
    }

    /// Keeps the record of a request that still waited for room when the stage ended.
    fn leave_out(&self, ticket: Ticket, planned: u64) {
        let shared = &*self.shared;
        let kind = self.cancel.borrow().unwrap_or(FailureKind::Cancelled);
        let prompt = shared.prompts.id_of(self.stage, ticket.number);
        let now = shared.client.clock.now();
        let mut record = RequestRecord::new(self.stage, ticket.number, ticket.part, prompt, now);
        record.planned_ns = Some(planned);
        record.failure = Some(Failure::new(kind, "it was not sent before the stage ended"));
        self.end(record);
    }

    /// Sends a request and keeps its record; returns whether there was no connection.
    async fn send(&self, ticket: Ticket, planned: Option<u64>) -> bool {
        let shared = &*self.shared;
        let prompt = shared.prompts.nth(self.stage, ticket.number);
        let body = shared.body.of(&prompt);
        let start = shared.client.clock.now();
        let mut record = RequestRecord::new(self.stage, ticket.number, ticket.part, prompt.id, start);
        record.planned_ns = planned;
        if shared.options.keep_prompts {
            record.prompt_text = Some(plain(&prompt.content));
        }
        let mut cancel = self.cancel.clone();
        shared.client.exchange(&shared.target, body, shared.options.timeout, &mut cancel, &mut record).await;
        let none = |kind| matches!(kind, FailureKind::Connect | FailureKind::NoSockets);
        let no_connection = record.failure.as_ref().is_some_and(|f| none(f.kind));
        self.end(record);
        no_connection
    }

    fn end(&self, record: RequestRecord) {
        let now = self.shared.client.clock.now();
        self.shared.client.budget.take(record.held() as u64);
        let mut state = self.state();
        state.in_flight -= 1;
        state.course.end(record.part, record.number, now);
        match &record.failure {
            Some(failure) if failure.kind.is_absence() && record.head_ns.is_none() => {
                state.failed += 1;
                let (n, since) = state.absent;
                state.absent = if n == 0 { (1, now) } else { (n + 1, since) };
                let (n, since) = state.absent;
                // Answers to other requests may still arrive.
                let since = since.max(self.shared.client.heard_at());
                if n >= ABSENT_REQUESTS && now.saturating_sub(since) >= ABSENT_NS && state.gone.is_none() {
                    state.gone = Some((since, failure.message.clone()));
                }
            }
            Some(failure) => state.failed += u64::from(!failure.kind.is_ours()),
            None => state.absent = (0, 0),
        }
        state.records.push(record);
    }

    fn progress(&self, stages: Option<usize>, level: Level) -> Progress {
        let state = self.state();
        Progress {
            stage: self.stage,
            stages,
            level,
            done: state.course.done(self.shared.client.clock.now()),
            ended: state.records.len() as u64,
            failed: state.failed,
            in_flight: state.in_flight,
        }
    }

    /// Why requests under way are to be given up, if they are.
    fn to_be_ended(&self, stop: &Stop) -> Option<FailureKind> {
        let now = self.shared.client.clock.now();
        let mut state = self.state();
        let spent = self.shared.client.budget.is_spent();
        // A server that does not keep up would be waited for as long as the stage took, again and again.
        let patience = u64::try_from(self.shared.options.timeout.as_nanos()).unwrap_or(u64::MAX);
        let gives_up = state.course.gives_up(now, DRAIN_NS, patience);
        if stop.is_stopped() || state.gone.is_some() || spent { Some(FailureKind::Cancelled) } else { gives_up }
    }

    fn finish(&self, stop: &Stop) -> StageRecords {
        let now = self.shared.client.clock.now();
        let mut state = self.state();
        let mut records = std::mem::take(&mut state.records);
        records.sort_by_key(|record| record.number);
        let window = state.course.window(now);
        let inside = |at: &u64| window.is_some_and(|(from, to)| (from..=to).contains(at));
        let beats = state.beats.iter().filter(|(at, _)| inside(at)).map(|(_, late)| *late).collect();
        let ended = match state.gone.take() {
            Some((since, why)) => StageEnd::ServerGone(since, why),
            None if stop.is_stopped() => StageEnd::Stopped,
            None if self.shared.client.budget.is_spent() => StageEnd::OutOfRoom,
            None => StageEnd::Complete,
        };
        StageRecords { records, window, beats, ended }
    }
}
