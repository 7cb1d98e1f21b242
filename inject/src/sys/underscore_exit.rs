//! `_exit`, by which Python's worker processes end: nothing that was registered for the end of the process is called
//! then. Where `candlescope record` has this library loaded before all others (`LD_PRELOAD`), its `_exit` comes first,
//! and ends the session.
//!
//! It may be called anywhere: in a handler of a signal, after `vfork`. So the calling thread takes no lock and
//! allocates nothing: a thread that is there already does the work, and is waited for no longer than a limit.

use super::cancel::{pause, uncancelled};
use super::guard::guarded;
use crate::recording::{MOST_OF_END, started};
use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

const LIVES: u8 = 0;
const ENDS: u8 = 1;
const DONE: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(LIVES);
static ENDER: OnceLock<Thread> = OnceLock::new();

/// Makes the thread that ends the session.
pub(super) fn watch() {
    let end = || {
        while STATE.load(Ordering::Acquire) == LIVES {
            std::thread::park();
        }
        guarded((), || started().into_iter().for_each(|recording| recording.end()));
        STATE.store(DONE, Ordering::Release);
    };
    // Without it, what was not written yet is lost at `_exit`, as it is without LD_PRELOAD.
    if let Ok(thread) = std::thread::Builder::new().name("cs-inject-end".into()).spawn(end) {
        let _ = ENDER.set(thread.thread().clone());
    }
}

/// Ends the session of this process, if it has one that goes on. Whoever comes while another thread does waits as well:
/// the process ends with the first that goes on.
fn finish() {
    let Some(recording) = started().filter(|recording| recording.is_of_this_process()) else { return };
    let Some(ender) = ENDER.get() else { return };
    if STATE.compare_exchange(LIVES, ENDS, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        recording.own.leave();
        ender.unpark();
    }
    let begun = Instant::now();
    while STATE.load(Ordering::Acquire) != DONE && begun.elapsed() < MOST_OF_END {
        pause(Duration::from_micros(200));
    }
}

/// The C library's, after the session has ended.
// SAFETY: the name and the type are the C library's; whoever calls it gets what it does there.
#[unsafe(no_mangle)]
pub extern "C" fn _exit(status: c_int) -> ! {
    guarded((), || uncancelled(finish));
    loop {
        // SAFETY: ends the process; it has no other effect.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

/// Another name for it.
// SAFETY: as above.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the C library's name")]
pub extern "C" fn _Exit(status: c_int) -> ! {
    _exit(status)
}
