//! `pthread_cancel`: a thread that is cancelled unwinds through what it is in, and Rust ends the program where that
//! meets one of its own frames. So a thread cannot be cancelled while it waits in here, and is after that.

use std::time::Duration;

/// Runs what may wait or do input and output; the calling thread is not cancelled meanwhile.
pub(super) fn uncancelled<T>(work: impl FnOnce() -> T) -> T {
    /// Also where `work` panics.
    struct Before(Option<i32>);
    impl Drop for Before {
        fn drop(&mut self) {
            if let Some(before) = self.0 {
                set(before);
            }
        }
    }
    let _before = Before(set(DISABLE));
    work()
}

/// `PTHREAD_CANCEL_DISABLE`.
const DISABLE: i32 = if cfg!(target_os = "linux") { 1 } else { 0 };

/// Sets whether this thread is cancelled; what was so before.
fn set(state: i32) -> Option<i32> {
    unsafe extern "C" {
        fn pthread_setcancelstate(state: i32, before: *mut i32) -> i32;
    }
    let mut before = 0;
    // SAFETY: the function is POSIX's; the pointer is valid for one `int`.
    (unsafe { pthread_setcancelstate(state, &mut before) } == 0).then_some(before)
}

/// Waits for so long. Takes no lock, allocates nothing, and is no place where a thread is cancelled.
pub(super) fn pause(time: Duration) {
    let time = libc::timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: time.subsec_nanos().into(),
    };
    let nothing = std::ptr::null_mut::<libc::timespec>();
    #[cfg(target_os = "linux")]
    // SAFETY: the pointer is valid for the call, and nobody wants to know what is left.
    unsafe {
        libc::syscall(libc::SYS_nanosleep, &raw const time, nothing);
    }
    #[cfg(not(target_os = "linux"))]
    // SAFETY: as above.
    unsafe {
        libc::nanosleep(&raw const time, nothing);
    }
}
