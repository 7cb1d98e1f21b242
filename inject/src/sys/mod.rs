//! What others call in this library: the driver, NVTX, the end of the process. Nothing unwinds into them.
#![allow(unsafe_code, unreachable_pub, reason = "functions that C libraries find by their names and call")]

mod cancel;
mod driver;
#[cfg(target_os = "linux")]
mod ender;
mod environment;
#[cfg(target_os = "linux")]
mod exec;
mod fork;
mod guard;
#[cfg(target_os = "linux")]
mod interrupt;
mod nvtx;
#[cfg(target_os = "linux")]
mod signal_action;
mod signals;
#[cfg(target_os = "linux")]
mod underscore_exit;

use crate::claim::claimed;
use crate::program::at_threads_end;
use crate::ranges;
#[cfg(target_os = "linux")]
use crate::recording::ends_by_signals;
use crate::recording::{at_first_launch, at_launch, recording, started};
#[cfg(feature = "gpu")]
use crate::recording::{from_the_start, listen, records_kernels};
use cancel::uncancelled;
use fork::{is_own, is_to_start, starting, wait_for_start};
use guard::{guarded, without_a_word};
use std::ffi::c_int;
use std::sync::Once;
use std::time::{Duration, Instant};

/// How long `cuInit` is waited for.
const MOST: Duration = Duration::from_secs(60);

extern "C" fn at_exit() {
    let end = || {
        if let Some(recording) = started().filter(|recording| recording.is_of_this_process()) {
            ranges::leave(recording);
            recording.at_end();
            #[cfg(target_os = "linux")]
            ender::leave_to_the_signal();
        }
    };
    guarded((), || uncancelled(end));
}

extern "C" fn at_exit_early() {
    let end = || {
        if let Some(recording) = started().filter(|recording| recording.is_of_this_process()) {
            ranges::leave(recording);
            recording.end();
            #[cfg(target_os = "linux")]
            ender::leave_to_the_signal();
        }
    };
    guarded((), || uncancelled(end));
}

/// Ends the session before the driver ends, at the end of the process: what is registered last is called first, and the
/// driver has registered all that it does by the time of the first launch. CUPTI without a driver crashes.
fn end_early() {
    // SAFETY: the function does not unwind, and lives as long as the process, as `at_exit` does.
    _ = unsafe { libc::atexit(at_exit_early) };
}

/// As [`at_exit_early`], where the recording has yet to begin: a program may end before, where nothing holds it until
/// then, because another tool has CUPTI. Whatever has begun sooner has an end of its own.
extern "C" fn at_exit_starting() {
    if guarded(false, || uncancelled(wait_for_start)) {
        at_exit_early();
    }
}

/// Starts the recording, unless there is none, and has it end with the process.
fn begin() -> bool {
    starting(start)
}

fn start() -> bool {
    static REGISTER: Once = Once::new();
    let is_recording = signals::left_to_the_program(|| {
        #[cfg(feature = "gpu")]
        if claimed() {
            listen();
            load_first();
        }
        at_first_launch(end_early);
        at_launch(ranges::settle);
        at_threads_end(ranges::end_of_thread);
        recording().is_some()
    });
    if is_recording {
        // After the session has registered its own end, so that this comes before it.
        REGISTER.call_once(|| {
            // SAFETY: the function does not unwind, and lives as long as the process: the library is never unloaded,
            // because the driver and NVTX keep it, and so does the session's own registration.
            _ = unsafe { libc::atexit(at_exit) };
            #[cfg(target_os = "linux")]
            {
                at_quick_exit(at_exit_early);
                if signals::left_to_the_program(ender::watch) && ends_by_signals() {
                    interrupt::watch();
                }
            }
        });
    }
    is_recording
}

/// `quick_exit` calls nothing of what is registered for `exit`.
#[cfg(target_os = "linux")]
fn at_quick_exit(call: extern "C" fn()) {
    unsafe extern "C" {
        fn at_quick_exit(call: extern "C" fn()) -> c_int;
    }
    // SAFETY: the function is C's; what it is given does not unwind, and lives as long as the process, as `at_exit`
    // does.
    _ = unsafe { at_quick_exit(call) };
}

/// Loads CUPTI before anything of ours is registered for the end of the process: what is registered last is called
/// first, and a session that ends after CUPTI has gone waits for it in vain. Where there is none, the recorder says so.
#[cfg(feature = "gpu")]
fn load_first() {
    if driver::is_loaded() && records_kernels() {
        let _ = candlescope_collectors::cupti::probe();
    }
}

/// CUPTI is not needed.
fn without_recording() {
    #[cfg(feature = "gpu")]
    candlescope_collectors::cupti::leave_early();
}

/// What the driver calls in `cuInit`, on the thread that calls that. CUPTI attaches here, before the program can make a
/// context; it makes its first one when the recorder is ready. The driver itself may be asked for nothing but its
/// version: the program's `cuInit` fails else (580, on an H100). So the recording begins on a thread that waits for the
/// driver.
///
/// Returns 1, as it wants.
// SAFETY: the name is the one that the driver looks for in a library of its variable, and nobody else's.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the driver looks for this name")]
pub extern "C" fn InitializeInjection() -> c_int {
    without_a_word();
    let initialise = || {
        if !is_own() {
            return;
        }
        let claimed = claimed();
        environment::leave_to_children(true);
        if !claimed {
            return;
        }
        if !driver::is_loaded() {
            // This is not `cuInit`.
            if begin()
                && let Some(recording) = started()
            {
                recording.own.enter();
            }
            return;
        }
        #[cfg(feature = "gpu")]
        if records_kernels() {
            listen();
            // Where it does not attach, the recorder says why.
            let _ = signals::left_to_the_program(|| candlescope_collectors::cupti::attach_early(from_the_start()));
        }
        // SAFETY: the function does not unwind, and lives as long as the process, as `at_exit` does.
        _ = unsafe { libc::atexit(at_exit_starting) };
        #[cfg(target_os = "linux")]
        at_quick_exit(at_exit_starting);
        is_to_start(true);
        let wait = || {
            let begun = Instant::now();
            while driver::is_up() == Some(false) && begun.elapsed() < MOST {
                std::thread::sleep(Duration::from_millis(1));
            }
            let is_recording = guarded(false, begin);
            is_to_start(false);
            if !is_recording {
                without_recording();
            }
        };
        // Without a thread there is no recording, either.
        let spawn = || std::thread::Builder::new().name("cs-inject-start".into()).spawn(wait);
        if signals::left_to_the_program(spawn).is_err() {
            is_to_start(false);
            without_recording();
        }
    };
    guarded((), || uncancelled(initialise));
    1
}
