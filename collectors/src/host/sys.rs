//! The one system call that `/proc` cannot replace: the context switches in `/proc` are those of the main thread only.
#![allow(unsafe_code, reason = "one call into the C library")]

use std::time::Duration;

/// Use of resources by all threads of this process so far, ended ones included.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usage {
    pub(super) user: Duration,
    pub(super) system: Duration,
    pub(super) voluntary_switches: u64,
    pub(super) involuntary_switches: u64,
    pub(super) minor_faults: u64,
    pub(super) major_faults: u64,
}

/// `getrusage(RUSAGE_SELF)`.
pub(super) fn usage() -> Option<Usage> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is valid for a `rusage`, which the call fills.
    let outcome = unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    if outcome != 0 {
        return None;
    }
    // SAFETY: zeroed is a valid `rusage`, which is all integers, and the call succeeded.
    let usage = unsafe { usage.assume_init() };
    let count = |n: libc::c_long| u64::try_from(n).unwrap_or(0);
    let time = |t: libc::timeval| Duration::from_secs(count(t.tv_sec)) + Duration::from_micros(count(t.tv_usec));
    Some(Usage {
        user: time(usage.ru_utime),
        system: time(usage.ru_stime),
        voluntary_switches: count(usage.ru_nvcsw),
        involuntary_switches: count(usage.ru_nivcsw),
        minor_faults: count(usage.ru_minflt),
        major_faults: count(usage.ru_majflt),
    })
}
