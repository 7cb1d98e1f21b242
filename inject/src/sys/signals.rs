//! Signals are the program's: threads that begin here take none, or one that waits for a signal which all of its
//! threads block would not get it.

/// Those that a thread gets for what it does itself.
const OF_A_THREAD: [libc::c_int; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS, libc::SIGABRT];

/// Has `work` begin its threads without signals.
pub(super) fn left_to_the_program<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: a set of signals is plain data, and filled before it is read.
    let (mut blocked, mut before) = unsafe { std::mem::zeroed::<(libc::sigset_t, libc::sigset_t)>() };
    // SAFETY: the pointers are valid for the calls, and the signals exist.
    let is_set = unsafe {
        libc::sigfillset(&mut blocked);
        OF_A_THREAD.iter().for_each(|signal| _ = libc::sigdelset(&mut blocked, *signal));
        libc::pthread_sigmask(libc::SIG_SETMASK, &blocked, &mut before) == 0
    };
    let done = work();
    if is_set {
        // SAFETY: `before` was written by the call above.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(signal: libc::c_int) -> bool {
        // SAFETY: as above; no mask is set.
        unsafe {
            let mut now = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &mut now);
            libc::sigismember(&now, signal) == 1
        }
    }

    #[test]
    fn threads_that_begin_within_take_no_signals_and_the_caller_does() {
        let of_thread = left_to_the_program(|| {
            let thread = std::thread::spawn(|| [libc::SIGTERM, libc::SIGUSR1, libc::SIGSEGV].map(blocks));
            thread.join().expect("ends")
        });
        assert_eq!(of_thread, [true, true, false]);
        assert!(!blocks(libc::SIGTERM), "as before");
    }
}
