//! The thread of the sampler of stacks: it reads what was sampled and gives it to the drain.

use crate::diagnostics::panic_message;
use crate::shared::Shared;
use crate::stacks::{StackError, StackSink, StackSource};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError};
use serde_json::Value;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two deliveries there is at least this, so that a sampler that cannot keep up leaves the program some time.
const SHORTEST_PAUSE: Duration = Duration::from_micros(2_500);

/// Samples that wait for the drain.
///
/// Overload policy: beyond this they are dropped and counted.
const MOST_SAMPLES: usize = 1 << 18;

/// Receives the facts about the sampler once it has started.
pub(crate) type Describe = Box<dyn FnOnce(BTreeMap<String, Value>) + Send>;

pub(crate) struct StackThread {
    pub(crate) source: Box<dyn StackSource>,
    pub(crate) shared: Arc<Shared>,
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
        if let Some(facts) = self.call(|source| Ok(source.describe())) {
            let describe = std::mem::replace(&mut self.describe, Box::new(|_| {}));
            describe(facts);
        }
        let mut sink = StackSink::default();
        loop {
            let begun = Instant::now();
            let polled = self.call(|source| {
                source.poll(&mut sink)?;
                Ok(source.pause())
            });
            let Some(pause) = polled else {
                let _ = self.deliveries.send(sink);
                return;
            };
            sink = self.deliver(sink);
            meter.update();
            match self.stop.recv_timeout(pause.saturating_sub(begun.elapsed()).max(SHORTEST_PAUSE)) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => {
                    self.call(|source| {
                        source.stop(&mut sink);
                        Ok(())
                    });
                    let _ = self.deliveries.send(sink);
                    meter.update();
                    return;
                }
            }
        }
    }

    /// Gives the drain what there is. If the drain has too much to do, it stays here.
    fn deliver(&self, mut sink: StackSink) -> StackSink {
        match self.deliveries.try_send(sink) {
            Ok(()) => return StackSink::default(),
            Err(TrySendError::Full(back) | TrySendError::Disconnected(back)) => sink = back,
        }
        let excess = sink.samples.len().saturating_sub(MOST_SAMPLES);
        sink.lost += excess as u64;
        sink.samples.drain(..excess);
        sink
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
