//! The thread of the sampler of stacks: it reads what was sampled and gives it to the drain.

use crate::diagnostics::panic_message;
use crate::shared::SessionState;
use crate::stacks::{StackError, StackSink, StackSource, ThreadChange, ThreadEvent};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError};
use rustc_hash::FxHashSet;
use serde_json::Value;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two deliveries there is at least this, so that a sampler that cannot keep up leaves the program some time.
const SHORTEST_PAUSE: Duration = Duration::from_micros(2_500);

/// Samples, events and stacks, of each so many, that wait for the drain.
///
/// Overload policy: beyond this the oldest samples are dropped. Of events, all that may be lost are, and what their threads
/// did meanwhile is not known. No new stacks are delivered any more, because later ones may hang from those that would be
/// missing, nor samples of them. All but stacks are counted as lost.
const MOST_WAITING: usize = 1 << 18;

/// Receives the facts about the sampler, once it has started and again at the end.
pub(crate) type Describe = Box<dyn Fn(BTreeMap<String, Value>) + Send>;

pub(crate) struct StackThread {
    pub(crate) source: Box<dyn StackSource>,
    pub(crate) shared: Arc<SessionState>,
    pub(crate) deliveries: Sender<StackSink>,
    /// Disconnected when the session ends.
    pub(crate) stop: Receiver<()>,
    pub(crate) error: Arc<Mutex<Option<String>>>,
    pub(crate) background: Arc<super::BackgroundCpu>,
    pub(crate) describe: Describe,
}

impl StackThread {
    pub(crate) fn start(self) -> std::io::Result<JoinHandle<()>> {
        super::threads::spawn("cs-stacks", move || self.run())
    }

    fn run(mut self) {
        // At the application's own priority, as the drain: buffers that it does not empty in time lose samples.
        crate::layer::thread::mute_this_thread();
        self.shared.diagnostics.adopt_thread();
        let meter = self.background.meter();
        if self.call(|source| source.start()).is_none() {
            return;
        }
        self.describe();
        let mut backlog = Backlog::default();
        let mut sink = StackSink::default();
        loop {
            let begun = Instant::now();
            let polled = self.call(|source| {
                source.poll(&mut sink)?;
                Ok(source.pause())
            });
            if polled.is_some() {
                sink = backlog.deliver(&self.deliveries, sink);
                meter.update();
            }
            // That the other end is gone is the order to stop.
            let goes_on = polled.is_some_and(|pause| {
                let pause = pause.saturating_sub(begun.elapsed()).max(SHORTEST_PAUSE);
                self.stop.recv_timeout(pause) == Err(RecvTimeoutError::Timeout)
            });
            if !goes_on {
                if polled.is_some() {
                    self.call(|source| {
                        source.stop(&mut sink);
                        Ok(())
                    });
                }
                self.describe();
                let _ = self.deliveries.send(backlog.bound(sink));
                meter.update();
                return;
            }
        }
    }

    fn describe(&mut self) {
        if let Some(facts) = self.call(|source| Ok(source.describe())) {
            (self.describe)(facts);
        }
    }

    /// Calls the sampler; where it fails, that is noted, and `None` comes back.
    fn call<T>(&mut self, work: impl FnOnce(&mut dyn StackSource) -> Result<T, StackError>) -> Option<T> {
        let source = self.source.as_mut();
        let said = match catch_unwind(AssertUnwindSafe(|| work(source))) {
            Ok(Ok(value)) => return Some(value),
            Ok(Err(error)) => error.to_string(),
            Err(payload) => format!("the sampler of stacks panicked: {}", panic_message(payload.as_ref())),
        };
        self.shared.diagnostics.report("", format!("no stacks are sampled from here on: {said}"));
        self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(said);
        None
    }
}

/// What keeps deliveries that nobody takes within bounds.
#[derive(Default)]
struct Backlog {
    /// The first stack that was not delivered; no later one is.
    first_missing: Option<u64>,
}

impl Backlog {
    /// Gives the drain what there is. If the drain has too much to do, it stays here, but for what is too much.
    fn deliver(&mut self, deliveries: &Sender<StackSink>, sink: StackSink) -> StackSink {
        match deliveries.try_send(self.without_missing(sink)) {
            Ok(()) => StackSink::default(),
            Err(TrySendError::Full(back) | TrySendError::Disconnected(back)) => self.bound(back),
        }
    }

    fn bound(&mut self, sink: StackSink) -> StackSink {
        if sink.stacks.len() > MOST_WAITING {
            self.first_missing.get_or_insert(sink.stacks[MOST_WAITING].stack);
        }
        let mut sink = self.without_missing(sink);
        let excess = sink.samples.len().saturating_sub(MOST_WAITING);
        sink.lost += excess as u64;
        sink.samples.drain(..excess);
        let before = sink.events.len();
        if before > MOST_WAITING {
            forget_events(&mut sink.events);
        }
        sink.lost += (before - sink.events.len()) as u64;
        sink
    }

    fn without_missing(&self, mut sink: StackSink) -> StackSink {
        if let Some(missing) = self.first_missing {
            sink.stacks.retain(|stack| stack.stack < missing);
            let before = sink.samples.len();
            sink.samples.retain(|sample| sample.stack.is_none_or(|stack| stack < missing));
            sink.lost += (before - sink.samples.len()) as u64;
        }
        sink
    }
}

/// Leaves beginnings, ends and pauses of threads, and in place of everything between two of them one loss. Even of those, no
/// more are kept than may wait.
fn forget_events(events: &mut Vec<ThreadEvent>) {
    let mut lost = FxHashSet::default();
    let mut kept = Vec::new();
    // From the end, because a loss stands for what was before it.
    for mut event in events.drain(..).rev() {
        match event.change {
            ThreadChange::On | ThreadChange::Off { .. } | ThreadChange::PageFaults(_) | ThreadChange::Lost => {
                if !lost.insert(event.tid) {
                    continue;
                }
                event.change = ThreadChange::Lost;
            }
            _ => _ = lost.remove(&event.tid),
        }
        kept.push(event);
    }
    kept.truncate(MOST_WAITING / 2);
    kept.reverse();
    *events = kept;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StackRecord;
    use crate::stacks::{MonotonicNs, RawStackSample};
    use crate::vocabulary::ThreadState;
    use crossbeam_channel::bounded;

    fn event(tid: u64, time: u64, change: ThreadChange) -> ThreadEvent {
        ThreadEvent { tid, time: MonotonicNs(time), change }
    }

    fn sample(stack: Option<u64>) -> RawStackSample {
        let (time, state) = (MonotonicNs(1), ThreadState::Running);
        RawStackSample { tid: 1, time, state, weight_ns: 1, stack, kernel: None }
    }

    #[test]
    fn what_nobody_takes_is_bounded_and_what_is_lost_is_counted() {
        let (deliver, _deliveries) = bounded(0);
        let mut backlog = Backlog::default();
        let mut sink = StackSink::default();
        let mut stack = 0;
        let parts = 4;
        for _ in 0..parts {
            for i in 0..MOST_WAITING as u64 {
                stack += 1;
                sink.stacks.push(StackRecord::new(stack, None, 0, "a", 0));
                sink.samples.push(sample(Some(stack)));
                sink.events.push(event(1, i, ThreadChange::On));
            }
            sink = backlog.deliver(&deliver, sink);
            let most = [sink.samples.len(), sink.events.len(), sink.stacks.len()].into_iter().max();
            assert!(most <= Some(MOST_WAITING), "{most:?}");
        }
        let delivered = sink.stacks.last().map(|last| last.stack);
        assert_eq!(delivered, Some(MOST_WAITING as u64));
        assert!(sink.samples.iter().all(|sample| sample.stack <= delivered), "no sample of a stack that is missing");
        assert_eq!(sink.lost as usize + sink.samples.len() + sink.events.len(), 2 * parts * MOST_WAITING);
        assert_eq!(sink.events.last(), Some(&event(1, MOST_WAITING as u64 - 1, ThreadChange::Lost)));
    }

    #[test]
    fn of_events_that_are_forgotten_beginnings_ends_and_pauses_stay() {
        let (on, off) = (ThreadChange::On, ThreadChange::Off { preempted: false });
        let paused = ThreadChange::Paused;
        let mut events = vec![
            event(1, 1, on.clone()),
            event(2, 2, ThreadChange::PageFaults(7)),
            event(1, 3, off.clone()),
            event(1, 4, paused.clone()),
            event(1, 5, ThreadChange::Resumed),
            event(1, 6, on),
            event(2, 7, off),
        ];
        forget_events(&mut events);
        let lost = |tid, time| event(tid, time, ThreadChange::Lost);
        let expected = [lost(1, 3), event(1, 4, paused), event(1, 5, ThreadChange::Resumed), lost(1, 6), lost(2, 7)];
        assert_eq!(events, expected);
    }
}
