//! The one place that starts the profiler's own threads.

use std::io;
use std::thread::JoinHandle;

/// The remedy if the system refuses to start a thread.
pub(crate) const NO_THREAD: &str = "the system gives this process no more threads: raise the limit (ulimit -u, or the \
                                    container's limit of processes), or let the program start fewer";

/// Starts a thread called `name`.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    #[cfg(test)]
    if refused::this_one() {
        return Err(io::Error::from_raw_os_error(11));
    }
    std::thread::Builder::new().name(name.into()).spawn(work)
}

/// Lets a test make the system refuse to start threads.
#[cfg(test)]
pub(crate) mod refused {
    use std::cell::Cell;

    thread_local! {
        static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
    }

    /// The calling thread may start `n` more threads; `None` for any number.
    pub(crate) fn after(n: Option<usize>) {
        LEFT.set(n);
    }

    pub(super) fn this_one() -> bool {
        match LEFT.get() {
            Some(0) => true,
            Some(n) => {
                LEFT.set(Some(n - 1));
                false
            }
            None => false,
        }
    }
}
