//! The program's own steps, of work outside of its ranges: each lasts from one result that the program fetches to the next, or to one
//! after several, where what is launched between them repeats.

use crate::model::Model;
use crate::open;
use crate::patterns::{MOST, PatternTable, Patterns, StepKind};
use candlescope_core::injected::{NO_DOMAIN, PROGRAM_STEP, REPEATED_STEP};
use candlescope_core::{Phase, RangeKind, RangeName, Ranges};
use std::cell::{Cell, RefCell};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Number of the program's own step, among those of ranges.
const NUMBER: u64 = u64::MAX >> 1;

/// The program's own step on a thread.
#[derive(Debug, Clone, Copy)]
struct Here {
    is_open: bool,
    /// It began under the name of those that repeat.
    as_repeated: bool,
    /// It wanted a result, at this time: its next call may begin another one.
    fetched: Option<Instant>,
    /// When it began, and the same by [`OwnSteps::time`].
    began: Option<Instant>,
    begun: u64,
    /// The thread has made a range that is a phase: what its own steps do is not guessed.
    marks_phases: bool,
    /// The window in which it was begun again because its kernels were not recorded, how often, and calls until it is once more.
    renewed_in: u64,
    renewed: u32,
    patience: u32,
    /// The window in which kernels of its steps were recorded.
    had_room_in: u64,
    /// The window in which that did not help: it has all its steps, and no more begin until the next one.
    gave_up_in: u64,
    /// The window before which nobody saw what the thread did.
    came_to: u64,
}

const NOWHERE: Here = Here {
    is_open: false,
    as_repeated: false,
    fetched: None,
    began: None,
    begun: 0,
    marks_phases: false,
    renewed_in: 0,
    renewed: 0,
    patience: 0,
    had_room_in: 0,
    gave_up_in: 0,
    came_to: 0,
};

/// The window that stands for the one that is yet to come.
const COLD: u64 = u64::MAX;

/// How often a step is begun again in a window: a moment passes between a window's beginning and that of its first step. Each time
/// twice as many calls are waited for.
const RENEWALS: u32 = 10;

/// The patterns of this process.
static FOUND: PatternTable = PatternTable::new();

thread_local! {
    static HERE: Cell<Here> = const { Cell::new(NOWHERE) };
    static PATTERNS: RefCell<Patterns> = const { RefCell::new(Patterns::new(&FOUND)) };
}

fn here() -> Here {
    HERE.try_with(Cell::get).unwrap_or(NOWHERE)
}

/// `None` in a thread that is ending.
fn with_patterns<T>(work: impl FnOnce(&mut Patterns) -> T) -> Option<T> {
    PATTERNS.try_with(|patterns| patterns.try_borrow_mut().ok().map(|mut patterns| work(&mut patterns))).ok().flatten()
}

static AT_THREADS_END: OnceLock<fn()> = OnceLock::new();

/// Has `leave` called where a thread ends that may be in a step, of the program's or one that it began by a start.
pub(crate) fn at_threads_end(leave: fn()) {
    let _ = AT_THREADS_END.set(leave);
}

/// Ends the program's own step with its thread. Made after what the session keeps of the thread, and so dropped before it.
struct Ends;

impl Drop for Ends {
    fn drop(&mut self) {
        if let Some(leave) = AT_THREADS_END.get() {
            leave();
        }
    }
}

thread_local! {
    static ENDS: Ends = const { Ends };
}

/// Has what is open on this thread end with it. To be called when the session knows the thread.
pub(crate) fn end_with_this_thread() {
    let _ = ENDS.try_with(|_| ());
}

/// What is known of these steps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StepTotals {
    /// Steps that were repetitions of a pattern.
    pub(crate) repeated: u64,
    /// All that ended with a result.
    pub(crate) ended: u64,
    /// Results that a repetition fetches at most.
    pub(crate) results: u64,
    /// Millionths by which repetitions differ from those before: the sum, and the most of one.
    pub(crate) differ_sum: u64,
    pub(crate) differ_most: u64,
}

/// The whole, in [`StepTotals::differ_sum`].
const WHOLE: f64 = 1e6;

impl StepTotals {
    /// How like repetitions were to those before, in the mean and at least: launches that both have ÷ launches that either has. `None`
    /// without any.
    pub(crate) fn alike(&self) -> Option<(f64, f64)> {
        let mean = self.differ_sum as f64 / self.repeated as f64;
        (self.repeated > 0).then(|| (1.0 - mean / WHOLE, 1.0 - self.differ_most as f64 / WHOLE))
    }
}

/// A call that puts work on a device.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(feature = "gpu"), allow(dead_code, reason = "nothing tells of calls then"))]
pub(crate) struct Call {
    /// It is in no step whose kernels are recorded.
    pub(crate) outside: bool,
    /// Which kernel or graph.
    pub(crate) what: u64,
    pub(crate) is_graph: bool,
}

/// After this time with nothing to do, which is also so many times what the step took until its result, the thread was not at work on
/// the step any more: it waited for its next request.
const IDLE: Duration = Duration::from_millis(100);
const IDLE_TIMES: u32 = 4;

/// How kernels are recorded, as far as steps depend on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recorded {
    /// All are to be. Until the first window opens, for so long at most, what comes before is the program's as well; where nothing
    /// comes of it, ranges are steps.
    pub(crate) all: Option<Duration>,
    /// Windows count the program's ranges, which are steps within them as well.
    pub(crate) ranges_are_steps: bool,
    /// Between windows nobody sees what is done.
    pub(crate) in_windows: bool,
    /// Seconds after which a step ends that fetches nothing.
    pub(crate) longest: u64,
}

impl Recorded {
    /// Nothing is, or it is not known.
    pub(crate) const PLAIN: Self = Self { all: None, ranges_are_steps: false, in_windows: false, longest: 1 };
}

/// Begins and ends these steps.
pub(crate) struct OwnSteps {
    ranges: Ranges,
    plain: RangeName,
    /// By pattern. Made when the first one is known: phases in a program that has none.
    repeated: [OnceLock<RangeName>; MOST],
    prompt: OnceLock<RangeName>,
    pub(crate) model: Option<Model>,
    recorded: Recorded,
    began: Instant,
    /// All kernels are to be recorded, and no window has opened yet.
    is_cold: AtomicBool,
    /// Seconds.
    time: AtomicU64,
    counts: [AtomicU64; 5],
}

impl OwnSteps {
    /// `kind` of a step that is like nothing.
    pub(crate) fn new(ranges: Ranges, kind: RangeKind, model: Option<Model>, recorded: Recorded) -> Self {
        Self {
            plain: ranges.name(PROGRAM_STEP, NO_DOMAIN, kind),
            ranges,
            repeated: Default::default(),
            prompt: OnceLock::new(),
            model,
            recorded,
            began: Instant::now(),
            is_cold: recorded.all.is_some().into(),
            time: AtomicU64::new(0),
            counts: Default::default(),
        }
    }

    /// The name of what repeats. A language model repeats itself token by token; of anything else it is not known what it repeats.
    fn repeated(&self, pattern: usize) -> RangeName {
        let made = || match (&self.model, pattern) {
            (Some(_), _) => self.ranges.name(Phase::Decode.as_str(), NO_DOMAIN, RangeKind::Phase(Phase::Decode)),
            (None, 0) => self.ranges.name(REPEATED_STEP, NO_DOMAIN, RangeKind::Interval),
            (None, more) => self.ranges.name(&format!("{REPEATED_STEP} {}", more + 1), NO_DOMAIN, RangeKind::Interval),
        };
        *self.repeated[pattern.min(MOST - 1)].get_or_init(made)
    }

    fn prompt(&self) -> RangeName {
        let name = Phase::Prefill.as_str();
        *self.prompt.get_or_init(|| self.ranges.name(name, NO_DOMAIN, RangeKind::Phase(Phase::Prefill)))
    }

    /// Another second has passed: steps that have fetched nothing end by time, so that a window has some, and kernels find their steps.
    pub(crate) fn tick(&self) {
        self.time.fetch_add(1, Ordering::Relaxed);
    }

    /// What is known of them.
    pub(crate) fn known(&self) -> StepTotals {
        let [repeated, ended, results, differ_sum, differ_most] =
            [0, 1, 2, 3, 4].map(|at: usize| self.counts[at].load(Ordering::Relaxed));
        StepTotals { repeated, ended, results, differ_sum, differ_most }
    }

    /// The program as a step, on this thread, until it makes a range here.
    pub(crate) fn enter(&self) {
        let here = here();
        if here.is_open {
            return;
        }
        let as_repeated = !here.marks_phases && with_patterns(|patterns| patterns.is_known()).unwrap_or(false);
        self.ranges.enter(if as_repeated { self.repeated(0) } else { self.plain }, NUMBER);
        let begun = self.time.load(Ordering::Relaxed);
        HERE.set(Here { is_open: true, fetched: None, as_repeated, began: Some(Instant::now()), begun, ..here });
        end_with_this_thread();
    }

    /// Ends that step without a result, if it is open on this thread.
    #[inline]
    pub(crate) fn leave(&self) {
        if here().is_open {
            let _ = with_patterns(Patterns::forget);
            self.leave_as(None);
        }
    }

    /// This thread makes a range that is a phase: the program says itself what it does.
    #[inline]
    pub(crate) fn marks_phases(&self) {
        let here = here();
        if !here.marks_phases {
            HERE.set(Here { marks_phases: true, ..here });
        }
    }

    fn leave_as(&self, was: Option<StepKind>) {
        let here = here();
        HERE.set(Here { is_open: false, fetched: None, ..here });
        if let Some(was) = was {
            self.count(was);
        }
        let did = |phase| self.model.as_ref().and_then(|model| model.did(phase));
        let (name, did) = match was {
            Some(StepKind::Repeated(pattern)) => (self.repeated(pattern), did(Phase::Decode)),
            Some(StepKind::Beside) if self.model.is_some() => (self.prompt(), did(Phase::Prefill)),
            _ => (self.plain, None),
        };
        let is_as_begun = name == if here.as_repeated { self.repeated(0) } else { self.plain };
        self.ranges.exit_as(NUMBER, (!is_as_begun).then_some(name), did);
    }

    fn count(&self, was: StepKind) {
        self.counts[1].fetch_add(1, Ordering::Relaxed);
        if let StepKind::Repeated(pattern) = was {
            self.counts[0].fetch_add(1, Ordering::Relaxed);
            let of = |patterns: &mut Patterns| (patterns.length(pattern), patterns.likeness());
            let (results, likeness) = with_patterns(of).unwrap_or((0, 1.0));
            let differs = ((1.0 - likeness) * WHOLE).round() as u64;
            self.counts[2].fetch_max(results as u64, Ordering::Relaxed);
            self.counts[3].fetch_add(differs, Ordering::Relaxed);
            self.counts[4].fetch_max(differs, Ordering::Relaxed);
        }
    }

    /// Whether the first window is yet to come. It may never: there is no CUPTI, or it is somebody else's.
    fn is_cold(&self) -> bool {
        let Some(most) = self.recorded.all.filter(|_| self.is_cold.load(Ordering::Relaxed)) else { return false };
        let is_cold = self.began.elapsed() < most;
        if !is_cold {
            self.is_cold.store(false, Ordering::Relaxed);
        }
        is_cold
    }

    /// A range begins that is in no other. One that is a phase is a step by itself, and so is every one where nothing tells when
    /// the program wants results; others, such as operators, are parts of the program's step.
    #[inline]
    pub(crate) fn around(&self, is_phase: bool, window: Option<u64>) {
        let here = here();
        if window.is_some() && self.is_cold.load(Ordering::Relaxed) {
            self.is_cold.store(false, Ordering::Relaxed);
        }
        let window = window.or_else(|| self.is_cold().then_some(COLD)).filter(|_| !self.recorded.ranges_are_steps);
        match window.filter(|window| !is_phase && *window != here.gave_up_in) {
            None => self.leave(),
            Some(_) if here.is_open && here.fetched.is_none() => {}
            Some(_) if here.is_open => _ = self.next(),
            Some(_) => self.enter(),
        }
    }

    /// A result was fetched and the program goes on: the next step begins, unless the one that is open wants more. Whether it does.
    fn next(&self) -> bool {
        let here = here();
        HERE.set(Here { fetched: None, ..here });
        let (was, is_new) = if here.marks_phases { (Some(StepKind::Other), false) } else { self.was() };
        let Some(was) = was else { return false };
        if here.is_open {
            // Named by what it did, a step would take as long as nobody asked for anything.
            self.leave_as(Some(if waited(&here) { StepKind::Other } else { was }));
        }
        if is_new {
            // Steps of another kind begin, also where there was no room for those before.
            HERE.set(Here { renewed_in: 0, gave_up_in: 0, ..self::here() });
        }
        if here.is_open {
            self.enter();
        }
        here.is_open
    }

    /// What the stretch that has ended makes of its step, if that ends with it, and whether the first pattern is known by it.
    fn was(&self) -> (Option<StepKind>, bool) {
        let least = self.model.as_ref().map_or(0, |model| model.layers());
        let ask = |patterns: &mut Patterns| {
            let was_known = patterns.is_known();
            patterns.at_least(least);
            (patterns.fetched(), patterns.is_known() != was_known)
        };
        with_patterns(ask).unwrap_or((None, false))
    }

    /// Work is put on a device by this thread. Without ranges around it, it belongs to a step of the program, which lasts until
    /// it has wanted a result and goes on after that: in generation, a token.
    #[inline]
    #[cfg_attr(not(feature = "gpu"), allow(dead_code, reason = "nothing tells of calls then"))]
    pub(crate) fn launches(&self, call: Call, window: Option<u64>) {
        if let Some(window) = window.filter(|_| open::count() == 0) {
            self.begin_or_go_on(call.outside, window);
        }
        let _ = with_patterns(|patterns| patterns.launches(call.what, call.is_graph));
    }

    #[inline]
    fn begin_or_go_on(&self, outside: bool, window: u64) {
        let Ok(here) = HERE.try_with(Cell::get) else { return };
        let is_new = here.came_to != window;
        if here.fetched.is_some() && self.next() {
            if is_new {
                self.comes_to(window);
            }
            return;
        }
        if is_new {
            self.comes_to(window);
        }
        if !outside {
            if here.is_open {
                // Most calls come to one that had room before.
                if here.had_room_in != window {
                    HERE.set(Here { had_room_in: window, ..self::here() });
                }
                if self.time.load(Ordering::Relaxed) > here.begun + self.recorded.longest {
                    self.leave();
                    self.enter();
                }
            }
            return;
        }
        self.renew(window);
    }

    /// Another window is open: what goes on may have begun before it, and nobody saw what the thread did until now.
    #[cold]
    fn comes_to(&self, window: u64) {
        let here = here();
        HERE.set(Here { came_to: window, ..here });
        let _ = with_patterns(Patterns::forget);
        if let Some(model) = self.model.as_ref().filter(|_| self.recorded.in_windows && !here.marks_phases) {
            model.lose();
        }
    }

    /// What is launched is in no step whose kernels are recorded, although a window is open.
    #[cold]
    fn renew(&self, window: u64) {
        let here = here();
        if here.gave_up_in == window {
            return;
        }
        if !here.is_open {
            // Anywhere between two results.
            let _ = with_patterns(Patterns::forget);
            return self.enter();
        }
        let renewed = if here.renewed_in == window { here.renewed } else { 0 };
        if renewed > 0 && here.patience > 0 {
            HERE.set(Here { patience: here.patience - 1, ..here });
            return;
        }
        self.leave();
        // Where there was room before, the window is full.
        if here.had_room_in == window || renewed == RENEWALS {
            HERE.set(Here { gave_up_in: window, ..self::here() });
            return;
        }
        HERE.set(Here { renewed_in: window, renewed: renewed + 1, patience: (1 << renewed) - 1, ..self::here() });
        self.enter();
    }

    /// This thread wants a result.
    #[inline]
    #[cfg_attr(not(feature = "gpu"), allow(dead_code, reason = "nothing tells of calls then"))]
    pub(crate) fn fetched(&self) {
        let _ = HERE.try_with(|here| here.set(Here { fetched: Some(Instant::now()), ..here.get() }));
    }
}

/// Whether the thread had nothing to do for long since the result of its step.
fn waited(here: &Here) -> bool {
    let (Some(fetched), Some(began)) = (here.fetched, here.began) else { return false };
    let idle = fetched.elapsed();
    idle > IDLE && idle > fetched.duration_since(began) * IDLE_TIMES
}
