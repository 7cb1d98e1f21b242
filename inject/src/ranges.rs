//! NVTX ranges of a thread, as intervals.

use crate::names::cleaned;
use crate::open;
use crate::recording::{Recording, started, window};
use candlescope_core::{Phase, RangeName};
use rustc_hash::{FxHashMap, FxHasher};
use std::cell::RefCell;
use std::hash::Hasher as _;

/// What a thread knows.
#[derive(Default)]
struct Thread {
    /// Domains: a thread has ranges of few.
    domains: Vec<Domain>,
    /// Ranges that were left out, by domain and depth: libraries' outside of all others.
    left_out: Vec<(u32, u32)>,
    /// Open ranges that are phases, where it is known what these do.
    phases: Vec<(u64, Phase)>,
    /// Names by a hash of domain and text. Texts that share one are told apart by comparing.
    names: FxHashMap<u64, (u32, Box<str>, RangeName)>,
}

/// A domain on a thread.
struct Domain {
    number: u32,
    is_library: bool,
    /// Open ranges.
    depth: u32,
}

/// Names that a thread keeps.
const MOST: usize = 4_096;

thread_local! {
    static THREAD: RefCell<Thread> = RefCell::new(Thread::default());
}

/// `None` in a thread that is ending, or from within itself.
#[inline]
fn with_thread<T>(work: impl FnOnce(&mut Thread) -> T) -> Option<T> {
    THREAD.try_with(|thread| thread.try_borrow_mut().ok().map(|mut thread| work(&mut thread))).ok().flatten()
}

/// What a range is called: a text, or a name that was made known before.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Called<'a> {
    Text(&'a str),
    Known(RangeName),
}

impl Thread {
    fn name(&mut self, recording: &Recording, domain: u32, text: &str) -> RangeName {
        let mut hasher = FxHasher::default();
        hasher.write_u32(domain);
        hasher.write(text.as_bytes());
        let hash = hasher.finish();
        match self.names.get(&hash) {
            Some((of, known, name)) if *of == domain && **known == *text => *name,
            _ => {
                let name = recording.name(domain, text);
                if self.names.len() < MOST {
                    self.names.insert(hash, (domain, text.into(), name));
                }
                name
            }
        }
    }

    fn domain(&mut self, recording: &Recording, number: u32) -> &mut Domain {
        let at = match self.domains.iter().position(|of| of.number == number) {
            Some(at) => at,
            None => {
                self.domains.push(Domain { number, is_library: recording.is_library(number), depth: 0 });
                self.domains.len() - 1
            }
        };
        &mut self.domains[at]
    }
}

/// Of a range: unique among those that are open on a thread.
fn number(domain: u32, depth: u32) -> u64 {
    u64::from(domain) << 32 | u64::from(depth)
}

/// A range begins on this thread. Returns how many of its domain are open around it, as NVTX does.
pub(crate) fn push(domain: u32, called: Called<'_>) -> i32 {
    let Some(recording) = started() else { return -1 };
    let begin = |thread: &mut Thread| {
        let of = thread.domain(recording, domain);
        let (depth, is_library) = (of.depth, of.is_library);
        of.depth += 1;
        // A library's range by itself would be a step.
        if open::count() == 0 && is_library {
            thread.left_out.push((domain, depth));
            return depth;
        }
        let name = match called {
            // What differs from call to call is no part of a name.
            Called::Text(text) => thread.name(recording, domain, cleaned(text)),
            Called::Known(name) => name,
        };
        if name.is_phase() {
            recording.own.marks_phases();
        }
        if open::count() == 0 {
            recording.own.around(name.is_phase(), window());
        }
        open::begins();
        let number = number(domain, depth);
        if let Some(phase) = name.phase().filter(|_| recording.own.model.is_some()) {
            thread.phases.push((number, phase));
        }
        recording.ranges.enter(name, number);
        depth
    };
    with_thread(begin).and_then(|depth| i32::try_from(depth).ok()).unwrap_or(-1)
}

/// The innermost range of the domain ends. Returns how many are open around it; −2 if there was none.
pub(crate) fn pop(domain: u32) -> i32 {
    let Some(recording) = started() else { return -1 };
    let end = |thread: &mut Thread| {
        let of = thread.domain(recording, domain);
        let Some(depth) = of.depth.checked_sub(1) else { return -2 };
        of.depth = depth;
        if let Some(at) = thread.left_out.iter().rposition(|of| *of == (domain, depth)) {
            thread.left_out.remove(at);
        } else {
            open::ends();
            let number = number(domain, depth);
            // A phase in a phase is no step, and the outer one does what is done. Those of two domains may end in any order.
            let did = thread.phases.iter().rposition(|(of, _)| *of == number).and_then(|at| {
                let (_, phase) = thread.phases.remove(at);
                let is_step = thread.phases.is_empty();
                recording.own.model.as_ref().filter(|_| is_step).and_then(|model| model.did(phase))
            });
            recording.ranges.exit_as(number, None, did);
        }
        i32::try_from(depth).unwrap_or(-1)
    };
    with_thread(end).unwrap_or(-1)
}
