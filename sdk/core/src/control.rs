//! When to record: runtime start and stop, schedules, and windows of steps. Decisions are taken where a step begins, so that
//! enter and exit always balance.

use crate::sync::atomic::Ordering::SeqCst;
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use crate::sync::{Mutex, PoisonError};
use std::ops::Range;

/// Which steps are recorded, as in the PyTorch profiler: after `skip_first` steps, cycles of `wait` steps that are not recorded,
/// `warmup` steps that are not recorded either but run right before the recorded ones, and `active` recorded steps; `repeat`
/// cycles, 0 for no end.
///
/// ```
/// use candlescope_core::{Schedule, StepAction};
/// let schedule = Schedule { skip_first: 1, wait: 1, warmup: 1, active: 2, repeat: 1 };
/// let actions: Vec<_> = (0..7).map(|step| schedule.action(step)).collect();
/// use StepAction::*;
/// assert_eq!(actions, [Skip, Skip, Warmup, Record, Record, Skip, Skip]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Schedule {
    /// Steps skipped once, at the start.
    pub skip_first: u64,
    /// Steps skipped at the start of each cycle.
    pub wait: u64,
    /// Steps after that which are not recorded yet.
    pub warmup: u64,
    /// Steps recorded in each cycle.
    pub active: u64,
    /// Cycles; 0 repeats for ever.
    pub repeat: u64,
}

/// What a schedule says of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepAction {
    /// Not recorded.
    Skip,
    /// Not recorded; the recorded ones come next.
    Warmup,
    /// Recorded.
    Record,
}

impl Schedule {
    /// What to do with step number `step`, counted from 0.
    pub fn action(&self, step: u64) -> StepAction {
        let Some(step) = step.checked_sub(self.skip_first) else {
            return StepAction::Skip;
        };
        let idle = self.wait.saturating_add(self.warmup);
        let cycle = idle.saturating_add(self.active);
        if cycle == 0 || (self.repeat > 0 && step / cycle >= self.repeat) {
            return StepAction::Skip;
        }
        match step % cycle {
            at if at < self.wait => StepAction::Skip,
            at if at < idle => StepAction::Warmup,
            _ => StepAction::Record,
        }
    }
}

/// How often a window is tried to be opened between two steps.
const OPENING_ATTEMPTS: usize = 1_000;

const OFF: u8 = 0;
const ON: u8 = 1;
const SCHEDULED: u8 = 2;

/// Shared between the layer and the session's handle.
#[derive(Debug)]
pub(crate) struct Control {
    mode: AtomicU8,
    schedule: Option<Schedule>,
    steps: AtomicU64,
    /// Steps below this number are recorded whatever the mode: the end of the latest window that was asked for.
    window_end: AtomicU64,
    /// Steps below this number get all the detail there is.
    full_end: AtomicU64,
    /// Held while a window is opened; no application thread takes it.
    opening: Mutex<()>,
    closed: AtomicBool,
}

/// What was decided for a step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepDecision {
    pub(crate) number: u64,
    pub(crate) fate: StepFate,
}

/// What becomes of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepFate {
    /// Recorded, because recording is on or the schedule says so.
    Recorded,
    /// Recorded only because of a window.
    Captured,
    /// The schedule leaves it out.
    ScheduledOut,
    /// Left plain, to measure what recording costs.
    Plain,
    /// Recording is off.
    Paused,
    /// The session is over.
    Closed,
}

impl StepFate {
    #[inline]
    pub(crate) fn is_recorded(self) -> bool {
        matches!(self, Self::Recorded | Self::Captured)
    }
}

impl Control {
    pub(crate) fn new(schedule: Option<Schedule>, start_paused: bool) -> Self {
        let mode = match (start_paused, schedule) {
            (true, _) => OFF,
            (false, Some(_)) => SCHEDULED,
            (false, None) => ON,
        };
        Self {
            mode: AtomicU8::new(mode),
            schedule,
            steps: AtomicU64::new(0),
            window_end: AtomicU64::new(0),
            full_end: AtomicU64::new(0),
            opening: Mutex::new(()),
            closed: AtomicBool::new(false),
        }
    }

    /// Called where a step begins.
    pub(crate) fn begin_step(&self) -> StepDecision {
        // The order of these two against those of `open_window` is what makes a window exact.
        let number = self.steps.fetch_add(1, SeqCst);
        let in_window = number < self.window_end.load(SeqCst);
        let fate = if self.closed.load(Ordering::Relaxed) { StepFate::Closed } else { self.fate(number, in_window) };
        StepDecision { number, fate }
    }

    #[inline]
    fn fate(&self, step: u64, in_window: bool) -> StepFate {
        let without_window = match self.mode.load(Ordering::Relaxed) {
            ON => return StepFate::Recorded,
            SCHEDULED if self.schedule.is_some_and(|s| s.action(step) == StepAction::Record) => {
                return StepFate::Recorded;
            }
            SCHEDULED => StepFate::ScheduledOut,
            _ => StepFate::Paused,
        };
        if in_window { StepFate::Captured } else { without_window }
    }

    /// Whether a step gets all the detail there is, whatever was chosen for the session.
    #[inline]
    pub(crate) fn in_full(&self, step: u64) -> bool {
        step < self.full_end.load(Ordering::Relaxed)
    }

    /// Whether a step is recorded because somebody asked for it and the ones beside it.
    #[inline]
    pub(crate) fn in_window(&self, step: u64) -> bool {
        step < self.window_end.load(SeqCst)
    }

    /// Whether intervals above steps are recorded now: whether a step that began now would be.
    pub(crate) fn records_above_steps(&self) -> bool {
        let next = self.steps.load(Ordering::Relaxed);
        let in_window = next < self.window_end.load(Ordering::Relaxed);
        !self.closed.load(Ordering::Relaxed) && self.fate(next, in_window).is_recorded()
    }

    /// Whether requests that begin or end now are recorded. A schedule says which steps are; requests are few, and a
    /// part of them would be no sample of the rest.
    pub(crate) fn records_requests(&self) -> bool {
        self.mode.load(Ordering::Relaxed) != OFF
            || self.steps.load(Ordering::Relaxed) < self.window_end.load(Ordering::Relaxed)
    }

    pub(crate) fn start(&self) {
        self.mode.store(if self.schedule.is_some() { SCHEDULED } else { ON }, Ordering::Relaxed);
    }

    pub(crate) fn stop(&self) {
        self.mode.store(OFF, Ordering::Relaxed);
    }

    /// The schedule, where there is one.
    pub(crate) fn schedule(&self) -> Option<Schedule> {
        self.schedule
    }

    /// Records the next `steps` steps even where the mode says otherwise, `in_full` with all the detail there is. Returns their numbers,
    /// or `None` while such a window is open. All of these steps are recorded, over all threads, and it says so before the first begins.
    pub(crate) fn open_window(&self, steps: u64, in_full: bool) -> Option<Range<u64>> {
        let _one_at_a_time = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.steps.load(SeqCst);
        if self.window_end.load(SeqCst) > before {
            return None;
        }
        // Where no step began while the end was written, those that come see it, and there are as many as were asked for.
        let mut first = before;
        for _ in 0..OPENING_ATTEMPTS {
            let window = first..first.saturating_add(steps);
            self.end_at(window.end, in_full);
            let next = self.steps.load(SeqCst);
            if next == first {
                return Some(window);
            }
            first = next;
        }
        // Steps that follow one another that fast: until the first one's number is known every step is in the window. One
        // that took its number after it was read cannot have missed that; one beyond the end may be recorded besides.
        self.end_at(u64::MAX, in_full);
        let first = self.steps.load(SeqCst);
        let window = first..first.saturating_add(steps);
        self.end_at(window.end, in_full);
        Some(window)
    }

    fn end_at(&self, end: u64, in_full: bool) {
        if in_full {
            self.full_end.store(end, SeqCst);
        }
        self.window_end.store(end, SeqCst);
    }

    /// Ends the window before step `end`, for steps that have not begun; one that was opened since goes on.
    pub(crate) fn close_window(&self, end: u64) {
        let _one_at_a_time = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if self.window_end.load(SeqCst) == end {
            self.full_end.store(0, SeqCst);
            self.window_end.store(0, SeqCst);
        }
    }

    /// Steps of the window that have not begun.
    pub(crate) fn remaining(&self) -> u64 {
        let _not_while_opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        self.window_end.load(SeqCst).saturating_sub(self.steps.load(SeqCst))
    }

    pub(crate) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Whether the session is over.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_window_has_exactly_the_steps_it_was_asked_for_on_any_number_of_threads() {
        for _ in 0..50 {
            let control = Control::new(None, true);
            let stop = AtomicBool::new(false);
            let (recorded, window) = std::thread::scope(|scope| {
                let workers: Vec<_> = (0..3)
                    .map(|_| {
                        scope.spawn(|| {
                            let mut recorded = Vec::new();
                            while !stop.load(Ordering::Relaxed) {
                                let step = control.begin_step();
                                if step.fate.is_recorded() {
                                    recorded.push(step.number);
                                }
                            }
                            recorded
                        })
                    })
                    .collect();
                std::thread::yield_now();
                let window = control.open_window(20, false).expect("none is open");
                while control.remaining() > 0 {
                    std::thread::yield_now();
                }
                stop.store(true, Ordering::Relaxed);
                let recorded: Vec<u64> = workers.into_iter().flat_map(|w| w.join().expect("ends")).collect();
                (recorded, window)
            });
            // A step before it may be recorded besides, if it began while the window was being opened; none of it is missing.
            let inside = recorded.iter().filter(|n| window.contains(n)).count();
            assert_eq!(inside, 20, "{window:?}: {recorded:?}");
            assert!(recorded.iter().all(|n| *n < window.end), "{window:?}: {recorded:?}");
        }
    }

    #[test]
    fn one_window_at_a_time_and_a_closed_one_makes_room() {
        let control = Control::new(None, true);
        assert_eq!(control.open_window(3, true), Some(0..3));
        assert_eq!(control.open_window(1, false), None);
        assert_eq!(control.begin_step().fate, StepFate::Captured);
        assert!(control.in_full(0) && control.in_full(2) && !control.in_full(3));
        assert_eq!(control.remaining(), 2);
        control.close_window(2);
        assert_eq!(control.remaining(), 2, "another window's end");
        control.close_window(3);
        assert_eq!((control.remaining(), control.begin_step().fate), (0, StepFate::Paused));
        assert_eq!(control.open_window(1, false), Some(2..3));
    }
    #[test]
    fn a_window_is_told_from_the_schedule_and_requests_from_steps() {
        use StepFate::{Captured, Closed, Paused, Recorded, ScheduledOut};
        let schedule = Schedule { skip_first: 1, wait: 1, warmup: 0, active: 1, repeat: 0 };
        let control = Control::new(Some(schedule), false);
        let fates = |n: usize| (0..n).map(|_| control.begin_step().fate).collect::<Vec<_>>();
        assert_eq!(fates(3), [ScheduledOut, ScheduledOut, Recorded]);
        assert!(!control.records_above_steps() && control.records_requests());
        control.open_window(2, false);
        assert!(control.records_above_steps());
        assert_eq!(fates(3), [Captured, Recorded, ScheduledOut]);
        control.stop();
        assert!(!control.records_above_steps() && !control.records_requests());
        assert_eq!(fates(1), [Paused]);
        control.open_window(1, false);
        assert!(control.records_requests());
        assert_eq!(fates(2), [Captured, Paused]);
        control.start();
        control.close();
        assert_eq!(fates(1), [Closed]);
        assert!(!control.records_above_steps());
    }
}
