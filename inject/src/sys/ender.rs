//! The ends of the process in which the thread that ends it may be anywhere: `_exit`, and a signal. A thread that is
//! there already ends the session then.

use super::cancel::pause;
use super::guard::guarded;
use crate::ranges;
use crate::recording::{MOST_OF_END, started};
use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

const LIVES: u8 = 0;
const ENDS: u8 = 1;
const DONE: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(LIVES);
static ENDER: OnceLock<Thread> = OnceLock::new();
/// The signal by which the process ends once the session has; 0 if it does not end by one.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// Makes the thread that ends the session; whether it could be made.
pub(super) fn watch() -> bool {
    let end = || {
        while STATE.load(Ordering::Acquire) == LIVES {
            std::thread::park();
        }
        guarded((), || started().into_iter().for_each(|recording| recording.end()));
        let signal = SIGNAL.load(Ordering::Acquire);
        if signal != 0 {
            // Does not return, unless the system refuses.
            super::signal_action::ends_by(signal);
        }
        STATE.store(DONE, Ordering::Release);
    };
    // Without it, what was not written yet is lost at `_exit`, as it is without LD_PRELOAD.
    match std::thread::Builder::new().name("cs-inject-end".into()).spawn(end) {
        Ok(thread) => ENDER.set(thread.thread().clone()).is_ok(),
        Err(_) => false,
    }
}

/// Ends the session of this process, if it has one that goes on. Whoever comes while another thread does waits as well:
/// the process ends with the first that goes on.
///
/// The calling thread takes no lock and allocates nothing.
pub(super) fn finish() {
    let _ = super::fork::wait_for_start();
    let Some(recording) = started().filter(|recording| recording.is_of_this_process()) else { return };
    let Some(ender) = ENDER.get() else { return };
    if STATE.compare_exchange(LIVES, ENDS, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        ranges::leave_at_once(recording);
        ender.unpark();
    }
    wait();
}

/// Has the session of this process end, and the process by this signal after that; whether it does. The program goes on
/// meanwhile: what the calling thread holds, such as a lock of the driver's, the end may want. To be called in a handler.
pub(super) fn finish_and_end_by(signal: c_int) -> bool {
    if !started().is_some_and(|recording| recording.is_of_this_process()) {
        return false;
    }
    let Some(ender) = ENDER.get() else { return false };
    SIGNAL.store(signal, Ordering::Release);
    if STATE.compare_exchange(LIVES, ENDS, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        ender.unpark();
    }
    true
}

/// The program exits. If a signal ends it already, that is its end: a program whose `sleep` the signal has ended would
/// exit with another status.
pub(super) fn leave_to_the_signal() {
    if SIGNAL.load(Ordering::Acquire) != 0 {
        wait();
    }
}

fn wait() {
    let begun = Instant::now();
    while STATE.load(Ordering::Acquire) != DONE && begun.elapsed() < MOST_OF_END {
        pause(Duration::from_micros(200));
    }
}
