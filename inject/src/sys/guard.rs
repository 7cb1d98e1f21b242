//! What C libraries call does not unwind into them, and says nothing on the program's standard error.

use crate::recording::panicked;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs what a call of a C library does; a panic becomes `otherwise`, and the run counts it.
#[inline]
pub(super) fn guarded<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        // Dropping what somebody panicked with could panic.
        std::mem::forget(payload);
        panicked();
        otherwise
    })
}

/// Has panics of this library print nothing. The standard library of a library that the driver has loaded is its own:
/// it prints no others. In a program of Rust that links this one, it is the program's, and nothing changes.
pub(super) fn without_a_word() {
    #[cfg(target_os = "linux")]
    {
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| {
            if is_a_file_of_its_own() {
                std::panic::set_hook(Box::new(|_| ()));
            }
        });
    }
}

/// Whether this code is in another file than the program's.
#[cfg(target_os = "linux")]
fn is_a_file_of_its_own() -> bool {
    let begins_at = |address: usize| {
        // SAFETY: plain pointers and numbers, for which zero is a value.
        let mut file = unsafe { std::mem::zeroed::<libc::Dl_info>() };
        // SAFETY: the address is looked up and not followed; the pointer is valid for the call.
        let is_known = unsafe { libc::dladdr(std::ptr::without_provenance(address), &mut file) } != 0;
        is_known.then(|| file.dli_fbase.addr())
    };
    // SAFETY: reads a number that the system gave the process.
    let entry = usize::try_from(unsafe { libc::getauxval(libc::AT_ENTRY) });
    let program = entry.ok().and_then(begins_at);
    let own: fn() -> bool = is_a_file_of_its_own;
    program.zip(begins_at(own as usize)).is_some_and(|(program, own)| program != own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::panics;

    #[test]
    fn a_panic_goes_no_further_and_is_counted() {
        assert_eq!((guarded(7, || 8), panics()), (8, 0));
        assert_eq!(guarded(7, || panic!("of a callback")), 7);
        /// Panics where it is dropped.
        struct Payload;
        impl Drop for Payload {
            fn drop(&mut self) {
                panic!("of a payload");
            }
        }
        guarded((), || std::panic::panic_any(Payload));
        assert_eq!(panics(), 2);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_program_that_links_this_library_keeps_its_panic_messages() {
        assert!(!is_a_file_of_its_own());
    }
}
