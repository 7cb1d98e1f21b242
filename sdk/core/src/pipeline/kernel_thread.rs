//! The thread of the recorder of kernels: it switches the recorder on and off and fetches what it recorded, because
//! each of these may take long.

use super::attribute::{Ask, Delivery};
use crate::clock::HostClock;
use crate::diagnostics::panic_message;
use crate::gpu::{Activity, ActivityError, ActivitySink};
use crate::shared::Shared;
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

/// Receives the recorder after `prepare`, to ask what it knows about the machine.
pub(crate) type Describe = Box<dyn FnOnce(&mut dyn Activity) + Send>;

pub(crate) struct KernelThread {
    pub(crate) activity: Box<dyn Activity>,
    pub(crate) shared: Arc<Shared>,
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
        let mut on = false;
        let mut fetched = Instant::now();
        if self.call(|activity, _| activity.prepare()).is_some() {
            let describe = std::mem::replace(&mut self.describe, Box::new(|_| {}));
            let activity = &mut self.activity;
            let _ = catch_unwind(AssertUnwindSafe(|| describe(activity.as_mut())));
        }
        loop {
            let shared = self.shared.clone();
            let Some(window) = shared.control.kernels() else { return };
            match self.asks.recv_timeout(if window.is_active() { BUSY } else { IDLE }) {
                Ok(Ask::Collect(ticket)) => self.deliver(ticket, true),
                Ok(Ask::CloseWindow) => {
                    if on && shared.control.stop_recorder() {
                        self.call(|activity, _| activity.disable());
                        on = false;
                        // What came to light by switching off.
                        self.deliver(0, true);
                        self.call(|activity, _| activity.release());
                    }
                }
                Ok(Ask::Stop(ticket)) => {
                    if on {
                        self.call(|activity, _| activity.disable());
                    }
                    self.deliver(ticket, true);
                    self.call(|activity, _| activity.release());
                    meter.update();
                    return;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    if on {
                        self.call(|activity, _| activity.disable());
                    }
                    return;
                }
            }
            if window.is_wanted() {
                on = on || (self.activity.wait().is_zero() && self.call(|activity, _| activity.enable()).is_some());
                if on {
                    window.ready();
                }
            }
            if on && fetched.elapsed() >= FETCH_EVERY {
                self.deliver(0, false);
                fetched = Instant::now();
            }
            meter.update();
        }
    }

    fn deliver(&mut self, ticket: u64, all: bool) {
        let mut sink = ActivitySink::default();
        let failed = self.error.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if !failed {
            self.call(|activity, host| activity.collect(all, &|| host.now(), &mut sink));
        }
        // Sent even if that failed: whoever waits for the ticket must not wait forever.
        let _ = self.deliveries.send(Delivery { ticket, sink });
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
