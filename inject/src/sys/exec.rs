//! `execve` and its kin: the process goes on with another program in place of its own, and nothing that was registered
//! for its end is called. Where `candlescope record` has this library loaded before all others (`LD_PRELOAD`), these
//! come first: what was recorded so far is made durable, and the other program gets the variables that were taken away,
//! by which it is recorded, too, as a run of its own. Where it fails, the program goes on and so does its recording.
//!
//! They may be called between `fork` and the end of a child, and after `vfork`: in every process but the one that
//! records they do what the C library's do, and nothing else. `execl` and its kin take as many arguments as they like,
//! which Rust cannot: they are not here, nor is what starts another process (`posix_spawn`, `system`).

use super::cancel::uncancelled;
use super::environment::taken;
use super::fork::owns;
use super::guard::guarded;
use crate::ranges;
use crate::recording::started;
use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicPtr, Ordering};

type Texts = *const *const c_char;
type Execvpe = unsafe extern "C" fn(*const c_char, Texts, Texts) -> c_int;

unsafe extern "C" {
    #[link_name = "environ"]
    static ENVIRONMENT: Texts;
}

/// The C library's `execvpe`, which looks the program up. Found when the library is loaded: a forked child could wait
/// for the loader without end.
static EXECVPE: AtomicPtr<std::ffi::c_void> = AtomicPtr::new(std::ptr::null_mut());

extern "C" fn find() {
    // SAFETY: the name ends in a NUL.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"execvpe".as_ptr()) };
    EXECVPE.store(found, Ordering::Relaxed);
}

// SAFETY: the loader calls what stands in this section when it has loaded the library, before the program begins.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = find;

/// The variables of another program in this process's place; `given` where nothing was taken away.
struct Variables {
    given: Texts,
    /// These, and what was taken away.
    whole: Vec<*const c_char>,
}

impl Variables {
    /// # Safety
    /// `given` is null or an array of texts that ends with a null pointer, and stays as it is.
    unsafe fn of(given: Texts) -> Self {
        let mut variables = Self { given, whole: Vec::new() };
        // SAFETY: by the caller.
        let make = || taken(|taken| unsafe { with(given, taken) });
        if owns() {
            variables.whole = guarded(Vec::new(), make);
        }
        variables
    }

    fn pointer(&self) -> Texts {
        if self.whole.is_empty() { self.given } else { self.whole.as_ptr() }
    }
}

/// These variables with those that were taken away in the place of any of their names, and a null pointer. Nothing where
/// nothing was. What was taken away is kept for as long as the process lives.
///
/// # Safety
/// `given` is null or an array of texts that ends with a null pointer.
unsafe fn with(given: Texts, taken: &[std::ffi::CString]) -> Vec<*const c_char> {
    let name = |text: &CStr| text.to_bytes().split(|byte| *byte == b'=').next().map(<[u8]>::to_vec);
    let names: Vec<_> = taken.iter().map(|text| name(text)).collect();
    let mut whole = Vec::new();
    let mut at = given;
    // SAFETY: by the caller; nothing is read behind the null pointer.
    while !taken.is_empty() && !at.is_null() && !unsafe { *at }.is_null() {
        // SAFETY: as above: it is a text.
        let text = unsafe { CStr::from_ptr(*at) };
        if !names.contains(&name(text)) {
            whole.push(text.as_ptr());
        }
        // SAFETY: the null pointer is still to come.
        at = unsafe { at.add(1) };
    }
    if !taken.is_empty() {
        whole.extend(taken.iter().map(|text| text.as_ptr()));
        whole.push(std::ptr::null());
    }
    whole
}

/// What this process has recorded is made durable, if it records.
fn make_durable() {
    if owns() {
        let flush = || {
            if let Some(recording) = started().filter(|recording| recording.is_of_this_process()) {
                ranges::leave(recording);
                recording.flush();
            }
        };
        guarded((), || uncancelled(flush));
        // A signal that ends the process already is not for what takes its place.
        super::ender::leave_to_the_signal();
    }
}

/// Whether this file can be run, as far as can be told: programs try all folders of `PATH`.
///
/// # Safety
/// `path` is null or a text.
unsafe fn may_run(path: *const c_char) -> bool {
    // SAFETY: by the caller.
    !path.is_null() && unsafe { libc::access(path, libc::X_OK) } == 0
}

/// The C library's, after what was recorded is durable.
///
/// # Safety
/// As `execve`.
// SAFETY: the name and the type are the C library's; whoever calls it gets what it does there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(path: *const c_char, arguments: Texts, variables: Texts) -> c_int {
    // SAFETY: by the caller.
    let variables = unsafe { Variables::of(variables) };
    // SAFETY: by the caller.
    if unsafe { may_run(path) } {
        make_durable();
    }
    // SAFETY: what the C library does: the pointers are the caller's, or valid until the call returns.
    unsafe { libc::syscall(libc::SYS_execve, path, arguments, variables.pointer()) as c_int }
}

/// The same.
///
/// # Safety
/// As `execv`.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, arguments: Texts) -> c_int {
    // SAFETY: by the caller; the variables are the process's own.
    unsafe { execve(path, arguments, ENVIRONMENT) }
}

/// The same, of a program that is looked up.
///
/// # Safety
/// As `execvpe`.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(file: *const c_char, arguments: Texts, variables: Texts) -> c_int {
    let found = EXECVPE.load(Ordering::Relaxed);
    if found.is_null() {
        // SAFETY: the place is this thread's own.
        unsafe { *libc::__errno_location() = libc::ENOSYS };
        return -1;
    }
    // SAFETY: by the caller.
    let variables = unsafe { Variables::of(variables) };
    make_durable();
    // SAFETY: the type is the C library's; the pointers are the caller's, or valid until the call returns.
    unsafe { std::mem::transmute::<*mut std::ffi::c_void, Execvpe>(found)(file, arguments, variables.pointer()) }
}

/// The same, with the process's own variables.
///
/// # Safety
/// As `execvp`.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, arguments: Texts) -> c_int {
    // SAFETY: by the caller; the variables are the process's own.
    unsafe { execvpe(file, arguments, ENVIRONMENT) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    #[test]
    fn another_program_gets_what_was_taken_away_in_place_of_what_it_was_given() {
        let text = |text: &str| CString::new(text).expect("no NUL");
        let texts = [text("A=1"), text("LD_PRELOAD=/b.so"), text("AB=2")];
        let given: Vec<_> = texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect();
        let of = |given: Texts, taken: &[CString]| {
            // SAFETY: the array ends with a null pointer.
            let whole = unsafe { with(given, taken) };
            // SAFETY: all but the last one are texts.
            let read = |text: &*const c_char| unsafe { CStr::from_ptr(*text) }.to_str().expect("text").to_string();
            assert!(whole.last().is_none_or(|last| last.is_null()));
            whole.iter().take(whole.len().saturating_sub(1)).map(read).collect::<Vec<_>>()
        };
        let taken = [text("LD_PRELOAD=/a.so:/b.so"), text("B=3")];
        assert_eq!(of(given.as_ptr(), &taken), ["A=1", "AB=2", "LD_PRELOAD=/a.so:/b.so", "B=3"]);
        assert_eq!(of(std::ptr::null(), &taken), ["LD_PRELOAD=/a.so:/b.so", "B=3"]);
        assert!(of(given.as_ptr(), &[]).is_empty(), "as it was given");
    }
}
