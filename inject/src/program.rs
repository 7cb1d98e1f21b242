//! The program's own steps, of work outside of its ranges: each lasts from one result that the program fetches to the
//! next, or to one after several, where what is launched between them repeats.

mod inside;

use crate::inside_of_ranges;
use crate::model::Model;
use crate::open;
use crate::patterns::{FOUND, PassedBefore, Patterns, Repetition, StepKind, with_patterns};
use crate::step_names::StepNames;
use candlescope_core::{Annotation, Phase, RangeKind, Ranges};
use std::cell::{Cell, RefCell};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Number of the program's own step, among those of ranges.
const NUMBER: u64 = u64::MAX >> 1;

/// The program's own step on a thread.
#[derive(Debug, Clone, Copy)]
struct OwnStep {
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
    /// The window in which it was begun again because its kernels were not recorded, how often, and calls until it is
    /// once more.
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

const NOWHERE: OwnStep = OwnStep {
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

/// How often a step is begun again in a window: a moment passes between a window's beginning and that of its first
/// step. Each time twice as many calls are waited for.
const RENEWALS: u32 = 10;

thread_local! {
    static HERE: Cell<OwnStep> = const { Cell::new(NOWHERE) };
    static PATTERNS: RefCell<Patterns> = const { RefCell::new(Patterns::new(&FOUND)) };
}

fn here() -> OwnStep {
    HERE.try_with(Cell::get).unwrap_or(NOWHERE)
}

static AT_THREADS_END: OnceLock<fn()> = OnceLock::new();

/// Has `leave` called where a thread ends that may be in a step, of the program's or one that it began by a start.
pub(crate) fn at_threads_end(leave: fn()) {
    let _ = AT_THREADS_END.set(leave);
}

/// Ends the program's own step with its thread. Made after what the session keeps of the thread, and so dropped before
/// it.
struct EndsWithThread;

impl Drop for EndsWithThread {
    fn drop(&mut self) {
        if let Some(leave) = AT_THREADS_END.get() {
            leave();
        }
    }
}

thread_local! {
    static ENDS: EndsWithThread = const { EndsWithThread };
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
    /// Steps that ended with a result while a pattern was known, by which they might have been foretold.
    pub(crate) foretold: u64,
}

/// The whole, in [`StepTotals::differ_sum`].
const WHOLE: f64 = 1e6;

/// Of the normal distribution: 95 % lie within so many standard deviations of its mean.
const Z: f64 = 1.96;

impl StepTotals {
    /// How sure it is that a step is what its pattern says: the share of those that a known pattern foretold which were
    /// repetitions, as the lower end of its interval of 95 % (Wilson's), so that three of three are no certainty.
    /// `None` without any.
    pub(crate) fn confidence(&self) -> Option<f64> {
        let n = self.foretold as f64;
        let share = (self.repeated as f64 / n).min(1.0);
        let spread = Z * (share * (1.0 - share) / n + (Z / (2.0 * n)).powi(2)).sqrt();
        (self.foretold > 0).then(|| ((share + Z * Z / (2.0 * n) - spread) / (1.0 + Z * Z / n)).clamp(0.0, 1.0))
    }

    /// How like repetitions were to those before, in the mean and at least: launches that both have ÷ launches that
    /// either has. `None` without any.
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

/// After this time with nothing to do, which is also so many times what the step took until its result, the thread was
/// not at work on the step any more: it waited for its next request.
const IDLE: Duration = Duration::from_millis(100);
const IDLE_TIMES: u32 = 4;

/// How kernels are recorded, as far as steps depend on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KernelRecording {
    /// All are to be. Until the first window opens, for so long at most, what comes before is the program's as well;
    /// where nothing comes of it, ranges are steps.
    pub(crate) all: Option<Duration>,
    /// Windows count the program's ranges, which are steps within them as well.
    pub(crate) ranges_are_steps: bool,
    /// Between windows nobody sees what is done.
    pub(crate) in_windows: bool,
    /// Seconds after which a step ends that fetches nothing.
    pub(crate) longest: u64,
}

impl KernelRecording {
    /// Nothing is, or it is not known.
    pub(crate) const PLAIN: Self = Self { all: None, ranges_are_steps: false, in_windows: false, longest: 1 };
}

/// Begins and ends these steps.
pub(crate) struct OwnSteps {
    ranges: Ranges,
    names: StepNames,
    names_inside: StepNames,
    /// Steps are looked for inside of ranges that stay open, too.
    cuts_inside: bool,
    pub(crate) model: Option<Model>,
    recorded: KernelRecording,
    began: Instant,
    /// All kernels are to be recorded, and no window has opened yet.
    is_cold: AtomicBool,
    /// Seconds.
    time: AtomicU64,
    counts: [AtomicU64; 6],
}

impl OwnSteps {
    /// `kind` of a step that is like nothing.
    pub(crate) fn new(ranges: Ranges, kind: RangeKind, model: Option<Model>, recorded: KernelRecording) -> Self {
        Self {
            names: StepNames::outside(&ranges, kind),
            names_inside: StepNames::inside(&ranges),
            cuts_inside: kind == RangeKind::Interval && !recorded.ranges_are_steps,
            ranges,
            model,
            recorded,
            began: Instant::now(),
            is_cold: recorded.all.is_some().into(),
            time: AtomicU64::new(0),
            counts: Default::default(),
        }
    }

    /// Another second has passed: steps that have fetched nothing end by time, so that a window has some, and kernels
    /// find their steps.
    pub(crate) fn tick(&self) {
        self.time.fetch_add(1, Ordering::Relaxed);
    }

    /// What is known of them.
    pub(crate) fn known(&self) -> StepTotals {
        let [repeated, ended, results, differ_sum, differ_most, foretold] =
            [0, 1, 2, 3, 4, 5].map(|at: usize| self.counts[at].load(Ordering::Relaxed));
        StepTotals { repeated, ended, results, differ_sum, differ_most, foretold }
    }

    /// The program as a step, on this thread, until it makes a range here.
    pub(crate) fn enter(&self) {
        let here = here();
        if here.is_open {
            return;
        }
        let as_repeated =
            !here.marks_phases && with_patterns(&PATTERNS, |patterns| patterns.is_known()).unwrap_or(false);
        self.ranges.enter(self.names.at_begin(&self.ranges, as_repeated, self.model.is_some()), NUMBER);
        let begun = self.time.load(Ordering::Relaxed);
        HERE.set(OwnStep { is_open: true, fetched: None, as_repeated, began: Some(Instant::now()), begun, ..here });
        end_with_this_thread();
    }

    /// Ends that step without a result, if it is open on this thread.
    #[inline]
    pub(crate) fn leave(&self) {
        self.leave_inside();
        if here().is_open {
            let _ = with_patterns(&PATTERNS, Patterns::forget);
            self.leave_as(None);
        }
    }

    /// This thread makes a range that is a phase: the program says itself what it does.
    #[inline]
    pub(crate) fn marks_phases(&self) {
        let here = here();
        if !here.marks_phases {
            HERE.set(OwnStep { marks_phases: true, ..here });
        }
    }

    fn leave_as(&self, was: Option<StepKind>) {
        let here = here();
        HERE.set(OwnStep { is_open: false, fetched: None, ..here });
        let begun_as = self.names.at_begin(&self.ranges, here.as_repeated, self.model.is_some());
        let name = self.names.at_end(&self.ranges, was, self.model.is_some());
        self.ranges.exit_as(NUMBER, (name != begun_as).then_some(name), self.did(was));
    }

    /// What a step did that was this, where the model says it.
    fn did(&self, was: Option<StepKind>) -> Option<Annotation> {
        let model = self.model.as_ref()?;
        match was? {
            StepKind::Repeated(_) => model.did(Phase::Decode),
            StepKind::Beside => model.did(Phase::Prefill),
            StepKind::Other => None,
        }
    }

    /// Counts a step that ended with a result.
    fn count(&self, is_foretold: bool, repetition: Option<Repetition>) {
        self.counts[1].fetch_add(1, Ordering::Relaxed);
        self.counts[5].fetch_add(u64::from(is_foretold), Ordering::Relaxed);
        if let Some(Repetition { results, likeness }) = repetition {
            self.counts[0].fetch_add(1, Ordering::Relaxed);
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

    /// A range begins that is in no other. One that is a phase is a step by itself, and so is every one where nothing
    /// tells when the program wants results; others, such as operators, are parts of the program's step.
    #[inline]
    pub(crate) fn around(&self, is_phase: bool, window: Option<u64>) {
        inside_of_ranges::outermost(self.time.load(Ordering::Relaxed));
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

    /// A result was fetched and the program goes on: the next step begins, unless the one that is open wants more.
    /// Whether it does.
    fn next(&self) -> bool {
        let here = here();
        HERE.set(OwnStep { fetched: None, ..here });
        let said = if here.marks_phases {
            PatternVerdict { was: Some(StepKind::Other), ..PatternVerdict::default() }
        } else {
            self.was()
        };
        let Some(was) = said.was else { return false };
        if here.is_open {
            // Named by what it did, a step would take as long as nobody asked for anything.
            let waited = waited(here.fetched, here.began);
            self.count(said.is_foretold && !waited, said.repetition.filter(|_| !waited));
            self.leave_as(Some(if waited { StepKind::Other } else { was }));
        }
        self.recognises(said.passed);
        if said.is_known != said.was_known {
            // Steps of another kind begin, also where there was no room for those before.
            HERE.set(OwnStep { renewed_in: 0, gave_up_in: 0, ..self::here() });
        }
        if here.is_open {
            self.enter();
        }
        here.is_open
    }

    /// What the stretch that has ended makes of its step, if that ends with it.
    fn was(&self) -> PatternVerdict {
        with_patterns(&PATTERNS, |patterns| self.ask(patterns)).unwrap_or_default()
    }

    /// The same of these patterns.
    fn ask(&self, patterns: &mut Patterns) -> PatternVerdict {
        let (was_known, is_foretold) = (patterns.is_known(), patterns.foretells());
        // What repeats with fewer launches is no token of the model.
        patterns.at_least(self.model.as_ref().map_or(0, |model| model.layers()));
        let was = patterns.fetched();
        PatternVerdict {
            was,
            was_known,
            is_foretold,
            is_known: patterns.is_known(),
            repetition: was.and_then(|was| patterns.repetition(was)),
            passed: patterns.passed(),
        }
    }

    /// A pattern became known with the step that has ended: what the model is told of what came before it.
    fn recognises(&self, passed: Option<PassedBefore>) {
        if let (Some(model), Some(passed)) = (&self.model, passed) {
            model.recognises(passed);
        }
    }

    /// Seconds after which a step ends that fetches nothing.
    fn longest(&self) -> u64 {
        self.recorded.longest
    }

    /// Whether this thread makes ranges that are phases.
    fn has_phases(&self) -> bool {
        here().marks_phases
    }

    /// This window is open.
    fn sees(&self, window: u64) {
        if here().came_to != window {
            self.comes_to(window);
        }
    }

    /// Work is put on a device by this thread. Without ranges around it, it belongs to a step of the program, which
    /// lasts until it has wanted a result and goes on after that: in generation, a token.
    #[inline]
    #[cfg_attr(not(feature = "gpu"), allow(dead_code, reason = "nothing tells of calls then"))]
    pub(crate) fn launches(&self, call: Call, window: Option<u64>) {
        if open::count() > 0 {
            self.inside(Some(call.outside), window);
            inside_of_ranges::launches(call.what, call.is_graph);
        } else {
            inside_of_ranges::outermost(self.time.load(Ordering::Relaxed));
            if let Some(window) = window {
                self.begin_or_go_on(call.outside, window);
            }
        }
        let _ = with_patterns(&PATTERNS, |patterns| patterns.launches(call.what, call.is_graph));
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
                    HERE.set(OwnStep { had_room_in: window, ..self::here() });
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
        HERE.set(OwnStep { came_to: window, ..here });
        let _ = with_patterns(&PATTERNS, Patterns::forget);
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
            let _ = with_patterns(&PATTERNS, Patterns::forget);
            return self.enter();
        }
        let renewed = if here.renewed_in == window { here.renewed } else { 0 };
        if renewed > 0 && here.patience > 0 {
            HERE.set(OwnStep { patience: here.patience - 1, ..here });
            return;
        }
        self.leave();
        // Where there was room before, the window is full.
        if here.had_room_in == window || renewed == RENEWALS {
            HERE.set(OwnStep { gave_up_in: window, ..self::here() });
            return;
        }
        HERE.set(OwnStep { renewed_in: window, renewed: renewed + 1, patience: (1 << renewed) - 1, ..self::here() });
        self.enter();
    }

    /// This thread wants a result.
    #[inline]
    #[cfg_attr(not(feature = "gpu"), allow(dead_code, reason = "nothing tells of calls then"))]
    pub(crate) fn fetched(&self) {
        let now = Instant::now();
        let _ = HERE.try_with(|here| here.set(OwnStep { fetched: Some(now), ..here.get() }));
        let _ = with_patterns(&PATTERNS, Patterns::wants);
        inside_of_ranges::fetched(now);
    }
}

/// Whether the thread had nothing to do for long since the result of its step.
fn waited(fetched: Option<Instant>, began: Option<Instant>) -> bool {
    let (Some(fetched), Some(began)) = (fetched, began) else { return false };
    let idle = fetched.elapsed();
    idle > IDLE && idle > fetched.duration_since(began) * IDLE_TIMES
}

/// What patterns say of a stretch that has ended.
#[derive(Debug, Clone, Copy, Default)]
struct PatternVerdict {
    /// What its step was, if that ends with it.
    was: Option<StepKind>,
    /// Whether a pattern was known before, and is now.
    was_known: bool,
    is_known: bool,
    /// Whether a pattern said what it was to be.
    is_foretold: bool,
    repetition: Option<Repetition>,
    /// What came before, where a pattern became known.
    passed: Option<PassedBefore>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_that_foretold_little_is_less_sure_than_one_that_foretold_much() {
        let of = |repeated, foretold| StepTotals { repeated, foretold, ..StepTotals::default() }.confidence();
        let [few, many, half] = [(3, 3), (100, 100), (50, 100)].map(|(n, of_n)| of(n, of_n).expect("some"));
        assert!(
            (few - 0.438).abs() < 1e-3 && (many - 0.963).abs() < 1e-3 && (half - 0.404).abs() < 1e-3,
            "{few} {many} {half}"
        );
        assert_eq!((of(0, 0), of(0, 4)), (None, Some(0.0)));
    }
}
