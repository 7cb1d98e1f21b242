//! SIGINT (Ctrl-C) in a program that has the system's action for it: the run is written, and the process ends by the
//! signal then, as it would have. SIGTERM is the session's own business (`sigterm` in its options).
//!
//! A program with a handler keeps it: where it had one before the recording began, none is set here; one that it sets
//! later replaces ours, and ours does nothing where that calls it as the one before, as `signal-hook` and tokio do.

use super::ender::finish_and_end_by;
use super::guard::guarded;
use super::signal_action::{action, ends_by, set};
use std::ffi::c_int;

fn ours() -> libc::sighandler_t {
    let handler: extern "C" fn(c_int) = interrupted;
    handler as libc::sighandler_t
}

/// Handles the signal from now on, unless the program does, or has it ignored.
pub(super) fn watch() {
    if action().is_some_and(|now| now.sa_sigaction == libc::SIG_DFL) {
        set(ours());
    }
}

extern "C" fn interrupted(signal: c_int) {
    // SAFETY: the place of this thread's own error number, which is valid while the thread lives.
    let error = unsafe { *libc::__errno_location() };
    guarded((), || {
        // Somebody's handler has come in this one's place, and calls it: what becomes of the signal is for that to say.
        let is_called_by_another = action().is_none_or(|now| now.sa_sigaction != ours());
        if !is_called_by_another && !finish_and_end_by(signal) {
            // In a process that was forked from the recorded one: as without a handler.
            ends_by(signal);
        }
    });
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = error };
}

#[cfg(test)]
mod tests {
    use super::super::signal_action::SIGNAL;
    use super::*;

    /// A process has one action for a signal: all that is tried is tried in turn.
    #[test]
    fn a_handler_is_set_where_there_is_none_and_does_nothing_where_another_calls_it() {
        extern "C" fn of_the_program(signal: c_int) {
            // As `signal-hook` does.
            interrupted(signal);
        }
        let before = action().expect("it is known").sa_sigaction;
        let handler: extern "C" fn(c_int) = of_the_program;
        let theirs = handler as libc::sighandler_t;
        for (has, then) in [(libc::SIG_DFL, ours()), (libc::SIG_IGN, libc::SIG_IGN), (theirs, theirs)] {
            set(has);
            watch();
            assert_eq!(action().expect("it is known").sa_sigaction, then);
        }
        // SAFETY: sends a signal to this thread, for which there is a handler.
        unsafe { libc::raise(SIGNAL) };
        assert_eq!(action().expect("it is known").sa_sigaction, theirs, "and the process goes on");
        set(before);
    }
}
