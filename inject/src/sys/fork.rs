//! Forks. What is here belongs to the process that called it first; one that is forked from it leaves it alone.

use super::cancel::pause;
use super::guard::guarded;
use crate::forks;
use std::cell::Cell;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The process that called something here first.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// How many threads begin a recording now.
static STARTING: AtomicU32 = AtomicU32::new(0);

/// Whether a thread waits for the driver, to begin one then.
static IS_TO_START: AtomicBool = AtomicBool::new(false);

/// How long a fork waits for them.
const MOST: Duration = Duration::from_secs(2);

/// How long the end of the process waits for a recording that begins. That takes a second at most on a machine that is
/// not overloaded; it takes this long where the thread that begins it needs what the ending one holds, such as a lock of
/// the allocator that a signal found taken.
const MOST_AT_END: Duration = Duration::from_secs(5);

/// How long it waits for a thread that has yet to begin one. That thread looks for the driver every millisecond; where
/// there is none it never begins.
const MOST_BEFORE: Duration = Duration::from_millis(50);

thread_local! {
    static STARTS_HERE: Cell<bool> = const { Cell::new(false) };
}

/// Whether this process may be recorded: it was not forked from one that is. To be asked before anything else here that
/// could wait: what a thread of that one held at the fork, this one would wait for without end.
pub(super) fn is_own() -> bool {
    let this = std::process::id();
    let owner = OWNER.compare_exchange(0, this, Ordering::AcqRel, Ordering::Acquire);
    if owner.is_err_and(|owner| owner != this) || forks::forked() {
        forks::goes_unrecorded();
        return false;
    }
    static HANDLERS: Once = Once::new();
    HANDLERS.call_once(|| {
        share();
        // SAFETY: the functions do not unwind, and live as long as the process: the library is never unloaded, because
        // the driver and NVTX keep it. The child's sets a flag, and does nothing else.
        _ = unsafe { libc::pthread_atfork(Some(before), None, Some(in_child)) };
    });
    true
}

/// Whether this process is the one that called something here first. Takes no lock and changes nothing.
pub(super) fn owns() -> bool {
    OWNER.load(Ordering::Acquire) == std::process::id()
}

/// Runs what begins a recording. A fork on another thread waits for it: NVTX, which may be around this, has its own
/// state, and would have the child's ranges wait for the end of what no thread there does.
pub(super) fn starting<T>(work: impl FnOnce() -> T) -> T {
    /// Also where `work` panics.
    struct Done(bool);
    impl Drop for Done {
        fn drop(&mut self) {
            STARTING.fetch_sub(1, Ordering::SeqCst);
            STARTS_HERE.set(self.0);
        }
    }
    STARTING.fetch_add(1, Ordering::SeqCst);
    let _done = Done(STARTS_HERE.replace(true));
    work()
}

/// Says whether a recording is to begin once the driver is up.
pub(super) fn is_to_start(is_to: bool) {
    IS_TO_START.store(is_to, Ordering::SeqCst);
}

/// The process ends: waits until a recording that begins has begun, or nobody would end it. Whether there was one to wait
/// for. Takes no lock and allocates nothing.
pub(super) fn wait_for_start() -> bool {
    if !owns() || forks::forked() || STARTS_HERE.try_with(Cell::get).unwrap_or(true) {
        return false;
    }
    let begun = Instant::now();
    let mut waited = false;
    loop {
        let most = match (STARTING.load(Ordering::SeqCst) > 0, IS_TO_START.load(Ordering::SeqCst)) {
            (true, _) => MOST_AT_END,
            (_, true) => MOST_BEFORE,
            _ => return waited,
        };
        if begun.elapsed() >= most {
            return waited;
        }
        waited = true;
        pause(Duration::from_micros(500));
    }
}

extern "C" fn before() {
    guarded((), || {
        // What begins here may start programs itself.
        if STARTING.load(Ordering::SeqCst) == 0 || STARTS_HERE.try_with(Cell::get).unwrap_or(true) {
            return;
        }
        let begun = Instant::now();
        while STARTING.load(Ordering::SeqCst) > 0 && begun.elapsed() < MOST {
            pause(Duration::from_micros(500));
        }
        // NVTX notes that it is ready after that.
        pause(Duration::from_millis(2));
    });
}

extern "C" fn in_child() {
    forks::is_forked();
}

/// Has forked processes counted in memory that all of them share.
fn share() {
    let bytes = size_of::<AtomicU32>();
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a mapping of its own, of no file.
    let memory = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0) };
    if memory != libc::MAP_FAILED {
        // SAFETY: the mapping is aligned to a page, large enough, zero, and never taken away; a number that all
        // processes change as one.
        forks::count_in(unsafe { &*memory.cast::<AtomicU32>() });
    }
}
