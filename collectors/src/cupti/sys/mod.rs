//! CUPTI and the driver as C libraries. Everything `unsafe` of this collector is in this folder, behind safe functions.
//!
//! The declarations were checked against the headers of CUDA 13.0.
#![allow(unsafe_code, reason = "C libraries, loaded when the program runs")]

mod callbacks;
mod driver;

pub(super) use callbacks::{LINK, NODE_CLONED, NODE_CREATED, POOL, RESOURCE};
pub(super) use driver::Driver;

use super::buffers::FilledBuffer;
use super::calls::{Domain, END_CONTEXTS, MAKE_CONTEXTS, plain};
use super::errors::{self, Code};
use super::records;
use super::search;
use candlescope_core::gpu::ActivityError;
use libloading::{AsSymbolName, Library};
use std::error::Error;
use std::ffi::{CStr, c_char, c_void};
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::atomic::Ordering;

type Status = u32;

/// `CUPTI_ERROR_MAX_LIMIT_REACHED` of `cuptiActivityGetNextRecord`: the end of the buffer.
const END_OF_RECORDS: Status = 12;
/// `CUPTI_ACTIVITY_FLAG_FLUSH_FORCED`.
const FLUSH_FORCED: u32 = 1;
/// `CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER`, a `uint8_t`.
const ATTRIBUTE_ZEROED: u32 = 5;

/// `CUpti_SubscriberHandle`. Stale once CUPTI was detached; CUPTI then refuses it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subscriber(*mut c_void);

// SAFETY: the handle is a token that CUPTI's functions, all callable from any thread, look up; it is never
// dereferenced here.
unsafe impl Send for Subscriber {}

/// The functions used. The library stays loaded until the process ends: CUPTI's own threads and the application's may
/// be inside it.
#[derive(Debug, Clone)]
pub(super) struct Cupti {
    path: PathBuf,
    get_version: unsafe extern "C" fn(*mut u32) -> Status,
    get_timestamp: unsafe extern "C" fn(*mut u64) -> Status,
    activity_enable: unsafe extern "C" fn(u32) -> Status,
    activity_disable: unsafe extern "C" fn(u32) -> Status,
    flush_all: unsafe extern "C" fn(u32) -> Status,
    register_callbacks: unsafe extern "C" fn(callbacks::BufferRequestFn, callbacks::BufferCompleteFn) -> Status,
    next_record: unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> Status,
    num_dropped: unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> Status,
    set_attribute: unsafe extern "C" fn(u32, *mut usize, *mut c_void) -> Status,
    subscribe: unsafe extern "C" fn(*mut *mut c_void, callbacks::CallbackFn, *mut c_void) -> Status,
    enable_callback: unsafe extern "C" fn(u32, *mut c_void, u32, u32) -> Status,
    callback_name: unsafe extern "C" fn(u32, u32, *mut *const c_char) -> Status,
    /// For the callbacks. Leaked, like the library.
    inside: &'static callbacks::CallbackFunctions,
}

fn checked(status: Status) -> Result<(), Code> {
    if status == 0 { Ok(()) } else { Err(Code(status)) }
}

impl Cupti {
    /// Loads the first of `candidates` that is CUPTI.
    pub(super) fn load(candidates: &[PathBuf]) -> Result<Self, ActivityError> {
        let mut tried = Vec::new();
        for path in candidates {
            match Self::open(path) {
                Ok(cupti) => return Ok(cupti),
                Err(said) => tried.push((path, said)),
            }
        }
        Err(errors::no_library(&tried))
    }

    fn open(path: &Path) -> Result<Self, String> {
        // SAFETY: loading runs the library's initialisers; NVIDIA's only set up its own state.
        let library = unsafe { Library::new(path) }.map_err(|e| said(&e))?;
        let name = path.to_path_buf();
        // SAFETY: each symbol has the type it is declared with in `cupti_activity.h`, `cupti_callbacks.h` and
        // `cupti_version.h`: enums are 32 bits wide, `size_t` is `usize`.
        let cupti = unsafe {
            Self {
                path: name,
                get_version: symbol(&library, "cuptiGetVersion")?,
                get_timestamp: symbol(&library, "cuptiGetTimestamp")?,
                activity_enable: symbol(&library, "cuptiActivityEnable")?,
                activity_disable: symbol(&library, "cuptiActivityDisable")?,
                flush_all: symbol(&library, "cuptiActivityFlushAll")?,
                register_callbacks: symbol(&library, "cuptiActivityRegisterCallbacks")?,
                next_record: symbol(&library, "cuptiActivityGetNextRecord")?,
                num_dropped: symbol(&library, "cuptiActivityGetNumDroppedRecords")?,
                set_attribute: symbol(&library, "cuptiActivitySetAttribute")?,
                subscribe: symbol(&library, "cuptiSubscribe")?,
                enable_callback: symbol(&library, "cuptiEnableCallback")?,
                callback_name: symbol(&library, "cuptiGetCallbackName")?,
                inside: Box::leak(Box::new(callbacks::CallbackFunctions {
                    unsubscribe: symbol(&library, "cuptiUnsubscribe")?,
                    finalize: symbol(&library, "cuptiFinalize")?,
                    graph_node_id: symbol(&library, "cuptiGetGraphNodeId").ok(),
                })),
            }
        };
        std::mem::forget(library);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let path = if path.is_absolute() { None } else { search::loaded(&maps, path) };
        Ok(Self { path: path.unwrap_or(cupti.path.clone()), ..cupti })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The API version, 0 if the library does not report it.
    pub(super) fn version(&self) -> u32 {
        let mut version = 0;
        // SAFETY: the pointer is valid for one `uint32_t`.
        let status = unsafe { (self.get_version)(&mut version) };
        if status == 0 { version } else { 0 }
    }

    pub(super) fn timestamp(&self) -> Option<u64> {
        let mut now = 0;
        // SAFETY: the pointer is valid for one `uint64_t`.
        let status = unsafe { (self.get_timestamp)(&mut now) };
        (status == 0 && now != 0).then_some(now)
    }

    /// Switches records of a kind on or off.
    pub(super) fn set_kind(&self, kind: u32, on: bool) -> Result<(), Code> {
        // SAFETY: plain numbers; unknown kinds are refused.
        checked(unsafe { if on { (self.activity_enable)(kind) } else { (self.activity_disable)(kind) } })
    }

    /// The library's name of a call; `None` if it does not know it.
    pub(super) fn call_name(&self, domain: Domain, cbid: u32) -> Option<String> {
        let mut name = null();
        // SAFETY: the pointer is valid for one pointer.
        let status = unsafe { (self.callback_name)(domain as u32, cbid, &mut name) };
        if status != 0 || name.is_null() {
            return None;
        }
        // SAFETY: on success it is a string constant of the library, which stays loaded.
        Some(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }

    /// Becomes this process's client; its callbacks are [`callbacks::called`], none of them on yet. This attaches
    /// CUPTI.
    pub(super) fn subscribe(&self) -> Result<Subscriber, Code> {
        let mut subscriber = null_mut();
        let inside: *const callbacks::CallbackFunctions = self.inside;
        // SAFETY: the pointer is valid for one pointer; the callback has the declared type, and it and its data,
        // which it only reads, live as long as the process.
        checked(unsafe { (self.subscribe)(&mut subscriber, callbacks::called, inside.cast_mut().cast()) })?;
        callbacks::SUBSCRIBER.store(subscriber, Ordering::Release);
        Ok(Subscriber(subscriber))
    }

    /// Becomes this process's client for a recorder that comes later; calls that make contexts are followed, and wait
    /// for it. May be called inside `cuInit`, where most of the driver may not be.
    pub(super) fn subscribe_early(&self) -> Result<(), Code> {
        let subscriber = self.subscribe()?;
        callbacks::IS_EARLY.store(true, Ordering::Release);
        LINK.contexts().hold();
        for (cbid, ours) in MAKE_CONTEXTS.iter().chain(&END_CONTEXTS) {
            if self.call_name(Domain::Driver, *cbid).is_some_and(|theirs| plain(&theirs) == *ours) {
                // What it does not offer the program does not call, either.
                let _ = self.set_callback(subscriber, Domain::Driver as u32, *cbid, true);
            }
        }
        Ok(())
    }

    /// The subscription that was made early, once.
    pub(super) fn take_early(&self) -> Option<Subscriber> {
        let early =
            callbacks::IS_EARLY.swap(false, Ordering::AcqRel).then(|| callbacks::SUBSCRIBER.load(Ordering::Acquire));
        early.filter(|subscriber| !subscriber.is_null()).map(Subscriber)
    }

    /// Ends the subscription that was made early, if nobody has taken it.
    pub(super) fn leave_early(&self) {
        if self.take_early().is_some() {
            self.unsubscribe();
        }
    }

    /// Ends the last subscription, whoever made it, if it has not ended.
    pub(super) fn unsubscribe(&self) {
        callbacks::IS_EARLY.store(false, Ordering::Release);
        let subscriber = callbacks::SUBSCRIBER.swap(null_mut(), Ordering::AcqRel);
        if !subscriber.is_null() {
            // SAFETY: the handle came from `subscribe`; a stale one is refused.
            unsafe { (self.inside.unsubscribe)(subscriber) };
        }
    }

    /// Switches the callbacks of one call or event on or off. Called by one thread at a time, the recorder's.
    pub(super) fn set_callback(&self, to: Subscriber, domain: u32, cbid: u32, on: bool) -> Result<(), Code> {
        // SAFETY: the handle came from `subscribe`, the rest are plain numbers.
        checked(unsafe { (self.enable_callback)(u32::from(on), to.0, domain, cbid) })
    }

    /// Hands CUPTI the callbacks by which it gets buffers of [`POOL`] and gives them back.
    pub(super) fn register_buffers(&self) -> Result<(), Code> {
        // The buffers handed out are zeroed already; CUPTI would zero them again on the application's thread.
        // A library that does not know it refuses, and zeroes.
        let _ = self.set_flag(ATTRIBUTE_ZEROED, true);
        // SAFETY: both have the declared types and live as long as the process.
        checked(unsafe { (self.register_callbacks)(callbacks::requested, callbacks::completed) })
    }

    /// Sets a `size_t` attribute of CUPTI's memory on the device.
    pub(super) fn set_size(&self, attribute: u32, mut value: usize) -> Result<(), Code> {
        let mut size = size_of::<usize>();
        // SAFETY: the value is as long as `size` says.
        checked(unsafe { (self.set_attribute)(attribute, &mut size, (&raw mut value).cast()) })
    }

    /// Sets a `uint8_t` attribute.
    pub(super) fn set_flag(&self, attribute: u32, on: bool) -> Result<(), Code> {
        let (mut size, mut value) = (1, u8::from(on));
        // SAFETY: the value is one byte, as `size` says.
        checked(unsafe { (self.set_attribute)(attribute, &mut size, (&raw mut value).cast()) })
    }

    /// Has buffers handed over, with `forced` also those with records that are not complete.
    pub(super) fn flush(&self, forced: bool) -> Result<(), Code> {
        // SAFETY: a plain number.
        checked(unsafe { (self.flush_all)(if forced { FLUSH_FORCED } else { 0 }) })
    }

    /// Records CUPTI dropped since this was last asked.
    pub(super) fn dropped(&self) -> u64 {
        let mut dropped = 0;
        // SAFETY: no context means the global queue; the pointer is valid for one `size_t`.
        let status = unsafe { (self.num_dropped)(null_mut(), 0, &mut dropped) };
        if status == 0 { dropped as u64 } else { 0 }
    }

    /// Shows each record of a buffer, up to the end of what is valid, and the name of each kernel. Of one that came
    /// while CUPTI left, kernels are not shown: their names are gone, and who reads them crashes. Returns how many
    /// these were, and one more if the end was not reached.
    pub(super) fn each_record(&self, filled: &FilledBuffer, mut show: impl FnMut(&[u8], Option<&[u8]>)) -> u64 {
        let words = filled.buffer.words();
        let valid = filled.valid.min(size_of_val(words));
        let mut lost = 0;
        // SAFETY: any eight bytes are a valid word, and the length is that of the same memory.
        let bytes = unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), valid) };
        let mut record = null_mut();
        loop {
            // SAFETY: the buffer is readable for `valid` bytes and was written by CUPTI; it is only read here.
            // `record` is null or what the call before gave.
            let status = unsafe { (self.next_record)(bytes.as_ptr().cast_mut(), valid, &mut record) };
            if status != 0 || record.is_null() {
                return lost + u64::from(status != END_OF_RECORDS && valid > 0);
            }
            let at = (record as usize).wrapping_sub(bytes.as_ptr() as usize);
            let Some(rest) = bytes.get(at..) else { return lost + 1 };
            let address = records::name_address(rest);
            if filled.is_late && address.is_some() {
                lost += 1;
                continue;
            }
            let name = address.map(|address| {
                // SAFETY: CUPTI's record of a kernel holds a pointer to its name, a string of its own that outlives
                // the record.
                unsafe { CStr::from_ptr(address as *const c_char) }.to_bytes()
            });
            show(rest, name);
        }
    }
}

/// The loader's message. The error itself only tells which of its functions failed.
fn said(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

/// A function of the library.
///
/// # Safety
/// `T` is the function's type.
unsafe fn symbol<T: Copy>(library: &Library, name: impl AsSymbolName + std::fmt::Display + Copy) -> Result<T, String> {
    // SAFETY: by this function's own contract.
    unsafe { library.get::<T>(name) }.map(|symbol| *symbol).map_err(|e| format!("it lacks {name}: {}", said(&e)))
}

#[cfg(test)]
mod tests {
    use super::super::buffers::Buffer;
    use super::super::{calls, records::built};
    use super::*;

    mod early {
        use super::*;
        use std::sync::Mutex;
        use std::sync::atomic::AtomicUsize;

        static SET: Mutex<Vec<(u32, Vec<u8>)>> = Mutex::new(Vec::new());
        static SUBSCRIBED: AtomicUsize = AtomicUsize::new(0);
        static UNSUBSCRIBED: AtomicUsize = AtomicUsize::new(0);

        unsafe extern "C" fn number(_: *mut u32) -> Status {
            1
        }
        unsafe extern "C" fn time(_: *mut u64) -> Status {
            1
        }
        unsafe extern "C" fn kind(_: u32) -> Status {
            1
        }
        unsafe extern "C" fn register(_: callbacks::BufferRequestFn, _: callbacks::BufferCompleteFn) -> Status {
            1
        }
        unsafe extern "C" fn next(_: *mut u8, _: usize, _: *mut *mut u8) -> Status {
            1
        }
        unsafe extern "C" fn dropped(_: *mut c_void, _: u32, _: *mut usize) -> Status {
            1
        }
        unsafe extern "C" fn set(attribute: u32, size: *mut usize, value: *mut c_void) -> Status {
            // SAFETY: the caller's value is as long as its size says.
            let bytes = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), *size) };
            SET.lock().expect("no test panicked with it").push((attribute, bytes.to_vec()));
            u32::from(attribute == 99)
        }
        unsafe extern "C" fn subscribe(handle: *mut *mut c_void, _: callbacks::CallbackFn, _: *mut c_void) -> Status {
            let n = SUBSCRIBED.fetch_add(1, Ordering::SeqCst) + 1;
            // SAFETY: the caller's pointer is valid for one handle, which nobody follows.
            unsafe { *handle = n as *mut c_void };
            0
        }
        unsafe extern "C" fn enable(_: u32, _: *mut c_void, _: u32, _: u32) -> Status {
            1
        }
        unsafe extern "C" fn name(_: u32, _: u32, _: *mut *const c_char) -> Status {
            1
        }
        unsafe extern "C" fn unsubscribe(handle: *mut c_void) -> u32 {
            UNSUBSCRIBED.store(handle as usize, Ordering::SeqCst);
            0
        }
        unsafe extern "C" fn finalize() -> u32 {
            0
        }

        static INSIDE: callbacks::CallbackFunctions =
            callbacks::CallbackFunctions { unsubscribe, finalize, graph_node_id: None };

        fn scripted() -> Cupti {
            Cupti {
                path: PathBuf::new(),
                get_version: number,
                get_timestamp: time,
                activity_enable: kind,
                activity_disable: kind,
                flush_all: kind,
                register_callbacks: register,
                next_record: next,
                num_dropped: dropped,
                set_attribute: set,
                subscribe,
                enable_callback: enable,
                callback_name: name,
                inside: &INSIDE,
            }
        }

        #[test]
        fn attributes_are_as_wide_as_the_library_reads_them() {
            let cupti = scripted();
            assert_eq!((cupti.set_size(0, 3 << 20), cupti.set_flag(8, true)), (Ok(()), Ok(())));
            assert_eq!(cupti.set_flag(99, false), Err(Code(1)), "it is not known to this library");
            let set = std::mem::take(&mut *SET.lock().expect("no test panicked with it"));
            assert_eq!(set, [(0, (3usize << 20).to_ne_bytes().to_vec()), (8, vec![1]), (99, vec![0])]);
        }

        #[test]
        fn a_subscription_of_before_is_taken_over_once_and_ended_where_nobody_comes() {
            let _only = super::super::super::lanes::tests_own();
            let (cupti, handle) = (scripted(), |subscriber: Option<Subscriber>| subscriber.map(|it| it.0 as usize));
            assert_eq!(handle(cupti.take_early()), None, "there is none");
            cupti.subscribe_early().expect("it is free");
            // The recorder's.
            assert_eq!(handle(cupti.take_early()), Some(1));
            assert_eq!(handle(cupti.take_early()), None, "once");
            cupti.leave_early();
            assert_eq!(UNSUBSCRIBED.load(Ordering::SeqCst), 0, "it has somebody");
            cupti.unsubscribe();
            assert_eq!(UNSUBSCRIBED.load(Ordering::SeqCst), 1);
            // No recorder comes.
            cupti.subscribe_early().expect("it is free");
            assert!(LINK.contexts().are_held(), "contexts wait for the recorder");
            cupti.leave_early();
            assert_eq!((UNSUBSCRIBED.load(Ordering::SeqCst), handle(cupti.take_early())), (2, None));
            // One that begins anew ends what was left.
            cupti.subscribe_early().expect("it is free");
            cupti.unsubscribe();
            assert_eq!((UNSUBSCRIBED.load(Ordering::SeqCst), handle(cupti.take_early())), (3, None));
            // The process's: other tests do not wait.
            LINK.contexts().let_go();
        }
    }

    #[test]
    fn a_library_that_does_not_load_says_why() {
        let nowhere = PathBuf::from("/nonexistent/libcupti.so");
        let error = Cupti::load(std::slice::from_ref(&nowhere)).expect_err("there is none");
        assert!(error.0.contains("No such file"), "{error}");
        assert!(Cupti::load(&[]).is_err());
        // The C library loads, but is not CUPTI.
        let error = Cupti::load(&[nowhere, "libc.so.6".into()]).expect_err("no CUPTI");
        assert!(error.0.contains("it lacks cuptiGetVersion"), "{error}");
    }

    /// Numbers and layouts against a real library; no GPU is needed.
    #[test]
    #[ignore = "needs libcupti: set CANDLESCOPE_CUPTI to its path and run with --ignored"]
    fn a_real_library_agrees() {
        let cupti =
            Cupti::load(&search::candidates(None, &|name| std::env::var(name).ok(), None, "")).expect("libcupti");
        assert!(search::understood(cupti.version()), "{}", cupti.version());
        assert!(cupti.path().is_absolute() && cupti.timestamp().is_some());
        for domain in [Domain::Driver, Domain::Runtime] {
            let differing: Vec<_> = (domain.calls().iter())
                .filter_map(|(cbid, ours)| cupti.call_name(domain, *cbid).map(|theirs| (*cbid, *ours, theirs)))
                .filter(|(_, ours, theirs)| calls::plain(theirs) != *ours)
                .collect();
            assert_eq!(differing, [], "{domain:?}");
        }
        // CUPTI walks records that we built, so our sizes must be its sizes.
        let mut kernel = built::kernel(4, 5, 6, 0);
        kernel[104..112].copy_from_slice(&(c"_Z3addPf".as_ptr() as u64).to_ne_bytes());
        let all = [built::memory(1, 1, 2, 3, 4), kernel, built::memory(22, 10, 3, 4, 5), built::memory(2, 0, 3, 4, 5)];
        let bytes = all.concat();
        let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        let buffer = Buffer::from_words(words.into_boxed_slice());
        let mut filled = FilledBuffer { buffer, valid: bytes.len(), is_late: false };
        let (mut seen, mut names) = (Vec::new(), Vec::new());
        let lost = cupti.each_record(&filled, |record, name| {
            seen.push(records::parse(record));
            names.extend(name.map(<[u8]>::to_vec));
        });
        assert_eq!(lost, 0);
        if cupti.version() >= 130_000 {
            assert_eq!(seen, all.each_ref().map(|record| records::parse(record)));
            assert_eq!(names, [b"_Z3addPf"]);
            filled.is_late = true;
            let mut others = 0;
            assert_eq!((cupti.each_record(&filled, |_, _| others += 1), others), (1, 3), "without the kernel");
        }
    }
}
