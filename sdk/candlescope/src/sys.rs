//! What the operating system calls: the end of the process, and signals.
#![allow(unsafe_code, reason = "functions of the C library, and handlers of signals")]

use signal_hook::consts::SIGTERM;
use std::panic::catch_unwind;
use std::sync::OnceLock;

/// The process that asked, and what it wants called. A forked child inherits what was registered.
static ASKED: OnceLock<(u32, fn())> = OnceLock::new();

extern "C" fn at_exit() {
    // Nothing may unwind into the C library.
    let _ = catch_unwind(|| {
        if let Some((process, f)) = ASKED.get()
            && *process == std::process::id()
        {
            f();
        }
    });
}

/// Has `f` called when the process exits, unless it was killed or aborts. The first one in a process stays.
pub(crate) fn call_at_exit(f: fn()) {
    ASKED.get_or_init(|| {
        // SAFETY: the function lives as long as the program, and does not unwind. If it cannot be registered, sessions
        // end where their scopes are dropped.
        unsafe { libc::atexit(at_exit) };
        (std::process::id(), f)
    });
}

/// Whether somebody handles SIGTERM already, or has it ignored.
pub(crate) fn has_term_handler() -> bool {
    term_handler().is_some_and(|handler| handler != libc::SIG_DFL)
}

/// The action for SIGTERM, if the system tells it.
pub(crate) fn term_handler() -> Option<libc::sighandler_t> {
    // SAFETY: all zeroes is a valid `sigaction`, and with no new action the call only fills it in.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(SIGTERM, std::ptr::null(), &mut now) == 0).then_some(now.sa_sigaction)
    }
}

/// Has a forked child end at SIGTERM as it would have without a handler: the thread that waits for the signal is its
/// parent's.
pub(crate) fn spare_forked_children() -> std::io::Result<()> {
    let ours = std::process::id();
    let action = move || {
        if std::process::id() != ours {
            let _ = signal_hook::low_level::emulate_default_handler(SIGTERM);
        }
    };
    // SAFETY: `getpid` and the emulation, which sets the default action and raises the signal, are safe in a handler.
    unsafe { signal_hook::low_level::register(SIGTERM, action) }.map(drop)
}

/// Has forked children close the sockets that listen for Prometheus: nobody there answers, and the address stays taken
/// for as long as one of them lives.
#[cfg(feature = "prometheus")]
pub(crate) fn close_sockets_in_forked_children() {
    extern "C" fn in_child() {
        for socket in candlescope_exporters::prometheus::listening() {
            // SAFETY: the child's own copy of the descriptor, which nothing there uses: its server's thread is the
            // parent's.
            unsafe { libc::close(socket) };
        }
    }
    static ONCE: std::sync::Once = std::sync::Once::new();
    // SAFETY: the function lives as long as the program, does not unwind, and is safe between `fork` and what follows.
    ONCE.call_once(|| _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) });
}
