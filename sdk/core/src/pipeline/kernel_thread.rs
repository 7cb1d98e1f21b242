//! The thread of the recorder of kernels: it switches the recorder on and off and fetches what it recorded, because
//! each of these may take long.

use super::attribute::{Ask, Delivery};
use crate::HostNs;
use crate::clock::HostClock;
use crate::diagnostics::panic_message;
use crate::gpu::{Activity, ActivityError, ActivitySink, UndeliveredWork};
use crate::shared::SessionState;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Pause between checks while a window is about to begin or is open.
const BUSY: Duration = Duration::from_millis(1);
/// Pause between checks otherwise.
const IDLE: Duration = Duration::from_millis(20);
/// Time between fetches inside a long window, so that buffers do not pile up.
const FETCH_EVERY: Duration = Duration::from_millis(500);

/// How long a delivery waits for records of work that was launched before it was asked for. Only then is the recorder
/// made to hand over everything, which loses the records of what still runs: a device that others use too may be far
/// behind.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same at the end of a window and of the session, when all steps that are waited for have come.
const PATIENCE_AT_END: Duration = Duration::from_millis(500);
/// The same where the recorder does not know what was launched.
const PATIENCE_UNKNOWN: Duration = Duration::from_millis(20);
/// Longest pause between two tries. Each takes locks that launches need.
const TRY_AGAIN: Duration = Duration::from_millis(16);

/// A delivery that was asked for and is not complete.
#[derive(Debug, Clone, Copy)]
struct AwaitedDelivery {
    ticket: u64,
    /// What was launched before this is to be in it.
    asked: HostNs,
    since: Instant,
    next: Instant,
    pause: Duration,
}

impl AwaitedDelivery {
    fn new(ticket: u64, asked: HostNs) -> Self {
        let now = Instant::now();
        Self { ticket, asked, since: now, next: now, pause: BUSY }
    }

    /// Whether there is no need, or no point any more, to wait for further records.
    fn is_over(&self, undelivered: UndeliveredWork, patience: Duration) -> Option<WaitEnd> {
        let waited = self.since.elapsed();
        match undelivered {
            UndeliveredWork::Nothing => Some(WaitEnd::Complete),
            UndeliveredWork::Since(at) if at > self.asked => Some(WaitEnd::Complete),
            UndeliveredWork::Since(_) => (waited >= patience).then_some(WaitEnd::GivenUp),
            UndeliveredWork::Unknown => (waited >= patience.min(PATIENCE_UNKNOWN)).then_some(WaitEnd::GivenUp),
        }
    }

    fn later(&mut self) {
        self.next = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(TRY_AGAIN);
    }
}

/// How waiting for records ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitEnd {
    /// All records of what was launched before they were asked for have come.
    Complete,
    /// Some may be missing.
    GivenUp,
}

/// Receives the recorder after `prepare`, to ask what it knows about the machine.
pub(crate) type Describe = Box<dyn FnOnce(&mut dyn Activity) + Send>;

pub(crate) struct KernelThread {
    pub(crate) activity: Box<dyn Activity>,
    pub(crate) shared: Arc<SessionState>,
    pub(crate) asks: Receiver<Ask>,
    pub(crate) deliveries: Sender<Delivery>,
    pub(crate) host: HostClock,
    pub(crate) error: Arc<Mutex<Option<String>>>,
    pub(crate) background: Arc<super::BackgroundCpu>,
    pub(crate) describe: Describe,
}

impl KernelThread {
    pub(crate) fn start(self) -> std::io::Result<JoinHandle<()>> {
        super::threads::spawn("cs-kernels", move || self.run())
    }

    fn run(mut self) {
        super::prepare_background_thread(&self.shared.diagnostics);
        let meter = self.background.meter();
        let (mut on, mut recording) = (false, false);
        let mut awaited: Option<AwaitedDelivery> = None;
        let mut fetched = Instant::now();
        // When the last window began.
        let mut began = None;
        if self.call(|activity, _| activity.prepare()).is_some() {
            let describe = std::mem::replace(&mut self.describe, Box::new(|_| {}));
            let activity = &mut self.activity;
            let _ = catch_unwind(AssertUnwindSafe(|| describe(activity.as_mut())));
        }
        loop {
            let shared = self.shared.clone();
            let Some(window) = shared.control.kernels() else { return };
            // A window may have to wait for long, for its own time or for the recorder's.
            let rests = window.rests(began, Instant::now()) || (!on && !self.activity.wait().is_zero());
            let busy = (window.is_active() && !rests) || awaited.is_some();
            match self.asks.recv_timeout(if busy { BUSY } else { IDLE }) {
                // Whoever asks again has no need of the answer before.
                Ok(Ask::Collect(ticket)) => awaited = Some(AwaitedDelivery::new(ticket, self.host.now())),
                Ok(Ask::Pause) => {
                    if recording && shared.control.pause_recorder() {
                        self.call(|activity, _| activity.disable());
                        recording = false;
                    }
                }
                Ok(Ask::CloseWindow) => {
                    if on && shared.control.stop_recorder() {
                        if recording {
                            self.call(|activity, _| activity.disable());
                        }
                        (on, recording) = (false, false);
                        // What came to light by switching off.
                        self.deliver_last(awaited.take().map_or(0, |awaited| awaited.ticket));
                        self.call(|activity, _| activity.release());
                    }
                }
                Ok(Ask::Stop(ticket)) => {
                    if recording {
                        self.call(|activity, _| activity.disable());
                    }
                    self.deliver_last(ticket);
                    self.call(|activity, _| activity.release());
                    meter.update();
                    return;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    if recording {
                        self.call(|activity, _| activity.disable());
                    }
                    return;
                }
            }
            if window.is_wanted() && !window.rests(began, Instant::now()) {
                recording = recording
                    || (self.activity.wait().is_zero() && self.call(|activity, _| activity.enable()).is_some());
                if recording {
                    on = true;
                    began = Some(Instant::now());
                    window.ready();
                }
            }
            if let Some(waiting) = awaited.as_mut().filter(|waiting| waiting.next <= Instant::now()) {
                waiting.later();
                let waiting = *waiting;
                if self.answer(&waiting, PATIENCE) {
                    awaited = None;
                }
                fetched = Instant::now();
            }
            if on && fetched.elapsed() >= FETCH_EVERY {
                self.deliver(0, false);
                fetched = Instant::now();
            }
            meter.update();
        }
    }

    fn deliver(&mut self, ticket: u64, all: bool) {
        let sink = self.collect(all).unwrap_or_default();
        // Sent even if that failed: whoever waits for the ticket must not wait forever.
        let _ = self.deliveries.send(Delivery { ticket, sink });
    }

    /// What the recorder hands over now; `None` if it has failed.
    fn collect(&mut self, all: bool) -> Option<ActivitySink> {
        if self.error.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            return None;
        }
        let mut sink = ActivitySink::default();
        let outcome = self.call(|activity, host| activity.collect(all, &|| host.now(), &mut sink));
        // What was delivered before a failure counts.
        if outcome.is_none() {
            let _ = self.deliveries.send(Delivery { ticket: 0, sink });
            return None;
        }
        Some(sink)
    }

    /// Hands on what the recorder has. Returns whether that answers what was asked: everything has come, or nothing
    /// more is waited for.
    fn answer(&mut self, awaited: &AwaitedDelivery, patience: Duration) -> bool {
        let Some(sink) = self.collect(false) else {
            self.deliver(awaited.ticket, true);
            return true;
        };
        let over = awaited.is_over(sink.undelivered, patience);
        let ticket = if over == Some(WaitEnd::Complete) { awaited.ticket } else { 0 };
        let _ = self.deliveries.send(Delivery { ticket, sink });
        if over == Some(WaitEnd::GivenUp) {
            self.deliver(awaited.ticket, true);
        }
        over.is_some()
    }

    /// Recording is off: hands on what is still to come, and has the recorder give back its memory.
    fn deliver_last(&mut self, ticket: u64) {
        let mut awaited = AwaitedDelivery::new(0, self.host.now());
        while !self.answer(&awaited, PATIENCE_AT_END) {
            std::thread::sleep(awaited.pause);
            awaited.later();
        }
        self.deliver(ticket, true);
    }

    /// Calls the recorder. A failure or panic ends the recording of kernels for this session, with the reason.
    fn call(&mut self, f: impl FnOnce(&mut dyn Activity, &HostClock) -> Result<(), ActivityError>) -> Option<()> {
        let (activity, host) = (self.activity.as_mut(), &self.host);
        let message = match catch_unwind(AssertUnwindSafe(|| f(activity, host))) {
            Ok(Ok(())) => return Some(()),
            Ok(Err(error)) => error.to_string(),
            Err(payload) => {
                format!("the recorder of kernels panicked and is not asked again: {}", panic_message(payload.as_ref()))
            }
        };
        self.shared.control.recorder_failed();
        let mut error = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        if error.is_none() {
            self.shared.diagnostics.report(self.activity.name(), message.as_str());
            *error = Some(message);
        }
        None
    }
}
