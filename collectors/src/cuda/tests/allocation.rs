//! The hot path allocates nothing once warm: counted.
#![allow(unsafe_code, reason = "a counting allocator must implement an unsafe trait")]

use super::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed on to the system allocator unchanged; counting touches a const-initialised
// thread-local only.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's promise about `layout` is the one System asks for.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
        // SAFETY: `ptr` came from `alloc` above, that is from System.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static GLOBAL: Counting = Counting;

#[test]
fn marking_allocates_nothing_once_warm() {
    let mut rig = Rig::new(2, 4_096);
    let mut lane = rig.lane(0);
    let mark_both = |rig: &Rig, lane: &mut Lane<Fake>| {
        for n in 0..600 {
            rig.fake.make_current(Some(context(n / 300)));
            assert!(lane.mark().is_ok());
        }
    };
    mark_both(&rig, &mut lane);
    rig.run_ms(10);
    let mut during = 0;
    for _ in 0..10 {
        let before = ALLOCATIONS.with(Cell::get);
        mark_both(&rig, &mut lane);
        during += ALLOCATIONS.with(Cell::get) - before;
        rig.run_ms(10);
    }
    assert_eq!(during, 0, "allocations in 6000 marks");
    // Refusals are no dearer.
    rig.fake.make_current(None);
    let before = ALLOCATIONS.with(Cell::get);
    assert_eq!(lane.mark(), Err(NoMark::NoContext));
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0);
    assert_eq!(rig.marks().len(), 6_600);
    // The counter works.
    let before = ALLOCATIONS.with(Cell::get);
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 2);
}
