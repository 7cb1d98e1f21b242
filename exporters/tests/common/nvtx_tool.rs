//! A tool that listens to NVTX in its own process: NVTX's headers call a function pointer of a fixed name if the
//! program defines one ("static injection", `nvtxDetail/nvtxInit.h`). It stores the calls of each thread separately.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::Mutex;

/// A call that the tool received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Push { text: usize, payload: u64, category: u32, color: u32 },
    Pop,
}

/// A closed range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    pub text: String,
    pub payload: u64,
    pub category: u32,
    pub color: u32,
    /// Payload of the range around it.
    pub parent: Option<u64>,
}

thread_local! {
    static EVENTS: RefCell<Vec<Event>> = const { RefCell::new(Vec::new()) };
}
static DOMAINS: Mutex<Vec<String>> = Mutex::new(Vec::new());
static CATEGORIES: Mutex<Vec<(u32, String)>> = Mutex::new(Vec::new());
static STRINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Reserves room for `n` events of this thread, so that storing them allocates nothing.
pub fn reserve(n: usize) {
    EVENTS.with_borrow_mut(|e| e.reserve(n));
}

/// Takes the events of the calling thread.
pub fn events() -> Vec<Event> {
    EVENTS.take()
}

pub fn domains() -> Vec<String> {
    DOMAINS.lock().unwrap().clone()
}

pub fn category_name(id: u32) -> Option<String> {
    CATEGORIES.lock().unwrap().iter().find(|(n, _)| *n == id).map(|(_, name)| name.clone())
}

/// Events as closed ranges, in the order of their ends. Fails if they are not balanced.
pub fn ranges(events: &[Event]) -> Vec<Range> {
    let mut open: Vec<Range> = Vec::new();
    let mut closed = Vec::new();
    for event in events {
        match *event {
            Event::Push { text, payload, category, color } => {
                let text = STRINGS.lock().unwrap()[text - 1].clone();
                let parent = open.last().map(|r| r.payload);
                open.push(Range { text, payload, category, color, parent });
            }
            Event::Pop => closed.push(open.pop().expect("a push for every pop")),
        }
    }
    assert!(open.is_empty(), "a pop for every push");
    closed
}

/// `nvtxEventAttributes_v2`.
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

const DOMAIN: usize = 0xd0;

extern "C" fn create_domain(name: *const c_char) -> *mut c_void {
    DOMAINS.lock().unwrap().push(text(name));
    ptr::without_provenance_mut(DOMAIN)
}

extern "C" fn name_category(domain: *mut c_void, id: u32, name: *const c_char) {
    assert_eq!(domain.addr(), DOMAIN);
    CATEGORIES.lock().unwrap().push((id, text(name)));
}

extern "C" fn register_string(domain: *mut c_void, string: *const c_char) -> *mut c_void {
    assert_eq!(domain.addr(), DOMAIN);
    let mut strings = STRINGS.lock().unwrap();
    strings.push(text(string));
    ptr::without_provenance_mut(strings.len())
}

extern "C" fn push(domain: *mut c_void, attributes: *const Attributes) -> c_int {
    assert_eq!(domain.addr(), DOMAIN);
    // SAFETY: NVTX passes on what the caller of `nvtxDomainRangePushEx` gave, which must be complete attributes.
    let a = unsafe { &*attributes };
    assert_eq!(usize::from(a.size), size_of::<Attributes>());
    assert_eq!((a.version, a.color_type, a.payload_type, a.message_type), (3, 1, 1, 3), "v3, ARGB, u64, registered");
    let event = Event::Push { text: a.message.addr(), payload: a.payload, category: a.category, color: a.color };
    EVENTS.with_borrow_mut(|e| e.push(event));
    0
}

extern "C" fn pop(domain: *mut c_void) -> c_int {
    assert_eq!(domain.addr(), DOMAIN);
    EVENTS.with_borrow_mut(|e| e.push(Event::Pop));
    0
}

fn text(string: *const c_char) -> String {
    // SAFETY: NVTX's callers give strings that end in a NUL.
    let string: CString = unsafe { CStr::from_ptr(string) }.to_owned();
    string.into_string().expect("UTF-8")
}

// From `nvtxDetail/nvtxTypes.h`.
type GetExportTable = extern "C" fn(c_uint) -> *const Callbacks;
const TABLE_CALLBACKS: c_uint = 1;
const MODULE_CORE2: c_uint = 5;
const CORE2: [(usize, *const c_void); 5] = [
    (4, push as *const c_void),
    (5, pop as *const c_void),
    (8, name_category as *const c_void),
    (10, register_string as *const c_void),
    (12, create_domain as *const c_void),
];

#[repr(C)]
struct Callbacks {
    size: usize,
    module_table: extern "C" fn(c_uint, *mut *mut *mut *const c_void, *mut c_uint) -> c_int,
}

extern "C" fn initialize(get_table: GetExportTable) -> c_int {
    let callbacks = get_table(TABLE_CALLBACKS);
    let (mut table, mut size) = (ptr::null_mut(), 0);
    // SAFETY: the table of callbacks is a static of NVTX.
    let found = unsafe { ((*callbacks).module_table)(MODULE_CORE2, &mut table, &mut size) };
    assert!(found == 1 && size > 12);
    for (id, function) in CORE2 {
        // SAFETY: the table has `size` entries that point to NVTX's function pointers, which are ours to set while it
        // initialises.
        unsafe { **table.add(id) = function };
    }
    1
}

// SAFETY: the name is NVTX's and nobody else's; the type is the one its headers declare.
#[unsafe(no_mangle)]
#[used]
#[allow(non_upper_case_globals, reason = "NVTX looks for this name")]
static InitializeInjectionNvtx2_fnptr: extern "C" fn(GetExportTable) -> c_int = initialize;
