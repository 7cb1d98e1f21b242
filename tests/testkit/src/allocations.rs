//! Counts a thread's calls of the allocator, in a test that has [`Counting`] for its `#[global_allocator]`.
#![allow(unsafe_code, reason = "a counting allocator must implement an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, and a count of its calls for each thread.
#[derive(Debug)]
pub struct Counting;

// SAFETY: every call is passed on to the system allocator unchanged; counting touches a const-initialised thread-local
// only.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = CALLS.try_with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's promise about `layout` is the one System asks for.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        let _ = CALLS.try_with(|n| n.set(n.get() + 1));
        // SAFETY: `ptr` came from `alloc` above, that is from System.
        unsafe { System.dealloc(ptr, layout) }
    }
}

/// Calls of the allocator while `f` runs, on this thread.
pub fn allocator_calls(f: impl FnOnce()) -> u64 {
    let before = CALLS.with(Cell::get);
    f();
    CALLS.with(Cell::get) - before
}

/// The counter counts: without this, a test that wants zero could not fail.
///
/// # Panics
/// If the test has another allocator.
pub fn assert_counting() {
    assert_eq!(allocator_calls(|| drop(std::hint::black_box(Box::new(1)))), 2);
}
