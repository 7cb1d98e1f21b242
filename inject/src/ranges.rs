//! NVTX ranges of a thread, as intervals.

use crate::open;
use crate::recording::{Recording, started, window};
use candlescope_core::{Phase, RangeName};
use rustc_hash::{FxHashMap, FxHasher};
use std::cell::RefCell;
use std::hash::Hasher as _;

/// What a thread knows.
#[derive(Default)]
struct Thread {
    /// Open ranges by domain: a thread has ranges of few.
    depths: Vec<(u32, u32)>,
    /// Ranges that were left out, by domain and depth: libraries' outside of all others.
    left_out: Vec<(u32, u32)>,
    /// Open ranges that are phases, where it is known what these do.
    phases: Vec<(u64, Phase)>,
    /// Names by a hash of domain and text. Texts that share one are told apart by comparing.
    names: FxHashMap<u64, (u32, Box<str>, RangeName)>,
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

    /// The number of open ranges of a domain.
    fn depth(&mut self, domain: u32) -> &mut u32 {
        let at = match self.depths.iter().position(|(of, _)| *of == domain) {
            Some(at) => at,
            None => {
                self.depths.push((domain, 0));
                self.depths.len() - 1
            }
        };
        &mut self.depths[at].1
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
        let depth = *thread.depth(domain);
        *thread.depth(domain) += 1;
        // A library's range by itself would be a step.
        if open::count() == 0 && recording.is_library(domain) {
            thread.left_out.push((domain, depth));
            return depth;
        }
        let name = match called {
            Called::Text(text) => thread.name(recording, domain, text),
            Called::Known(name) => name,
        };
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
        let open = thread.depth(domain);
        let Some(depth) = open.checked_sub(1) else { return -2 };
        *open = depth;
        if let Some(at) = thread.left_out.iter().rposition(|of| *of == (domain, depth)) {
            thread.left_out.remove(at);
        } else {
            open::ends();
            let number = number(domain, depth);
            // A phase in a phase is no step, and the outer one does what is done.
            let did = match thread.phases.last() {
                Some((of, phase)) if *of == number => {
                    let phase = *phase;
                    thread.phases.pop();
                    let is_step = thread.phases.is_empty();
                    recording.own.model.as_ref().filter(|_| is_step).and_then(|model| model.did(phase))
                }
                _ => None,
            };
            recording.ranges.exit_as(number, None, did);
        }
        i32::try_from(depth).unwrap_or(-1)
    };
    with_thread(end).unwrap_or(-1)
}
