//! Whether the driver is up, asked of a driver that the program has loaded.

use std::ffi::{c_int, c_void};

/// `CUDA_ERROR_NOT_INITIALIZED`.
const NOT_INITIALISED: c_int = 3;

/// Finds only what is loaded.
const LOADED: c_int = libc::RTLD_NOLOAD;

type DeviceCount = unsafe extern "C" fn(*mut c_int) -> c_int;

/// The driver, if the program has loaded it.
fn library() -> Option<*mut c_void> {
    // SAFETY: the name ends in a NUL. Nothing is loaded that is not there.
    let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | LOADED) };
    (!library.is_null()).then_some(library)
}

/// Whether the program has loaded one. Asks nothing of it.
pub(super) fn is_loaded() -> bool {
    library().is_some()
}

/// Whether `cuInit` has succeeded, or failed for good; `None` in a program that has no driver.
pub(super) fn is_up() -> Option<bool> {
    // SAFETY: the name ends in a NUL. The driver is never unloaded.
    let symbol: *mut c_void = unsafe { libc::dlsym(library()?, c"cuDeviceGetCount".as_ptr()) };
    if symbol.is_null() {
        return None;
    }
    // SAFETY: the type is that of `cuda.h`.
    let count: DeviceCount = unsafe { std::mem::transmute(symbol) };
    let mut devices = 0;
    // SAFETY: the pointer is valid for one `int`. Before `cuInit` has ended it fails without doing anything.
    Some(unsafe { count(&mut devices) } != NOT_INITIALISED)
}
