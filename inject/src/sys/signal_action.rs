//! The action for SIGINT, and the end of the process by it.

use std::ffi::c_int;

pub(super) const SIGNAL: c_int = libc::SIGINT;

/// The action for the signal.
pub(super) fn action() -> Option<libc::sigaction> {
    // SAFETY: all zeroes is a valid `sigaction`, and with no new action the call only fills it in.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(SIGNAL, std::ptr::null(), &mut now) == 0).then_some(now)
    }
}

pub(super) fn set(handler: libc::sighandler_t) {
    // SAFETY: all zeroes is a valid `sigaction`: no flags, and an empty set of signals. The handler is the default
    // action or `interrupted`, which lives as long as the process.
    unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = handler;
        // The program goes on for a moment: what it reads goes on as well.
        new.sa_flags = libc::SA_RESTART;
        libc::sigaction(SIGNAL, &new, std::ptr::null_mut());
    }
}

/// Ends the process by this signal, also where this thread takes none, and in a handler of the signal.
pub(super) fn ends_by(signal: c_int) {
    set(libc::SIG_DFL);
    // SAFETY: a set of signals is plain data, and filled before it is used; the pointers are valid for the calls.
    unsafe {
        libc::raise(signal);
        let mut only: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut only);
        libc::sigaddset(&mut only, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &only, std::ptr::null_mut());
    }
}
