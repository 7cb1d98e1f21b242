//! The hot path allocates nothing once warm: counted.
#![allow(missing_docs, unsafe_code, reason = "a counting allocator must implement an unsafe trait")]
mod common;
mod scripted;
use candlescope_core::{Annotation, DType, annotate};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use tracing::trace_span;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed on to the system allocator unchanged; counting touches a const-initialised thread-local only.
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
fn enter_exit_and_annotate_allocate_nothing_once_warm() {
    let (batch, m) = common::record_default(|| {
        let spans: Vec<_> = (0..400).map(|_| trace_span!("linear", flops = tracing::field::Empty)).collect();
        let block = trace_span!("block");
        let forward = || {
            let _b = block.enter();
            for span in &spans {
                let _e = span.enter();
                annotate(Annotation::new().flops(10).bytes(20).dtype(DType::F32).shape(&[1, 2, 3]));
            }
        };
        forward();
        let before = ALLOCATIONS.with(Cell::get);
        for _ in 0..50 {
            forward();
        }
        let during = ALLOCATIONS.with(Cell::get) - before;
        assert_eq!(during, 0, "allocations in 50 forwards of 401 intervals");
    });
    assert_eq!(m.loss.emitted, 51 * 401);
    assert_eq!(batch.spans.len() as u64 + m.loss.ring_full, 51 * 401);
    // The counter works.
    let before = ALLOCATIONS.with(Cell::get);
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 2);
}

#[test]
fn marking_allocates_nothing_once_warm() {
    use candlescope_core::gpu::GpuTiming;
    use candlescope_core::{GpuTier, Session};
    let device = scripted::Device::new();
    for tier in [GpuTier::Blocks, GpuTier::All, GpuTier::Adaptive] {
        let builder = Session::builder().gpu(scripted::Clock(device.clone()), GpuTiming::tier(tier));
        let (batch, m) = common::record(builder, |_| {
            let block = trace_span!("block");
            let spans: Vec<_> = (0..20).map(|_| trace_span!("linear")).collect();
            let forward = || {
                let _b = block.enter();
                spans.iter().for_each(|span| span.in_scope(|| ()));
            };
            forward();
            let before = ALLOCATIONS.with(Cell::get);
            (0..50).for_each(|_| forward());
            assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0, "allocations in 50 forwards, {tier}");
        });
        assert_eq!(batch.spans.len(), 51 * 21);
        assert!(m.gpu.unwrap().marks["recorded"] > 50);
    }
}

#[test]
fn steps_that_are_left_out_allocate_nothing_once_warm() {
    use candlescope_core::Session;
    let device = scripted::Device::new();
    let builder = Session::builder().kernels(scripted::Recorder(device.clone()), None).overhead_probe(3);
    let (batch, _) = common::record(builder, |_| {
        let block = trace_span!("block");
        let spans: Vec<_> = (0..20).map(|_| trace_span!("linear")).collect();
        let forward = || {
            let _b = block.enter();
            spans.iter().for_each(|span| span.in_scope(|| ()));
        };
        (0..10).for_each(|_| forward());
        let before = ALLOCATIONS.with(Cell::get);
        (0..53).for_each(|_| forward());
        assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0, "allocations in 53 forwards, a third of them plain");
    });
    assert_eq!(batch.steps.len(), 3 + 40);
}

#[test]
fn making_plain_spans_allocates_nothing_once_warm() {
    const SPANS: usize = 3_000;
    let (batch, m) = common::record_default(|| {
        let step = trace_span!("step");
        let steps = |n: usize| {
            let _s = step.enter();
            for _ in 0..n {
                let _e = trace_span!("plain").entered();
            }
        };
        // Warms the registry's own pool.
        steps(SPANS);
        let before = ALLOCATIONS.with(Cell::get);
        steps(SPANS);
        assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0, "allocations in {SPANS} new spans");
    });
    assert_eq!(m.loss.emitted, 2 + 2 * SPANS as u64);
    assert!(batch.spans.iter().all(|s| matches!(&*s.path.name, "step" | "plain")));
}
