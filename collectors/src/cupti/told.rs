//! Recorded from outside, by a library of ours that the driver has loaded: who is told of calls while they are
//! followed, because such programs may mark no intervals, and their steps follow from what they call.

use super::lanes;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// A call of a thread, told on that thread. CUPTI may be in the middle of it: nothing may be called in CUDA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FollowedCall {
    /// A call begins that puts work on a device.
    Begins {
        /// Whether no interval is open around it, or none of a step in the window.
        outside: bool,
        /// What is launched, by a number: the same kernel or graph has the same one, and so has every call of another
        /// name.
        what: u64,
        /// Whether that is a graph.
        is_graph: bool,
    },
    /// A copy from the device to the host was put on a stream: the program wants a result.
    Fetched,
}

static TOLD: OnceLock<fn(FollowedCall)> = OnceLock::new();

/// This process is recorded by a library that the driver has loaded for it (`CUDA_INJECTION64_PATH`), so that this
/// variable is no sign of another profiler. Has `told` called at each call that puts work on a device, while kernels
/// are recorded. The first one in a process stays.
pub fn is_injected(told: fn(FollowedCall)) {
    let _ = TOLD.set(told);
}

/// The window in which calls are followed now, by a number that no other window has; `None` between windows, and until
/// recording has begun that was asked for.
pub fn window() -> Option<u64> {
    lanes::window().filter(|_| OPEN.load(Ordering::Relaxed))
}

static OPEN: AtomicBool = AtomicBool::new(false);

/// A window is open from here on, or no more.
pub(super) fn opens(is_open: bool) {
    OPEN.store(is_open, Ordering::Relaxed);
}

static ENDS: AtomicBool = AtomicBool::new(false);

/// The program ends: its driver is waited for no longer.
pub fn program_ends() {
    ENDS.store(true, Ordering::Relaxed);
    wake();
}

/// Who waits for the driver, and whether it is to look again at once.
static WAITS: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

/// Waits for so long, or until there is something new.
pub(super) fn wait(time: Duration) {
    let (is_new, changed) = &WAITS;
    let guard = is_new.lock().unwrap_or_else(PoisonError::into_inner);
    let mut guard =
        changed.wait_timeout_while(guard, time, |is_new| !*is_new).unwrap_or_else(PoisonError::into_inner).0;
    *guard = false;
}

/// There is something new for who waits.
pub(super) fn wake() {
    let (is_new, changed) = &WAITS;
    *is_new.lock().unwrap_or_else(PoisonError::into_inner) = true;
    changed.notify_all();
}

/// Whether it does.
pub(super) fn does_end() -> bool {
    ENDS.load(Ordering::Relaxed)
}

/// Who is told, if anybody.
#[inline]
pub(super) fn told() -> Option<fn(FollowedCall)> {
    TOLD.get().copied()
}
