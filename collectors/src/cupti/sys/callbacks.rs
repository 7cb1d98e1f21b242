//! The functions that CUPTI calls, on threads of the application and on its own.
//!
//! They must never unwind into C: each stops panics with `catch_unwind`, which costs nothing if nothing panics.

use super::super::buffers::{Buffer, Filled, Pool};
use super::super::calls::Domain;
use super::super::calls::{OnContexts, OnGraphs, copies, on_contexts, on_graphs};
use super::super::detach::Link;
use super::super::in_flight::Began;
use super::super::lanes;
use crate::driver_gate::GATE;
use std::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

pub(super) type Requested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
pub(super) type Completed = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);
pub(super) type Called = unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void);

/// All buffers. CUPTI has one pair of callbacks for the process, and they get no data of ours.
pub(in super::super) static POOL: Pool = Pool::new();

/// Whether CUPTI is in the process, which has one CUPTI.
pub(in super::super) static LINK: Link = Link::new();

/// The current subscription, or null.
pub(super) static SUBSCRIBER: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// The functions needed to detach. CUPTI hands this to each callback.
#[derive(Debug)]
pub(super) struct Leave {
    pub(super) unsubscribe: unsafe extern "C" fn(*mut c_void) -> u32,
    pub(super) finalize: unsafe extern "C" fn() -> u32,
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

/// CUPTI is done with a buffer. It is put aside for the thread that reads.
pub(super) unsafe extern "C" fn completed(_: *mut c_void, _: u32, buffer: *mut u8, size: usize, valid: usize) {
    if buffer.is_null() {
        return;
    }
    let words = std::ptr::slice_from_raw_parts_mut(buffer.cast::<u64>(), size / 8);
    // SAFETY: CUPTI gives back what `requested` gave out, with its size, once: a boxed slice of that many words.
    let words = unsafe { Box::from_raw(words) };
    // A panic here could only come from a failed allocation; the buffer is lost then, and the program goes on.
    let _ = catch_unwind(AssertUnwindSafe(|| POOL.put(Filled { buffer: Buffer::from_words(words), valid })));
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

/// A followed call begins or ends on this thread. `leave` is a [`Leave`] that lives as long as the process, or null.
pub(super) unsafe extern "C" fn called(leave: *mut c_void, domain: u32, cbid: u32, data: *const c_void) {
    let Some(domain) = Domain::of(domain) else { return };
    if data.is_null() {
        return;
    }
    // SAFETY: in these two domains the data is a `CUpti_CallbackData`, valid during this call.
    let data = unsafe { &*data.cast::<CallbackData>() };
    if let Some(what) = on_contexts(domain, cbid) {
        let began = lanes::on_contexts(Began::NONE);
        if data.site == ENTER {
            lanes::on_contexts(LINK.context_call_begins(began, what == OnContexts::Ends));
        } else {
            LINK.context_call_ends(began);
        }
        return;
    }
    if let Some(what) = on_graphs(domain, cbid) {
        // Before the call: what it makes is CUPTI's, too.
        LINK.sees_graph();
        if what == OnGraphs::Makes {
            return;
        }
    }
    let now = lanes::clock().raw();
    if copies(domain, cbid) {
        let around = lanes::copying(Began::NONE);
        if data.site == ENTER {
            lanes::copying(LINK.copy_begins(around));
        } else {
            LINK.copy_ends(around);
        }
    }
    if data.site == ENTER {
        LINK.calls();
        if LINK.is_requested() {
            let around = lanes::inside(Began::NONE);
            lanes::inside(LINK.call_begins(around));
        }
        if !data.shared.is_null() {
            // Zero: not to be recorded.
            let start = if lanes::is_recording() { now } else { 0 };
            // SAFETY: where it is not null it is the call's own word, for our use.
            unsafe { *data.shared = start };
        }
        return;
    }
    if LINK.is_requested() {
        let alone = LINK.call_ends(lanes::inside(Began::NONE));
        // SAFETY: by this function's own contract.
        let leave = unsafe { leave.cast::<Leave>().as_ref() };
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
}

/// Detaches CUPTI from the process, once, at the end of a call, as NVIDIA requires.
#[cold]
fn detach(leave: &Leave) {
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
    use super::super::super::detach::State;
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
        let filled = POOL.drain();
        assert_eq!(filled.iter().map(|f| f.valid).collect::<Vec<_>>(), [16, 0]);
        assert_eq!(filled[0].buffer.words()[0].to_ne_bytes()[0], 42);
        filled.into_iter().for_each(|f| POOL.recycle(f));
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
        let leave = Leave { unsubscribe, finalize };
        let mut subscriber = 0u8;
        SUBSCRIBER.store((&raw mut subscriber).cast(), Ordering::SeqCst);
        let call = |site: u32, leave: Option<&Leave>| {
            let data = CallbackData {
                site,
                function: null_mut(),
                parameters: null_mut(),
                result: null_mut(),
                symbol: null_mut(),
                context: null_mut(),
                context_uid: 1,
                shared: null_mut(),
                correlation: 1,
            };
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
        let other = LINK.call_begins(Began::NONE);
        assert_eq!(call(1, Some(&leave)), 0, "not while a call of another thread goes on");
        assert!(LINK.call_ends(other));
        call(0, Some(&leave));
        let making = LINK.context_call_begins(Began::NONE, false);
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
}
