//! The signal handler. What it calls is safe to call in one: it writes to descriptors, from memory that was set aside
//! before. `backtrace` and `backtrace_symbols_fd` of glibc do not allocate once they have been called, which
//! [`install`] does.
#![allow(unsafe_code, reason = "a signal handler")]

use std::ffi::{CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

unsafe extern "C" {
    fn backtrace(buffer: *mut *mut c_void, size: c_int) -> c_int;
    fn backtrace_symbols_fd(buffer: *const *mut c_void, size: c_int, fd: c_int);
}

const SIGNALS: [(c_int, &str); 5] = [
    (libc::SIGSEGV, "SIGSEGV (it touched memory that is not its own)"),
    (libc::SIGBUS, "SIGBUS (memory that cannot be reached; a mapped file may have become shorter)"),
    (libc::SIGILL, "SIGILL (an instruction that this processor does not know)"),
    (libc::SIGFPE, "SIGFPE (an impossible calculation)"),
    (libc::SIGABRT, "SIGABRT (a library ended the process)"),
];

/// Frames of a stack that are shown.
const DEPTH: usize = 64;

/// Bytes of the main thread's own stack for the handler: a stack may be what is used up. Other threads have one from
/// Rust's library.
const STACK: usize = 64 << 10;

/// What the command does, as a pointer and a length.
static PHASE: AtomicPtr<u8> = AtomicPtr::new(null_mut());
static PHASE_LENGTH: AtomicUsize = AtomicUsize::new(0);
/// The run's directory and a file in it for the report, each a leaked C string.
static RUN: AtomicPtr<c_char> = AtomicPtr::new(null_mut());
static FILE: AtomicPtr<c_char> = AtomicPtr::new(null_mut());
/// A crash is being reported.
static REPORTING: AtomicBool = AtomicBool::new(false);
/// What handled each of [`SIGNALS`] before, leaked; null before `install`.
static BEFORE: [AtomicPtr<libc::sigaction>; SIGNALS.len()] = [const { AtomicPtr::new(null_mut()) }; SIGNALS.len()];

pub(super) fn doing(phase: &'static str) {
    // A handler that comes between the two sees a shorter text.
    PHASE_LENGTH.store(0, Ordering::SeqCst);
    PHASE.store(phase.as_ptr().cast_mut(), Ordering::SeqCst);
    PHASE_LENGTH.store(phase.len(), Ordering::SeqCst);
}

pub(super) fn writing(run: &Path) {
    let text = |path: &Path| CString::new(path.as_os_str().as_bytes()).map_or(null_mut(), CString::into_raw);
    // Leaked: a command writes few runs, and a handler may be reading.
    FILE.store(text(&run.join(candlescope_core::beside_run::CRASH)), Ordering::SeqCst);
    RUN.store(text(run), Ordering::SeqCst);
}

pub(super) fn install() {
    let mut frames = [null_mut(); 2];
    // SAFETY: the buffer has room for two. The first call loads the unwinder, which must not happen in the handler.
    unsafe { backtrace(frames.as_mut_ptr(), 2) };
    let stack = Box::leak(vec![0_u8; STACK].into_boxed_slice());
    let stack = libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: STACK };
    // SAFETY: the memory is this long and is never freed.
    unsafe { libc::sigaltstack(&raw const stack, null_mut()) };
    for ((signal, _), before) in SIGNALS.iter().zip(&BEFORE) {
        // SAFETY: all zeros is a valid `sigaction`, and so is what is set here; the handler has the type that
        // `SA_SIGINFO` asks for.
        unsafe {
            let old = Box::into_raw(Box::new(std::mem::zeroed::<libc::sigaction>()));
            let mut new = std::mem::zeroed::<libc::sigaction>();
            new.sa_sigaction = crashed as *const () as usize;
            new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            if libc::sigaction(*signal, &raw const new, old) == 0 {
                before.store(old, Ordering::SeqCst);
            }
        }
    }
}

/// Writes as much as it can of a text to a descriptor.
fn put(to: c_int, text: &[u8]) {
    let mut rest = text;
    while !rest.is_empty() {
        // SAFETY: the memory is readable for this length.
        let written = unsafe { libc::write(to, rest.as_ptr().cast(), rest.len()) };
        match usize::try_from(written) {
            Ok(n) if n > 0 => rest = rest.get(n..).unwrap_or_default(),
            _ => return,
        }
    }
}

/// Writes a number without allocating.
fn put_number(to: c_int, mut number: usize, base: usize) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b"0123456789abcdef"[number % base];
        number /= base;
        if number == 0 || at == 0 {
            break;
        }
    }
    put(to, &digits[at..]);
}

/// Writes a C string, if there is one, without what would steer a terminal.
fn put_c(to: c_int, text: *const c_char) {
    let mut at = text.cast::<u8>();
    if at.is_null() {
        return;
    }
    // SAFETY: it ends with a zero byte, and every byte before that is read once.
    while let byte @ 1.. = unsafe { *at } {
        put(to, &[if byte < b' ' || byte == 127 { b'?' } else { byte }]);
        // SAFETY: not the zero byte yet, so another one follows.
        at = unsafe { at.add(1) };
    }
}

fn describe(to: c_int, signal: c_int, address: usize, counter: usize) {
    let name = SIGNALS.iter().find(|(number, _)| *number == signal).map_or("a signal", |(_, name)| name);
    put(to, b"\ncandlescope ");
    put(to, env!("CARGO_PKG_VERSION").as_bytes());
    put(to, b" crashed: ");
    put(to, name.as_bytes());
    put(to, b", address 0x");
    put_number(to, address, 16);
    let mut thread = [0 as c_char; 17];
    // SAFETY: the name takes at most sixteen bytes with its end.
    unsafe { libc::prctl(libc::PR_GET_NAME, thread.as_mut_ptr(), 0, 0, 0) };
    put(to, b"\nthread: ");
    put_c(to, thread.as_ptr());
    let (phase, length) = (PHASE.load(Ordering::SeqCst), PHASE_LENGTH.load(Ordering::SeqCst));
    if !phase.is_null() && length > 0 {
        put(to, b"\ndoing: ");
        // SAFETY: a string of the program itself; the length was set after the pointer, and is never longer than it.
        put(to, unsafe { std::slice::from_raw_parts(phase, length) });
    }
    let run = RUN.load(Ordering::SeqCst);
    if !run.is_null() {
        put(to, b"\nrun: ");
        put_c(to, run);
        put(to, b" (what was written until now can be read: candlescope report)");
    }
    put(to, b"\nat 0x");
    put_number(to, counter, 16);
    put(to, b"; stack, innermost first (addr2line -Cfie PROGRAM ADDRESS names lines):\n");
}

fn stack(to: c_int) {
    let mut frames = [null_mut::<c_void>(); DEPTH];
    // SAFETY: the buffer has room for that many, and as many as are said to be written are shown.
    unsafe {
        let n = backtrace(frames.as_mut_ptr(), DEPTH as c_int);
        backtrace_symbols_fd(frames.as_ptr(), n, to);
    }
}

/// Address of the instruction that was interrupted, if this processor's layout is known.
#[cfg(target_arch = "x86_64")]
fn program_counter(context: *const c_void) -> usize {
    // SAFETY: the kernel gives a `ucontext_t` to handlers with `SA_SIGINFO`.
    unsafe { context.cast::<libc::ucontext_t>().as_ref() }
        .map_or(0, |context| context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize)
}

#[cfg(not(target_arch = "x86_64"))]
fn program_counter(_: *const c_void) -> usize {
    0
}

unsafe extern "C" fn crashed(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: only handed back to `errno` below.
    let error = unsafe { *libc::__errno_location() };
    if !REPORTING.swap(true, Ordering::SeqCst) {
        // SAFETY: the kernel's own, for this handler; the address is there for signals of the processor.
        let address = unsafe { info.as_ref() }.map_or(0, |info| unsafe { info.si_addr() } as usize);
        let counter = program_counter(context);
        describe(libc::STDERR_FILENO, signal, address, counter);
        let file = FILE.load(Ordering::SeqCst);
        let to_file = if file.is_null() {
            -1
        } else {
            let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_CLOEXEC;
            // SAFETY: a C string that is never freed.
            unsafe { libc::open(file, flags, 0o644) }
        };
        if to_file >= 0 {
            describe(to_file, signal, address, counter);
        }
        // Last, because it is the only part that can fail: the frames are walked with what the crash may have damaged.
        if counter != 0 {
            let at = [with_exposed_provenance_mut::<c_void>(counter)];
            // SAFETY: one address, which is looked up and not followed.
            unsafe { backtrace_symbols_fd(at.as_ptr(), 1, libc::STDERR_FILENO) };
            if to_file >= 0 {
                // SAFETY: as above.
                unsafe { backtrace_symbols_fd(at.as_ptr(), 1, to_file) };
            }
        }
        stack(libc::STDERR_FILENO);
        if to_file >= 0 {
            stack(to_file);
        }
    }
    // A signal that was sent is sent again, and ends the process. Otherwise the instruction is tried again, and what
    // handled the signal before has its turn: Rust's own handler, which knows an overflow of the stack.
    // SAFETY: the kernel's own, for this handler.
    let was_sent = unsafe { info.as_ref() }.is_none_or(|info| info.si_code <= 0);
    let before = SIGNALS.iter().position(|(number, _)| *number == signal).map(|at| BEFORE[at].load(Ordering::SeqCst));
    // SAFETY: what the system gave for this signal, never freed.
    unsafe {
        match before.filter(|before| !before.is_null() && !was_sent) {
            Some(before) => libc::sigaction(signal, before, null_mut()),
            None => libc::signal(signal, libc::SIG_DFL) as c_int,
        };
        if was_sent {
            libc::raise(signal);
        }
        *libc::__errno_location() = error;
    }
}
