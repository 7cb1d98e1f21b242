//! Calls into the C library that neither source owns: the clock, a thread's number and priority, the loader's counters.
#![allow(unsafe_code, reason = "calls into the C library, and a file in memory")]
#![deny(unsafe_op_in_unsafe_fn)]

use candlescope_core::stacks::MonotonicNs;
use memmap2::Mmap;
use std::fs::File;

/// `CLOCK_MONOTONIC`.
pub(super) fn monotonic() -> MonotonicNs {
    MonotonicNs(clock(libc::CLOCK_MONOTONIC))
}

/// A clock's reading in nanoseconds. May be called by a signal's handler.
pub(super) fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for a `timespec`. On failure it stays zero.
    unsafe { libc::clock_gettime(id, &mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// Time between two ticks of the kernel, nanoseconds: timers on CPU clocks run out at ticks only.
pub(super) fn tick_ns() -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for a `timespec`. The coarse clock is set at each tick.
    let outcome = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &mut time) };
    let tick = u64::try_from(time.tv_nsec).ok()?;
    (outcome == 0 && tick > 0).then_some(tick)
}

/// What the system takes to provide a page that a program touches for the first time, nanoseconds of CPU time: the mean of
/// some hundred, of memory that is given back.
pub(super) fn page_fault_ns() -> Option<f64> {
    const PAGES: usize = 256;
    const BYTES: usize = 4096;
    let mut room = memmap2::MmapMut::map_anon(PAGES * BYTES).ok()?;
    let begun = clock(libc::CLOCK_THREAD_CPUTIME_ID);
    for page in room.chunks_mut(BYTES) {
        page[0] = 1;
    }
    let taken = clock(libc::CLOCK_THREAD_CPUTIME_ID).saturating_sub(begun);
    std::hint::black_box(&room);
    Some(taken as f64 / PAGES as f64)
}

/// The calling thread's number.
pub(super) fn thread_id() -> u32 {
    // SAFETY: takes nothing, and cannot fail.
    (unsafe { libc::syscall(libc::SYS_gettid) }) as u32
}

/// Lets every other thread go first. Best effort.
pub(super) fn be_nice() {
    // SAFETY: plain numbers; on Linux the priority is that of the thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, thread_id() as libc::id_t, 10) };
}

/// How many libraries the loader has loaded and unloaded so far: changes when the table of mappings did.
pub(super) fn loader_changes() -> (u64, u64) {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, data: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the loader passes a valid description, and `data` is the pair that is borrowed below.
        unsafe { *data.cast::<(u64, u64)>() = ((*info).dlpi_adds, (*info).dlpi_subs) };
        // The counters are the same with each library: no more calls.
        1
    }
    let mut counters = (0_u64, 0_u64);
    // SAFETY: `first` agrees with the type that the call expects, and `counters` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut counters).cast()) };
    counters
}

/// A file's bytes.
pub(super) fn map_file(file: &File) -> std::io::Result<Mmap> {
    // SAFETY: the program runs code from this file, so whoever truncates it breaks the program first. Bytes that change
    // under us are read as data that may be wrong anyhow.
    unsafe { Mmap::map(file) }
}
