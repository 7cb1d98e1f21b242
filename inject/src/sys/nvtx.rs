//! NVTX's side: its tables of functions, which a tool fills in (`nvtxDetail/nvtxTypes.h` of NVTX 3).
//!
//! NVTX is a header: every library of a program that makes ranges has tables of its own, and asks for itself. What it
//! hands out (domains, strings) goes to all of them.

use super::cancel::uncancelled;
use super::fork::is_own;
use super::guard::{guarded, without_a_word};
use super::{begin, environment};
use crate::ranges::{self, GivenName, pop, push};
use crate::recording::{Recording, started};
use crate::registered::RegisteredText;
use std::borrow::Cow;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;

/// `nvtxEventAttributes_v2`. Later versions are longer and begin the same.
#[repr(C)]
struct Attributes {
    version: u16,
    size: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: *const c_void,
}

impl Attributes {
    /// The number that the program attached; `None` if it attached none, or something else. Whole numbers beyond 2⁵³ lose
    /// their last digits.
    fn payload(&self) -> Option<f64> {
        let half = self.payload as u32;
        match self.payload_type {
            1 => Some(self.payload as f64),
            2 => Some(self.payload.cast_signed() as f64),
            3 => Some(f64::from_bits(self.payload)),
            4 => Some(f64::from(half)),
            5 => Some(f64::from(half.cast_signed())),
            6 => Some(f64::from(f32::from_bits(half))),
            _ => None,
        }
    }
}

/// Kinds of messages.
const ASCII: i32 = 1;
const UNICODE: i32 = 2;
const REGISTERED: i32 = 3;

/// A character of C's `wchar_t`.
type Wide = u32;

const TABLE_CALLBACKS: c_uint = 1;
const MODULE_CORE: c_uint = 1;
const MODULE_CORE2: c_uint = 5;

type GetExportTable = unsafe extern "C" fn(c_uint) -> *const Callbacks;
type Entries = *mut *mut *const c_void;

/// `NvtxExportTableCallbacks`.
#[repr(C)]
struct Callbacks {
    size: usize,
    module_table: unsafe extern "C" fn(c_uint, *mut Entries, *mut c_uint) -> c_int,
}

/// Functions for ranges without a domain, by their place in the table.
const CORE: &[(usize, *const c_void)] = &[
    (4, start_ex as *const c_void),
    (5, start_a as *const c_void),
    (6, start_w as *const c_void),
    (7, end as *const c_void),
    (8, push_ex as *const c_void),
    (9, push_a as *const c_void),
    (10, push_w as *const c_void),
    (11, pop_plain as *const c_void),
];

/// Those with one.
const CORE2: &[(usize, *const c_void)] = &[
    (2, domain_start_ex as *const c_void),
    (3, domain_end as *const c_void),
    (4, domain_push_ex as *const c_void),
    (5, domain_pop as *const c_void),
    (10, register_a as *const c_void),
    (11, register_w as *const c_void),
    (12, create_a as *const c_void),
    (13, create_w as *const c_void),
];

/// What NVTX calls, with the function by which its tables are found. Returns 1 if it listens.
///
/// # Safety
/// `get_table` is NVTX's own.
// SAFETY: the name is the one that NVTX looks for in a library of its variable, and nobody else's.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "NVTX looks for this name")]
#[allow(private_interfaces, reason = "only NVTX calls it")]
pub unsafe extern "C" fn InitializeInjectionNvtx2(get_table: Option<GetExportTable>) -> c_int {
    without_a_word();
    let fill = || {
        let get_table = get_table?;
        is_own().then_some(())?;
        let is_recording = begin();
        environment::leave_to_children(false);
        is_recording.then_some(())?;
        // SAFETY: NVTX's function returns a static table or null.
        let callbacks = unsafe { get_table(TABLE_CALLBACKS).as_ref() }?;
        for (module, functions) in [(MODULE_CORE, CORE), (MODULE_CORE2, CORE2)] {
            let (mut table, mut size): (Entries, c_uint) = (ptr::null_mut(), 0);
            // SAFETY: both out parameters are valid for the call.
            if unsafe { (callbacks.module_table)(module, &mut table, &mut size) } != 1 || table.is_null() {
                continue;
            }
            for &(at, function) in functions.iter().filter(|(at, _)| *at < size as usize) {
                // SAFETY: the table has `size` entries, which point to NVTX's function pointers or are null; they are
                // ours to set while it initialises, which one thread does while the others wait.
                unsafe {
                    let entry = *table.add(at);
                    if !entry.is_null() {
                        *entry = function;
                    }
                }
            }
        }
        Some(())
    };
    c_int::from(guarded(None, || uncancelled(fill)).is_some())
}

/// `nvtxExtModuleInfo_t`, as far as it is read.
#[repr(C)]
struct Extension {
    version: u16,
    size: u16,
    module: u16,
    compatible: u16,
    segments: usize,
    segment: *const Segment,
}

/// `nvtxExtModuleSegment_t`.
#[repr(C)]
struct Segment {
    id: usize,
    slots: usize,
    functions: *mut *const c_void,
}

/// The extension by which ranges have payloads of any shape (`nvtxExtImplPayload_v1.h`).
const MODULE_PAYLOAD: u16 = 2;

/// Its functions for ranges, by their place: what one begins the plain functions may end, and the other way round.
const PAYLOAD: &[(usize, *const c_void)] = &[
    (3, push_payload as *const c_void),
    (4, pop_payload as *const c_void),
    (5, start_payload as *const c_void),
    (6, end_payload as *const c_void),
];

/// What a range is called whose name is somewhere in its payload.
const PAYLOAD_NAME: &str = "(payload)";

/// What NVTX calls for each extension that a program uses, after the plain functions were asked for. Returns 1 if it listens.
///
/// # Safety
/// `extension` is NVTX's own.
// SAFETY: the name is the one that NVTX looks for in a library of its variable, and nobody else's.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "NVTX looks for this name")]
#[allow(private_interfaces, reason = "only NVTX calls it")]
pub unsafe extern "C" fn InitializeInjectionNvtxExtension(extension: *const Extension) -> c_int {
    let fill = || {
        // SAFETY: NVTX gives a pointer that is valid for the call, or null.
        let extension = unsafe { extension.as_ref() }?;
        if !is_own() || extension.module != MODULE_PAYLOAD || extension.segments == 0 || started().is_none() {
            return None;
        }
        // SAFETY: there is one segment at least.
        let segment = unsafe { extension.segment.as_ref() }?;
        for &(at, function) in PAYLOAD.iter().filter(|(at, _)| *at < segment.slots) {
            // SAFETY: the table has that many entries, which are ours to set while it initialises.
            unsafe { *segment.functions.add(at) = function };
        }
        Some(())
    };
    c_int::from(guarded(None, fill).is_some())
}

extern "C" fn push_payload(domain: *const c_void, _: *const c_void, _: usize) -> c_int {
    guarded(-1, || push(domain_of(domain), GivenName::Text(PAYLOAD_NAME), None))
}

extern "C" fn pop_payload(domain: *const c_void, _: *const c_void, _: usize) -> c_int {
    guarded(-1, || pop(domain_of(domain)))
}

extern "C" fn start_payload(domain: *const c_void, _: *const c_void, _: usize) -> u64 {
    guarded(0, || ranges::start(domain_of(domain), GivenName::Text(PAYLOAD_NAME), None))
}

extern "C" fn end_payload(_: *const c_void, range: u64, _: *const c_void, _: usize) {
    guarded((), || ranges::end(range));
}

/// The number of the domain of a handle; handles are these numbers.
fn domain_of(handle: *const c_void) -> u32 {
    u32::try_from(handle.addr()).unwrap_or(0)
}

/// A text in UTF-8. Texts of programs are usually short and plain.
fn text<'a>(string: *const c_char) -> Cow<'a, str> {
    if string.is_null() {
        return "".into();
    }
    // SAFETY: NVTX's callers give strings that end in a NUL and live through the call.
    unsafe { CStr::from_ptr(string) }.to_string_lossy()
}

/// The same of wide characters.
fn wide(string: *const Wide) -> String {
    let mut text = String::new();
    if string.is_null() {
        return text;
    }
    for at in 0.. {
        // SAFETY: the string ends in a NUL, before which nothing is read beyond.
        match unsafe { *string.add(at) } {
            0 => break,
            c => text.push(char::from_u32(c).unwrap_or(char::REPLACEMENT_CHARACTER)),
        }
    }
    text
}

/// Has a range with these attributes begin by `begin`; `otherwise` where there are none.
///
/// # Safety
/// `attributes` is null or points to attributes as NVTX's callers give them.
unsafe fn with<T>(
    attributes: *const Attributes,
    otherwise: T,
    begin: impl FnOnce(GivenName<'_>, Option<f64>) -> T,
) -> T {
    // SAFETY: by the caller.
    let Some(attributes) = (unsafe { attributes.as_ref() }) else { return otherwise };
    if usize::from(attributes.size) < size_of::<Attributes>() {
        return otherwise;
    }
    let payload = attributes.payload();
    match attributes.message_type {
        ASCII => begin(GivenName::Text(&text(attributes.message.cast())), payload),
        UNICODE => begin(GivenName::Text(&wide(attributes.message.cast())), payload),
        REGISTERED => {
            // SAFETY: a handle that this tool gave out, which is valid for ever, or null.
            match unsafe { attributes.message.cast::<RegisteredText>().as_ref() } {
                Some(registered) => begin(GivenName::Known(registered), payload),
                None => begin(GivenName::Text(""), payload),
            }
        }
        _ => begin(GivenName::Text(""), payload),
    }
}

unsafe extern "C" fn start_ex(attributes: *const Attributes) -> u64 {
    // SAFETY: NVTX passes on what its caller gave.
    guarded(0, || unsafe { with(attributes, 0, |called, payload| ranges::start(0, called, payload)) })
}

extern "C" fn start_a(string: *const c_char) -> u64 {
    guarded(0, || ranges::start(0, GivenName::Text(&text(string)), None))
}

extern "C" fn start_w(string: *const Wide) -> u64 {
    guarded(0, || ranges::start(0, GivenName::Text(&wide(string)), None))
}

extern "C" fn end(range: u64) {
    guarded((), || ranges::end(range));
}

unsafe extern "C" fn domain_start_ex(domain: *const c_void, attributes: *const Attributes) -> u64 {
    // SAFETY: NVTX passes on what its caller gave.
    guarded(0, || unsafe { with(attributes, 0, |called, payload| ranges::start(domain_of(domain), called, payload)) })
}

extern "C" fn domain_end(_: *const c_void, range: u64) {
    guarded((), || ranges::end(range));
}

unsafe extern "C" fn push_ex(attributes: *const Attributes) -> c_int {
    // SAFETY: NVTX passes on what its caller gave.
    guarded(-1, || unsafe { with(attributes, -1, |called, payload| push(0, called, payload)) })
}

extern "C" fn push_a(string: *const c_char) -> c_int {
    guarded(-1, || push(0, GivenName::Text(&text(string)), None))
}

extern "C" fn push_w(string: *const Wide) -> c_int {
    guarded(-1, || push(0, GivenName::Text(&wide(string)), None))
}

extern "C" fn pop_plain() -> c_int {
    guarded(-1, || pop(0))
}

unsafe extern "C" fn domain_push_ex(domain: *const c_void, attributes: *const Attributes) -> c_int {
    // SAFETY: NVTX passes on what its caller gave.
    guarded(-1, || unsafe { with(attributes, -1, |called, payload| push(domain_of(domain), called, payload)) })
}

extern "C" fn domain_pop(domain: *const c_void) -> c_int {
    guarded(-1, || pop(domain_of(domain)))
}

/// What a program gets for a text, by which its ranges name it: it may keep that as long as it likes.
fn handle(recording: &Recording, domain: u32, string: &str) -> *const c_void {
    ptr::from_ref(recording.registered(domain, string)).cast()
}

fn register(domain: *const c_void, string: &str) -> *const c_void {
    started().map_or(ptr::null(), |recording| handle(recording, domain_of(domain), string))
}

extern "C" fn register_a(domain: *const c_void, string: *const c_char) -> *const c_void {
    guarded(ptr::null(), || register(domain, &text(string)))
}

extern "C" fn register_w(domain: *const c_void, string: *const Wide) -> *const c_void {
    guarded(ptr::null(), || register(domain, &wide(string)))
}

fn create(name: &str) -> *const c_void {
    started().map_or(ptr::null(), |recording| ptr::without_provenance(recording.domain(name) as usize))
}

extern "C" fn create_a(name: *const c_char) -> *const c_void {
    guarded(ptr::null(), || create(&text(name)))
}

extern "C" fn create_w(name: *const Wide) -> *const c_void {
    guarded(ptr::null(), || create(&wide(name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::KernelRecording;
    use candlescope_core::{MemoryExporter, RangeName};
    use std::collections::HashSet;

    /// What a range is called that is named by this handle.
    fn called(handle: *const c_void) -> Option<RangeName> {
        let attributes = Attributes {
            version: 2,
            size: u16::try_from(size_of::<Attributes>()).expect("it is small"),
            category: 0,
            color_type: 0,
            color: 0,
            payload_type: 0,
            reserved: 0,
            payload: 0,
            message_type: REGISTERED,
            message: handle,
        };
        let known = |called: GivenName<'_>, _| if let GivenName::Known(text) = called { Some(text.name) } else { None };
        // SAFETY: they are attributes, with a handle that was given out.
        unsafe { with(&raw const attributes, None, known) }
    }

    #[test]
    fn a_program_that_registers_texts_without_end_gets_those_that_it_has() {
        let builder = candlescope::builder().exporter(MemoryExporter::new()).report_at_end(false);
        let (_layer, scope) = builder.layer().expect("a session");
        let recording = Recording::new(scope, None, None, KernelRecording::PLAIN).expect("it records");
        let model = recording.domain("model");
        let first = [0, model].map(|domain| handle(&recording, domain, "linear"));
        assert_ne!(first[0], first[1], "another domain, another name");
        let handles = |texts: &mut dyn Iterator<Item = String>| -> HashSet<*const c_void> {
            texts.map(|text| handle(&recording, model, &text)).collect()
        };
        let numbered = handles(&mut (0..1_000_000).map(|n| format!("request {n}, seq = {n}")));
        assert_eq!(numbered.len(), 257, "256 with their numbers, and one for all others");
        // Words are names each, for as many as a session has.
        let word = |n: u32| n.to_string().bytes().map(|digit| char::from(digit - b'0' + b'a')).collect::<String>();
        let words = handles(&mut (0..100_000).map(word));
        assert!((65_000..65_536).contains(&words.len()), "{}", words.len());
        assert_eq!([0, model].map(|domain| handle(&recording, domain, "linear")), first);
        assert_eq!(called(first[1]), Some(recording.name(model, "linear")));
        let each: Vec<_> = numbered.iter().map(|handle| called(*handle)).collect();
        assert!(each.iter().all(Option::is_some) && each.contains(&Some(recording.name(model, "request 999999"))));
        assert_eq!(called(ptr::null()), None, "a text that was not made known");
    }
}
