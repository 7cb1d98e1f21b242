//! The functions that CUPTI calls, on threads of the application and on its own.
//!
//! They must never unwind into C: each stops panics with `catch_unwind`, which costs nothing if nothing panics.

use super::super::buffers::{Buffer, FilledBuffer, Pool};
use super::super::calls::Domain;
use super::super::calls::{OnContexts, OnGraphs, fetches, handle_at, is_on_memory, on_contexts, on_graphs};
use super::super::detach::{Link, State};
use super::super::in_flight::{CountedCall, NestedCalls};
use super::super::lanes;
use super::super::told::{FollowedCall, told};
use crate::driver_gate::GATE;
use std::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

pub(super) type BufferRequestFn = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
pub(super) type BufferCompleteFn = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);
pub(super) type CallbackFn = unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void);

/// All buffers. CUPTI has one pair of callbacks for the process, and they get no data of ours.
pub(in super::super) static POOL: Pool = Pool::new();

/// Whether CUPTI is in the process, which has one CUPTI.
pub(in super::super) static LINK: Link = Link::new();

/// The current subscription, or null.
pub(super) static SUBSCRIBER: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Whether that was made [before there was a recorder](super::Cupti::subscribe_early), which is to take it over.
pub(super) static IS_EARLY: AtomicBool = AtomicBool::new(false);

/// The functions that callbacks call. CUPTI hands this to each.
#[derive(Debug)]
pub(super) struct CallbackFunctions {
    pub(super) unsubscribe: unsafe extern "C" fn(*mut c_void) -> u32,
    pub(super) finalize: unsafe extern "C" fn() -> u32,
    /// CUPTI's number of a node; libraries before CUDA 11.1 lack it.
    pub(super) graph_node_id: Option<unsafe extern "C" fn(*mut c_void, *mut u64) -> u32>,
}

/// CUPTI wants a buffer. Without one it drops records and counts them.
pub(super) unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, most_records: *mut usize) {
    let words = catch_unwind(|| POOL.take()).ok().flatten().map(Buffer::into_words);
    let (pointer, bytes) = match words {
        Some(words) => {
            let bytes = size_of_val(&*words);
            (Box::into_raw(words).cast::<u8>(), bytes)
        }
        None => (null_mut(), 0),
    };
    // SAFETY: CUPTI's three pointers are valid for one value each. Zero records means as many as fit.
    unsafe {
        *buffer = pointer;
        *size = bytes;
        *most_records = 0;
    }
}

/// CUPTI is done with a buffer. It is put aside for the thread that reads. Another client's, which comes where our
/// callbacks took the place of its own, is not ours to free.
pub(super) unsafe extern "C" fn completed(_: *mut c_void, _: u32, buffer: *mut u8, size: usize, valid: usize) {
    if buffer.is_null() || !catch_unwind(|| POOL.is_lent(buffer.addr())).unwrap_or(false) {
        return;
    }
    let words = std::ptr::slice_from_raw_parts_mut(buffer.cast::<u64>(), size / 8);
    // SAFETY: `requested` gave it out and it has not come back; CUPTI tells its size: a boxed slice of that many words.
    let words = unsafe { Box::from_raw(words) };
    // A panic here could only come from a failed allocation; the buffer is lost then, and the program goes on.
    let put = || {
        let is_late = LINK.state() == State::Detaching;
        POOL.put(FilledBuffer { buffer: Buffer::from_words(words), valid, is_late });
    };
    let _ = catch_unwind(AssertUnwindSafe(put));
}

/// The whole of `CUpti_CallbackData`, which has not grown since CUDA 4.1. Offsets from `cupti_callbacks.h` of CUDA
/// 13.0.
#[repr(C)]
struct CallbackData {
    site: u32,
    function: *const c_char,
    parameters: *const c_void,
    result: *mut c_void,
    symbol: *const c_char,
    context: *mut c_void,
    context_uid: u32,
    /// A word that is shared by the enter and exit callbacks of one call.
    shared: *mut u64,
    correlation: u32,
}

const _: () = {
    assert!(std::mem::offset_of!(CallbackData, site) == 0);
    assert!(std::mem::offset_of!(CallbackData, context_uid) == 48);
    assert!(std::mem::offset_of!(CallbackData, shared) == 56);
    assert!(std::mem::offset_of!(CallbackData, correlation) == 64);
    assert!(size_of::<CallbackData>() == 72);
};

const ENTER: u32 = 0;

/// `CUPTI_CB_DOMAIN_RESOURCE`, and its events of nodes that are made and copied.
pub(in super::super) const RESOURCE: u32 = 3;
pub(in super::super) const NODE_CREATED: u32 = 13;
pub(in super::super) const NODE_CLONED: u32 = 20;

/// `CUpti_ResourceData`.
#[repr(C)]
struct ResourceData {
    context: *mut c_void,
    handle: *mut c_void,
    descriptor: *const c_void,
}

/// The beginning of `CUpti_GraphData`.
#[repr(C)]
struct GraphData {
    graph: *mut c_void,
    original_graph: *mut c_void,
    node: *mut c_void,
    original_node: *mut c_void,
    kind: u32,
}

const _: () = {
    assert!(std::mem::offset_of!(ResourceData, descriptor) == 16);
    assert!(std::mem::offset_of!(GraphData, node) == 16);
    assert!(std::mem::offset_of!(GraphData, original_node) == 24);
    assert!(std::mem::offset_of!(GraphData, kind) == 32);
};

/// `CU_GRAPH_NODE_TYPE_MEMSET`: kernels, copies and memsets are the types up to it. Others run nothing that has a
/// record.
const LAST_WITH_RECORDS: u32 = 2;

/// A node of a graph was made, or copied as a graph is that is to be launched. Not on the hot path.
unsafe fn on_node(inside: *mut c_void, cbid: u32, data: *const c_void) {
    LINK.sees_graph();
    // SAFETY: the data is what this domain promises, valid during this call.
    let graph = unsafe { (*data.cast::<ResourceData>()).descriptor.cast::<GraphData>().as_ref() };
    // SAFETY: `inside` is null or lives as long as the process.
    let number = unsafe { inside.cast::<CallbackFunctions>().as_ref() }.and_then(|inside| inside.graph_node_id);
    let (Some(graph), Some(number)) = (graph.filter(|graph| graph.kind <= LAST_WITH_RECORDS), number) else { return };
    let number = |node: *mut c_void| {
        let mut id = 0;
        // SAFETY: the node exists during this call; the pointer is valid for one `uint64_t`.
        let known = !node.is_null() && unsafe { number(node, &mut id) } == 0;
        known.then_some(id)
    };
    let is_copy = cbid == NODE_CLONED;
    let original = if is_copy { number(graph.original_node) } else { None };
    if let Some(node) = number(graph.node).filter(|_| original.is_some() == is_copy) {
        let _ = catch_unwind(|| lanes::node_made(node, original));
    }
}

/// A followed call begins or ends on this thread, or a graph's node is made. `inside` is [`CallbackFunctions`] that
/// lives as long as the process, or null.
pub(super) unsafe extern "C" fn called(inside: *mut c_void, domain: u32, cbid: u32, data: *const c_void) {
    if data.is_null() {
        return;
    }
    if domain == RESOURCE {
        if matches!(cbid, NODE_CREATED | NODE_CLONED) {
            // SAFETY: by this function's own contract.
            unsafe { on_node(inside, cbid, data) };
        }
        return;
    }
    let Some(domain) = Domain::of(domain) else { return };
    // SAFETY: in these two domains the data is a `CUpti_CallbackData`, valid during this call.
    let data = unsafe { &*data.cast::<CallbackData>() };
    if let Some(what) = on_contexts(domain, cbid) {
        // It may wait, which takes the system's clock.
        let _ = catch_unwind(|| {
            let around = lanes::on_contexts(NestedCalls::NONE);
            if data.site == ENTER {
                let began = LINK.context_call_begins(around.outermost(), what == OnContexts::Ends);
                lanes::on_contexts(around.begins(began));
            } else {
                let (left, ended) = around.ends();
                lanes::on_contexts(left);
                LINK.context_call_ends(ended);
            }
        });
        return;
    }
    if let Some(what) = on_graphs(domain, cbid) {
        // Before the call: what it makes is CUPTI's, too.
        LINK.sees_graph();
        if what == OnGraphs::Makes {
            return;
        }
    }
    LINK.in_context(data.context_uid);
    let mut now = lanes::clock().raw();
    if is_on_memory(domain, cbid) {
        let around = lanes::copying(NestedCalls::NONE);
        if data.site == ENTER {
            lanes::copying(around.begins(LINK.copy_begins(around.outermost())));
            // It may have waited until records of copies were turned on or off: what became of them then is its own.
            now = lanes::clock().raw();
        } else {
            let (left, ended) = around.ends();
            lanes::copying(left);
            LINK.copy_ends(ended);
        }
    }
    if data.site == ENTER {
        LINK.calls();
        if LINK.is_requested() {
            let around = lanes::inside(CountedCall::NONE);
            lanes::inside(LINK.call_begins(around));
        }
        if !data.shared.is_null() {
            // Zero: not to be recorded.
            let start = if lanes::is_recording() { now } else { 0 };
            // SAFETY: where it is not null it is the call's own word, for our use.
            unsafe { *data.shared = start };
        }
        if let Some(told) = told().filter(|_| lanes::is_recording()) {
            // SAFETY: the parameters are those of this call.
            let what = unsafe { launched(domain, cbid, data.parameters) };
            let is_graph = on_graphs(domain, cbid).is_some();
            let _ = catch_unwind(|| told(FollowedCall::Begins { outside: lanes::is_outside(), what, is_graph }));
        }
        return;
    }
    if LINK.is_requested() {
        let alone = LINK.call_ends(lanes::inside(CountedCall::NONE));
        // SAFETY: by this function's own contract.
        let leave = unsafe { inside.cast::<CallbackFunctions>().as_ref() };
        if let Some(leave) = leave.filter(|_| alone && lanes::has_been_attached(now)) {
            detach(leave);
        }
        // Nothing is recorded any more.
        return;
    }
    // SAFETY: as above. If recording began inside this call, the word was not written by us.
    let start = (!data.shared.is_null()).then(|| unsafe { *data.shared });
    let Some(start) = lanes::recorded(start, now) else { return };
    let correlation = data.correlation;
    let _ = catch_unwind(|| lanes::launched(domain, cbid, correlation, start, now));
    if let Some(told) = told().filter(|_| fetches(domain, cbid)) {
        let _ = catch_unwind(|| told(FollowedCall::Fetched));
    }
}

/// What a call launches, by the handle of the kernel or graph in its parameters (`generated_cuda_meta.h`); of other
/// calls, such as copies, their number.
///
/// # Safety
/// `parameters` is null or points to the parameters of that call.
#[inline]
unsafe fn launched(domain: Domain, cbid: u32, parameters: *const c_void) -> u64 {
    let at = match (domain, handle_at(cbid)) {
        (Domain::Driver, Some(at)) if !parameters.is_null() => at,
        _ => return u64::from(cbid),
    };
    // SAFETY: by the caller; these parameters begin with that many pointers.
    unsafe { *parameters.cast::<*const c_void>().add(at) }.addr() as u64
}

/// Detaches CUPTI from the process, once, at the end of a call, as NVIDIA requires.
#[cold]
fn detach(leave: &CallbackFunctions) {
    // A thread of ours that is inside the driver is inside CUPTI's part of it, too: the next launch will do it.
    if LINK.is_held() {
        return;
    }
    let Some(_closed) = GATE.close().filter(|_| !LINK.is_held()) else { return };
    LINK.detach(|| {
        let subscriber = SUBSCRIBER.swap(null_mut(), Ordering::AcqRel);
        // First, because calling it afterwards would attach CUPTI again.
        // SAFETY: the handle is the subscription's that this callback belongs to.
        unsafe { (leave.unsubscribe)(subscriber) };
        // SAFETY: at the end of a call of this thread, and no thread of ours is inside CUPTI: from the request to the
        // end of this, the recorder's stays out. Buffers come back through `completed`.
        unsafe { (leave.finalize)() }
    });
}

#[cfg(test)]
mod tests {
    use super::super::super::lanes::tests_own;
    use super::*;

    #[test]
    fn cupti_gets_buffers_and_gives_them_back() {
        POOL.configure(1 << 12, 2, 1);
        let ask = || {
            let (mut buffer, mut size, mut most) = (null_mut(), 7, 7);
            // SAFETY: three valid pointers.
            unsafe { requested(&mut buffer, &mut size, &mut most) };
            (buffer, size, most)
        };
        let (first, size, most) = ask();
        assert_eq!((first.is_null(), first.align_offset(8), size, most), (false, 0, 1 << 12, 0));
        let (second, ..) = ask();
        let (third, none, _) = ask();
        assert_eq!((second.is_null(), third.is_null(), none), (false, true, 0), "two may exist");
        // SAFETY: written within the buffer, given back once each with its size.
        unsafe {
            first.write(42);
            completed(null_mut(), 0, first, size, 16);
            completed(null_mut(), 0, second, size, 0);
            completed(null_mut(), 0, null_mut(), 0, 0);
        }
        let mut others = [7u64; 8];
        // SAFETY: nothing is done with a buffer that was not given out, and nothing with one that has come back.
        unsafe {
            completed(null_mut(), 0, others.as_mut_ptr().cast(), 64, 64);
            completed(null_mut(), 0, second, size, 0);
        }
        assert_eq!(others, [7; 8]);
        let filled = POOL.drain();
        assert_eq!(filled.iter().map(|f| f.valid).collect::<Vec<_>>(), [16, 0]);
        assert_eq!(filled[0].buffer.words()[0].to_ne_bytes()[0], 42);
        filled.into_iter().for_each(|f| POOL.recycle(f));
    }

    #[test]
    fn kernels_and_graphs_are_told_apart_by_their_handles() {
        let words: [*const c_void; 2] = [0x1234 as *const c_void, 0x5678 as *const c_void];
        // SAFETY: the parameters begin with two pointers.
        let of = |domain, cbid| unsafe { launched(domain, cbid, words.as_ptr().cast()) };
        assert_eq!((of(Domain::Driver, 307), of(Domain::Driver, 652)), (0x1234, 0x5678));
        assert_eq!((of(Domain::Driver, 514), of(Domain::Driver, 279), of(Domain::Runtime, 307)), (0x1234, 279, 307));
        // SAFETY: nothing is read of parameters that are not there.
        assert_eq!(unsafe { launched(Domain::Driver, 307, std::ptr::null()) }, 307);
    }

    #[test]
    fn a_call_is_recorded_when_it_ends() {
        let _only = tests_own();
        std::thread::scope(|scope| scope.spawn(one_call).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }

    fn one_call() {
        lanes::configure(16);
        lanes::begin();
        let mut shared = 0u64;
        let mut call = |site, correlation, domain, seen: bool| {
            let data = CallbackData {
                site,
                function: null_mut(),
                parameters: null_mut(),
                result: null_mut(),
                symbol: null_mut(),
                context: null_mut(),
                context_uid: 1,
                shared: if seen { &mut shared } else { null_mut() },
                correlation,
            };
            // SAFETY: the data is what the domains promise.
            unsafe { called(null_mut(), domain, 307, (&raw const data).cast()) };
        };
        lanes::push(candlescope_core::SpanId(6));
        call(0, 11, 1, true);
        call(1, 11, 1, true);
        call(1, 12, 2, false);
        call(1, 13, 3, true);
        // One that goes on when recording ends, and one that begins after that.
        call(0, 15, 1, true);
        lanes::end();
        call(1, 15, 1, true);
        call(0, 16, 1, true);
        call(1, 16, 1, true);
        call(1, 17, 1, false);
        lanes::begin();
        lanes::pop();
        shared = 1;
        let data = CallbackData {
            site: 1,
            function: null_mut(),
            parameters: null_mut(),
            result: null_mut(),
            symbol: null_mut(),
            context: null_mut(),
            context_uid: 1,
            shared: &mut shared,
            correlation: 14,
        };
        // SAFETY: as above; and no data at all is ignored.
        unsafe {
            called(null_mut(), 1, 307, (&raw const data).cast());
            called(null_mut(), 1, 307, null_mut());
        }
        let mut seen = Vec::new();
        lanes::drain(|launch| seen.push(launch));
        let told: Vec<_> = seen.iter().map(|l| (l.correlation, l.domain, l.span, l.start != 0)).collect();
        let expected = [
            (11, Domain::Driver, 6, true),
            (12, Domain::Runtime, 6, false),
            (15, Domain::Driver, 6, true),
            (14, Domain::Driver, 0, false),
        ];
        assert_eq!(told, expected, "a beginning before the window is not known, other domains are not ours");
        assert!(seen[0].start <= seen[0].end);
    }

    /// What the beginning or the end of a call tells.
    fn data_at(site: u32) -> CallbackData {
        CallbackData {
            site,
            function: null_mut(),
            parameters: null_mut(),
            result: null_mut(),
            symbol: null_mut(),
            context: null_mut(),
            context_uid: 1,
            shared: null_mut(),
            correlation: 1,
        }
    }

    /// A callback at the beginning or the end of a call of the driver.
    fn call_of_driver(site: u32, cbid: u32) {
        let data = data_at(site);
        // SAFETY: the data is what the domain promises.
        unsafe { called(null_mut(), Domain::Driver as u32, cbid, (&raw const data).cast()) };
    }

    /// `cuCtxCreate` that calls `cuDevicePrimaryCtxRetain`, and a copy inside a copy.
    #[test]
    fn a_call_goes_on_until_its_own_end_whatever_is_called_inside_it() {
        let _only = tests_own();
        LINK.contexts().attached();
        let under_way = || LINK.contexts().under_way();
        let before = under_way();
        for (site, cbid, expected) in [(0, 235, 1), (0, 386, 1), (1, 386, 1), (0, 386, 1), (1, 386, 1), (1, 235, 0)] {
            call_of_driver(site, cbid);
            assert_eq!(under_way() - before, expected, "{cbid}, {}", if site == ENTER { "begins" } else { "ends" });
        }
        call_of_driver(1, 235);
        assert_eq!(under_way(), before, "its beginning was not seen");

        lanes::end();
        assert!(LINK.attached());
        for (site, cbid, expected) in [(0, 278, 1), (0, 279, 1), (1, 279, 1), (1, 278, 0)] {
            call_of_driver(site, cbid);
            assert_eq!(LINK.copies_under_way(), expected, "{cbid}, {}", if site == ENTER { "begins" } else { "ends" });
        }
        lanes::drain(|_| {});
    }

    static UNSUBSCRIBED: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    static FINALIZED: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

    unsafe extern "C" fn unsubscribe(subscriber: *mut c_void) -> u32 {
        UNSUBSCRIBED.store(subscriber, Ordering::SeqCst);
        0
    }

    unsafe extern "C" fn finalize() -> u32 {
        assert!(!UNSUBSCRIBED.load(Ordering::SeqCst).is_null(), "the subscription ends first");
        assert_eq!(LINK.state(), State::Detaching);
        FINALIZED.fetch_add(1, Ordering::SeqCst);
        7
    }

    #[test]
    fn the_first_call_that_ends_after_a_request_detaches() {
        let _only = tests_own();
        let leave = CallbackFunctions { unsubscribe, finalize, graph_node_id: Some(number) };
        let mut subscriber = 0u8;
        SUBSCRIBER.store((&raw mut subscriber).cast(), Ordering::SeqCst);
        let call = |site: u32, leave: Option<&CallbackFunctions>| {
            let data = data_at(site);
            let leave = leave.map_or(null_mut(), |leave| std::ptr::from_ref(leave).cast_mut().cast());
            // SAFETY: the data is what the domains promise, and `leave` outlives the call.
            unsafe { called(leave, 1, 307, (&raw const data).cast()) };
            FINALIZED.load(Ordering::SeqCst)
        };
        lanes::attached_at(lanes::clock().raw());
        assert!(LINK.attached() && LINK.request());
        call(0, Some(&leave));
        assert_eq!(call(1, Some(&leave)), 0, "what other threads do is not known yet");
        lanes::attached_at(0);
        assert_eq!(call(1, Some(&leave)), 0, "not by a call that began before, as others may have");
        assert_eq!(call(0, Some(&leave)), 0, "not at the beginning of a call");
        assert_eq!(call(1, None), 0, "not without the functions");
        call(0, Some(&leave));
        let other = LINK.call_begins(CountedCall::NONE);
        assert_eq!(call(1, Some(&leave)), 0, "not while a call of another thread goes on");
        assert!(LINK.call_ends(other));
        call(0, Some(&leave));
        let making = LINK.context_call_begins(CountedCall::NONE, false);
        assert_eq!(call(1, Some(&leave)), 0, "not while a context is being made");
        LINK.context_call_ends(making);
        call(0, Some(&leave));
        let inside = GATE.enter().expect("open");
        assert_eq!(call(1, Some(&leave)), 0, "not while a thread of ours is inside the driver");
        drop(inside);
        call(0, Some(&leave));
        assert_eq!(call(1, Some(&leave)), 1);
        assert_eq!(UNSUBSCRIBED.load(Ordering::SeqCst), (&raw mut subscriber).cast());
        assert!(SUBSCRIBER.load(Ordering::SeqCst).is_null());
        assert_eq!((LINK.state(), LINK.failed()), (State::Detached, Some(7)));
        // A call of another thread that was already inside CUPTI.
        assert_eq!(call(1, Some(&leave)), 1, "once");
        lanes::drain(|_| {});
    }

    unsafe extern "C" fn number(node: *mut c_void, id: *mut u64) -> u32 {
        if node as usize == 99 {
            return 1;
        }
        // SAFETY: the caller's pointer is valid for one number.
        unsafe { *id = (4 << 32) + node as u64 + 1_000 };
        0
    }

    #[test]
    fn nodes_of_graphs_are_told_with_the_interval_that_captures_them() {
        let _only = tests_own();
        lanes::take_nodes(&mut Vec::new());
        let known = CallbackFunctions { unsubscribe, finalize, graph_node_id: Some(number) };
        let made = |inside: &CallbackFunctions, cbid: u32, node: usize, original: usize, kind: u32| {
            let graph = GraphData {
                graph: null_mut(),
                original_graph: null_mut(),
                node: node as *mut c_void,
                original_node: original as *mut c_void,
                kind,
            };
            let data = ResourceData { context: null_mut(), handle: null_mut(), descriptor: (&raw const graph).cast() };
            // SAFETY: the data is what the domain promises, and `inside` outlives the call.
            unsafe { called(std::ptr::from_ref(inside).cast_mut().cast(), RESOURCE, cbid, (&raw const data).cast()) };
        };
        lanes::push_outside_window(candlescope_core::SpanId(5));
        made(&known, NODE_CREATED, 1, 0, 0);
        made(&known, NODE_CLONED, 2, 1, 0);
        made(&known, NODE_CREATED, 7, 0, LAST_WITH_RECORDS);
        made(&known, NODE_CREATED, 3, 0, 7);
        made(&known, NODE_CREATED, 99, 0, 0);
        made(&known, NODE_CLONED, 4, 99, 0);
        made(&known, 5, 4, 0, 0);
        made(&CallbackFunctions { graph_node_id: None, ..known }, NODE_CREATED, 6, 0, 0);
        lanes::pop();
        // SAFETY: nothing is read where the data is null.
        unsafe { called(null_mut(), RESOURCE, NODE_CREATED, null_mut()) };
        assert!(LINK.must_stay().is_some(), "what it makes is CUPTI's, too");
        LINK.forget_graphs();
        let mut nodes = Vec::new();
        lanes::take_nodes(&mut nodes);
        let of_graph = |node: u64| (4 << 32) + node;
        assert!(nodes.iter().all(|node| node.span == Some(candlescope_core::SpanId(5))));
        let told: Vec<_> = nodes.iter().map(|n| (n.node, n.original)).collect();
        let expected = [(of_graph(1_001), None), (of_graph(1_002), Some(of_graph(1_001))), (of_graph(1_007), None)];
        assert_eq!(told, expected);
    }
}
