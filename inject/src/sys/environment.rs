//! The variables by which `candlescope record` has this library loaded. What a recorded program starts gets none of
//! them, unless it is to be recorded as well: in programs that cannot bear it a library that is loaded before all
//! others does harm (AddressSanitizer's, those of 32 bits or of another C library).
//!
//! They stay in a process that does not record yet: a shell in front of the program has to pass them on.

use crate::claim::{claimed, settings};
use candlescope_core::injected::{
    CLAIM, CUDA_LIBRARY as CUDA, MODEL, NVTX_LIBRARY as NVTX, SESSION, STEPS, WINDOWS, WORK,
};
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::{Mutex, MutexGuard, PoisonError};

const PRELOAD: &str = "LD_PRELOAD";

/// What was taken away, as `NAME=value`, for another program that this process puts in its place.
static TAKEN: Mutex<Vec<CString>> = Mutex::new(Vec::new());

fn lock() -> MutexGuard<'static, Vec<CString>> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the variables out of this process's environment, but for those that it needs itself: the driver's until it has
/// asked (`after_cu_init`), and NVTX's with the claim, by which children that load the library step aside. To be called
/// by the program's own thread.
pub(super) fn leave_to_children(after_cu_init: bool) {
    if !settings().is_of_one() {
        return;
    }
    let library = std::env::var_os(CUDA).or_else(|| std::env::var_os(NVTX));
    if let (Some(library), Some(all)) = (library, std::env::var_os(PRELOAD)) {
        take_preloaded(&all, &library);
    }
    [SESSION, STEPS, MODEL, WORK, WINDOWS].into_iter().for_each(take);
    if after_cu_init || !claimed() {
        take(CUDA);
    }
    // Nothing is recorded here: it needs none.
    if !claimed() {
        [NVTX, CLAIM].into_iter().for_each(take);
    }
}

fn keep(name: &str, value: &OsStr) {
    let text = [name.as_bytes(), b"=", value.as_bytes()].concat();
    let mut taken = lock();
    if let Ok(text) = CString::new(text)
        && !taken.contains(&text)
    {
        taken.push(text);
    }
}

fn take(name: &str) {
    if let Some(value) = std::env::var_os(name) {
        keep(name, &value);
        unset(name);
    }
}

fn unset(name: &str) {
    if let Ok(name) = CString::new(name) {
        // SAFETY: the name ends in a NUL. Other threads that read variables meanwhile find each of them before or
        // after.
        unsafe { libc::unsetenv(name.as_ptr()) };
    }
}

/// Leaves what others have preloaded.
fn take_preloaded(all: &OsStr, library: &OsStr) {
    let Some(rest) = without(all, library) else { return };
    keep(PRELOAD, all);
    if rest.is_empty() {
        return unset(PRELOAD);
    }
    if let (Ok(name), Ok(rest)) = (CString::new(PRELOAD), CString::new(rest.into_vec())) {
        // SAFETY: both end in a NUL, and the C library copies them.
        unsafe { libc::setenv(name.as_ptr(), rest.as_ptr(), 1) };
    }
}

/// The libraries of a list without this one; `None` if it is not among them.
fn without(all: &OsStr, library: &OsStr) -> Option<OsString> {
    let each = || all.as_bytes().split(|byte| matches!(byte, b':' | b' ')).filter(|one| !one.is_empty());
    let rest: Vec<&[u8]> = each().filter(|one| *one != library.as_bytes()).collect();
    (rest.len() < each().count()).then(|| OsString::from_vec(rest.join(&b':')))
}

/// Calls `each` with what was taken away, as `NAME=value`.
#[cfg(target_os = "linux")]
pub(super) fn taken<T>(each: impl FnOnce(&[CString]) -> T) -> T {
    each(&lock())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_preload_stays() {
        let of = |all: &str| {
            without(OsStr::new(all), OsStr::new("/a/ours.so")).map(|rest| rest.into_string().expect("text"))
        };
        assert_eq!(of("/a/ours.so"), Some(String::new()));
        assert_eq!(of("/a/ours.so:/b.so /c.so"), Some("/b.so:/c.so".into()));
        assert_eq!((of("/b.so"), of("")), (None, None));
    }
}
