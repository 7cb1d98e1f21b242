//! `_exit`, by which Python's worker processes end: nothing that was registered for the end of the process is called
//! then. Where `candlescope record` has this library loaded before all others (`LD_PRELOAD`), its `_exit` comes first,
//! and ends the session.
//!
//! It may be called anywhere: in a handler of a signal, after `vfork`. So the calling thread takes no lock and
//! allocates nothing: a thread that is there already does the work, and is waited for no longer than a limit.

use super::cancel::uncancelled;
use super::ender::finish;
use super::guard::guarded;
use std::ffi::c_int;

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
