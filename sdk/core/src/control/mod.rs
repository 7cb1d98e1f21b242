//! When to record: start and stop at run time, schedules, and windows of steps. What becomes of a step is decided by
//! one call when it begins, so that enter and exit always balance.

mod kernel_window;

use crate::budget::Budget;
use crate::{Schedule, StepAction};
pub(crate) use kernel_window::KernelWindow;

use crate::sync::atomic::Ordering::SeqCst;
use crate::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use crate::sync::{Mutex, PoisonError};
use std::ops::Range;
use std::time::Duration;

/// How often opening a window between two steps is tried.
const OPENING_ATTEMPTS: usize = 1_000;

const OFF: u8 = 0;
const ON: u8 = 1;
const SCHEDULED: u8 = 2;

/// The session goes on.
const OPEN: u8 = 0;
/// It has ended.
const CLOSED: u8 = 1;
/// It goes on, and an experiment takes some of its steps.
const EXPERIMENT: u8 = 2;

/// Shared by the layer and the session's handle.
#[derive(Debug)]
pub(crate) struct Control {
    mode: AtomicU8,
    schedule: Option<Schedule>,
    /// Steps that the schedule, if any, would have recorded and that this leaves out.
    budget: Option<Budget>,
    steps: AtomicU64,
    /// Steps below this number are recorded whatever the mode: the end of the latest window that was asked for.
    window_end: AtomicU64,
    /// Steps below this number are recorded in full detail.
    full_end: AtomicU64,
    /// Steps below this number have their kernels recorded: the recorder is on for them.
    kernels_end: AtomicU64,
    /// `None` if the session has no recorder of kernels.
    kernels: Option<KernelWindow>,
    /// Number after that of the latest step that is recorded; 0 if there is none. Threads that store at once may leave
    /// the lower one.
    recorded_until: AtomicU64,
    /// Held while a window is opened; no application thread takes it.
    opening: Mutex<()>,
    /// Whether steps are looked at: [`OPEN`], [`CLOSED`], [`EXPERIMENT`].
    life: AtomicU8,
}

/// What was decided about a step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepDecision {
    pub(crate) number: u64,
    pub(crate) fate: StepFate,
    /// It is recorded in full detail, whatever was chosen for the session.
    pub(crate) full: bool,
    /// Its kernels are recorded.
    pub(crate) kernels: bool,
    /// It has no record, and the step before it has one: it ends a row of recorded steps.
    pub(crate) ends_row: bool,
}

/// What becomes of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepFate {
    /// Recorded, because recording is on or the schedule says so.
    Recorded,
    /// Recorded only because of a window.
    Captured,
    /// Left out by the schedule or the budget.
    ScheduledOut,
    /// Left plain, to measure the cost of recording.
    Plain,
    /// Part of an experiment.
    Perturbed,
    /// Recording was off when it began, and no window took it.
    Paused,
    /// The session has ended.
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
            budget: None,
            steps: AtomicU64::new(0),
            window_end: AtomicU64::new(0),
            full_end: AtomicU64::new(0),
            kernels_end: AtomicU64::new(0),
            kernels: None,
            recorded_until: AtomicU64::new(0),
            opening: Mutex::new(()),
            life: AtomicU8::new(OPEN),
        }
    }

    /// Adds a budget for the share of steps' time that recording may take.
    pub(crate) fn with_budget(mut self, target: Option<f64>) -> Self {
        self.budget = target.map(Budget::new);
        self
    }

    /// The budget, if there is one.
    pub(crate) const fn budget(&self) -> Option<&Budget> {
        self.budget.as_ref()
    }

    /// Adds a recorder of kernels, which is on in the windows of `schedule`, or only on request.
    pub(crate) fn with_kernels(mut self, schedule: Option<Schedule>) -> Self {
        self.kernels = Some(KernelWindow::new(schedule));
        self
    }

    /// With at least this time between two of its windows, which do not begin yet if they are `held`.
    pub(crate) fn with_kernels_apart(mut self, apart: Duration, held: bool) -> Self {
        self.kernels = self.kernels.map(|window| window.apart(apart)).map(|w| if held { w.held() } else { w });
        self
    }

    /// Windows of kernels; `None` if the session has no recorder of kernels.
    pub(crate) fn kernels(&self) -> Option<&KernelWindow> {
        self.kernels.as_ref()
    }

    /// Called when a step begins of which nothing else decides.
    pub(crate) fn begin_step(&self, own_kernels: bool, leaves_plain: impl FnOnce() -> bool) -> StepDecision {
        self.begin_affordable_step(own_kernels, false, || true, leaves_plain)
    }

    /// Called when a step begins. `own_kernels` is false if the kernels of the step around it are recorded, or if its
    /// own cannot be. An experiment takes the step if `perturbed`, unless a window was asked for. `affords`, whether
    /// the budget lets it be recorded, and then `leaves_plain` are asked only about steps that are to be recorded and
    /// are in no window.
    #[inline]
    pub(crate) fn begin_affordable_step(
        &self,
        own_kernels: bool,
        perturbed: bool,
        affords: impl FnOnce() -> bool,
        leaves_plain: impl FnOnce() -> bool,
    ) -> StepDecision {
        // A window is exact because of the order of these two operations and of those in `open_window`.
        let number = self.steps.fetch_add(1, SeqCst);
        let in_window = number < self.window_end.load(SeqCst);
        let fate = match self.is_closed() {
            true => StepFate::Closed,
            false if perturbed && !in_window => StepFate::Perturbed,
            false => match self.fate(number, in_window) {
                // A step of a window of kernels pays for the recorder whether it has a record or not.
                StepFate::Recorded if !in_window && !self.in_kernel_window() && !affords() => StepFate::ScheduledOut,
                StepFate::Recorded if !in_window && leaves_plain() => StepFate::Plain,
                fate => fate,
            },
        };
        let full = in_window && number < self.full_end.load(SeqCst);
        let kernels = match &self.kernels {
            Some(window) if own_kernels && fate.is_recorded() => {
                window.begin_step(full && number < self.kernels_end.load(SeqCst))
            }
            _ => false,
        };
        let ends_row = !self.note_recorded(number, fate) && fate != StepFate::Closed && self.follows_recorded(number);
        StepDecision { number, fate, full, kernels, ends_row }
    }

    /// Notes a step that is recorded; returns whether it is.
    #[inline]
    fn note_recorded(&self, number: u64, fate: StepFate) -> bool {
        let recorded = fate.is_recorded();
        if recorded && self.recorded_until.load(Ordering::Relaxed) <= number {
            self.recorded_until.store(number + 1, Ordering::Relaxed);
        }
        recorded
    }

    /// Whether the step before this one is recorded. Its thread may not have noted that yet; a schedule knows.
    fn follows_recorded(&self, number: u64) -> bool {
        let Some(before) = number.checked_sub(1) else { return false };
        let by_schedule = || {
            self.mode.load(Ordering::Relaxed) == SCHEDULED
                && self.budget.is_none()
                && self.schedule.is_some_and(|s| s.action(before) == StepAction::Record)
        };
        self.recorded_until.load(Ordering::Relaxed) == number || by_schedule()
    }

    /// Whether a step that is recorded has begun since step `number`, which is not, began.
    pub(crate) fn recorded_since(&self, number: u64) -> bool {
        self.recorded_until.load(Ordering::Relaxed) > number
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

    /// Whether steps that begin now are a window's whose kernels are recorded.
    #[inline]
    fn in_kernel_window(&self) -> bool {
        self.budget.is_some() && self.takes_kernels()
    }

    /// Whether a window of kernels takes the steps that begin now, or one was asked for that has steps left.
    pub(crate) fn in_a_window(&self) -> bool {
        self.takes_kernels() || self.steps.load(SeqCst) < self.window_end.load(SeqCst)
    }

    fn takes_kernels(&self) -> bool {
        self.kernels.as_ref().is_some_and(KernelWindow::takes_steps)
    }

    /// Whether intervals above steps are recorded now, that is, whether a step that began now would be.
    pub(crate) fn records_above_steps(&self) -> bool {
        let next = self.steps.load(Ordering::Relaxed);
        let in_window = next < self.window_end.load(Ordering::Relaxed);
        !self.is_closed() && self.fate(next, in_window).is_recorded()
    }

    /// Whether requests that begin or end now are recorded. A schedule does not leave out requests: they are few, and
    /// some of them would be no sample of the rest.
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

    /// The schedule, if there is one.
    pub(crate) fn schedule(&self) -> Option<Schedule> {
        self.schedule
    }

    /// Records the next `steps` steps even if the mode says otherwise. With `in_full` they are recorded in full detail,
    /// and with their kernels if the recorder is on for a capture. Returns their numbers, or `None` if such a window is
    /// open already. All of these steps are recorded, on all threads; their numbers are known before the first of them
    /// begins.
    pub(crate) fn open_window(&self, steps: u64, in_full: bool) -> Option<Range<u64>> {
        let _one_at_a_time = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.steps.load(SeqCst);
        if self.window_end.load(SeqCst) > before {
            return None;
        }
        // Locked until everything is stored, so that a recorder that fails meanwhile is not taken for one that is on.
        let recorder = self.kernels.as_ref().filter(|_| in_full).and_then(KernelWindow::on_for_capture);
        let end_at = |end: u64| self.end_at(end, in_full, recorder.is_some());
        // If no step began while the end was stored, all later steps see it, and the window has as many steps as were
        // asked for.
        let mut window = before..before.saturating_add(steps);
        let mut attempts = 0..OPENING_ATTEMPTS;
        loop {
            if attempts.next().is_none() {
                // Steps follow one another too fast: until the first step's number is known, every step is in the
                // window. A step that takes its number after that number was read sees the window; a step beyond the
                // final end may be recorded in addition.
                end_at(u64::MAX);
                let first = self.steps.load(SeqCst);
                window = first..first.saturating_add(steps);
                end_at(window.end);
                break;
            }
            end_at(window.end);
            let next = self.steps.load(SeqCst);
            if next == window.start {
                break;
            }
            window = next..next.saturating_add(steps);
        }
        if let Some(mut recorder) = recorder {
            recorder.capture_until(window.end);
        }
        Some(window)
    }

    fn end_at(&self, end: u64, in_full: bool, with_kernels: bool) {
        // The last of these stores opens the window; steps that see it also see the others.
        if with_kernels {
            self.kernels_end.store(end, SeqCst);
        }
        if in_full {
            self.full_end.store(end, SeqCst);
        }
        self.window_end.store(end, SeqCst);
    }

    /// Ends the window before step `end`, for steps that have not begun. A window that was opened since then stays
    /// open.
    pub(crate) fn close_window(&self, end: u64) {
        let _one_at_a_time = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if self.window_end.load(SeqCst) == end {
            self.kernels_end.store(0, SeqCst);
            self.full_end.store(0, SeqCst);
            self.window_end.store(0, SeqCst);
        }
    }

    /// Ends the capture's window `window` with the steps that have begun, if it is still open. `told` is called with
    /// the first step that is no more in it, before any step can see that. A step that begins meanwhile may be recorded
    /// in addition.
    pub(crate) fn cut_window(&self, window: &Range<u64>, told: impl FnOnce(u64)) {
        let _one_at_a_time = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if self.window_end.load(SeqCst) != window.end {
            return;
        }
        // Not zero: a step that has its number already, and looks at the window only now, is in it.
        let cut = self.steps.load(SeqCst).clamp(window.start, window.end);
        told(cut);
        for end in [&self.kernels_end, &self.full_end, &self.window_end] {
            end.fetch_min(cut, SeqCst);
        }
        if let Some(recorder) = &self.kernels {
            recorder.cut_capture(cut);
        }
    }

    /// A capture has ended, or does not begin: the recorder of kernels need not be on for it any more.
    pub(crate) fn end_capture(&self) {
        if let Some(window) = &self.kernels {
            window.end_capture();
        }
    }

    /// Whether the recorder of kernels is on and nobody needs more than the kernels of steps that have begun: the
    /// counted window has no steps left, and a step has begun after those of the capture.
    pub(crate) fn kernels_used_up(&self) -> bool {
        self.kernels.as_ref().is_some_and(|window| window.is_used_up(self.steps.load(SeqCst)))
    }

    /// Pauses the recorder of kernels while the last kernels of a window that is used up are fetched; `false` if it is
    /// still needed. After `true` it is on as before, but records nothing more, and whoever needs it asks for it anew.
    pub(crate) fn pause_recorder(&self) -> bool {
        self.kernels.as_ref().is_some_and(|window| window.pause(self.steps.load(SeqCst)))
    }

    /// Ends a window of kernels that is used up; `false` if the recorder is still needed, even if only by a capture
    /// whose kernels have not all come. After `true`, the recorder counts as off.
    pub(crate) fn stop_recorder(&self) -> bool {
        self.kernels.as_ref().is_some_and(KernelWindow::stop)
    }

    /// No kernels can be recorded in this session any more.
    pub(crate) fn recorder_failed(&self) {
        if let Some(window) = &self.kernels {
            window.fail(|| self.kernels_end.store(0, SeqCst));
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
        self.life.store(CLOSED, Ordering::Relaxed);
    }

    /// Whether the session has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.life.load(Ordering::Relaxed) == CLOSED
    }

    /// Whether recording is off.
    pub(crate) fn is_off(&self) -> bool {
        self.mode.load(Ordering::Relaxed) == OFF
    }

    /// Whether an experiment goes on.
    #[inline]
    pub(crate) fn perturbs(&self) -> bool {
        self.life.load(Ordering::Relaxed) == EXPERIMENT
    }

    /// An experiment begins; `false` if the session has ended.
    pub(crate) fn begin_experiment(&self) -> bool {
        let begun = self.life.compare_exchange(OPEN, EXPERIMENT, SeqCst, SeqCst);
        !matches!(begun, Err(CLOSED))
    }

    /// The experiment has ended.
    pub(crate) fn end_experiment(&self) {
        let _ = self.life.compare_exchange(EXPERIMENT, OPEN, SeqCst, SeqCst);
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
                                let step = control.begin_step(true, || false);
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
            // A step before the window may be recorded in addition, if it began while the window was being opened. No
            // step of the window is missing.
            let inside = recorded.iter().filter(|n| window.contains(n)).count();
            assert_eq!(inside, 20, "{window:?}: {recorded:?}");
            assert!(recorded.iter().all(|n| *n < window.end), "{window:?}: {recorded:?}");
        }
    }

    #[test]
    fn a_window_that_is_cut_has_all_steps_that_had_begun_on_any_number_of_threads() {
        for _ in 0..50 {
            let control = Control::new(None, true);
            let window = control.open_window(1 << 40, false).expect("none is open");
            let stop = AtomicBool::new(false);
            let mut cut = None;
            let mut recorded: Vec<u64> = std::thread::scope(|scope| {
                let work = || {
                    let mut recorded = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        let step = control.begin_step(true, || false);
                        if step.fate.is_recorded() {
                            recorded.push(step.number);
                        }
                    }
                    recorded
                };
                let workers: Vec<_> = (0..3).map(|_| scope.spawn(work)).collect();
                while control.steps() < 100 {
                    std::thread::yield_now();
                }
                control.cut_window(&window, |step| cut = Some(step));
                // There is nothing left to be cut.
                control.cut_window(&window, |_| panic!("once"));
                stop.store(true, Ordering::Relaxed);
                workers.into_iter().flat_map(|w| w.join().expect("ends")).collect()
            });
            let cut = cut.expect("it was open");
            recorded.retain(|number| *number < cut);
            assert_eq!(recorded.len() as u64, cut, "none is missing");
        }
    }

    #[test]
    fn one_window_at_a_time_and_a_closed_one_makes_room() {
        let control = Control::new(None, true);
        assert_eq!(control.open_window(3, true), Some(0..3));
        assert_eq!(control.open_window(1, false), None);
        let step = control.begin_step(true, || false);
        assert_eq!((step.fate, step.full, step.kernels), (StepFate::Captured, true, false));
        assert_eq!(control.remaining(), 2);
        control.close_window(2);
        assert_eq!(control.remaining(), 2, "another window's end");
        control.close_window(3);
        assert_eq!((control.remaining(), control.begin_step(true, || false).fate), (0, StepFate::Paused));
        assert_eq!(control.open_window(1, false), Some(2..3));
    }

    #[test]
    fn a_capture_has_the_kernels_of_exactly_its_steps() {
        let control = Control::new(None, false).with_kernels(None);
        let steps = |n: usize| {
            let all = (0..n).map(|_| control.begin_step(true, || true));
            all.map(|s| (s.fate, s.full, s.kernels)).collect::<Vec<_>>()
        };
        let plain = (StepFate::Plain, false, false);
        let kernels = control.kernels().expect("has a recorder");
        assert!(kernels.ask_for_capture());
        // If the recorder is not on, a capture has no kernels and does not wait for it any longer.
        control.end_capture();
        assert_eq!(
            (control.open_window(1, true), steps(2)),
            (Some(0..1), vec![(StepFate::Recorded, true, false), plain])
        );
        assert!(kernels.ask_for_capture());
        kernels.ready();
        assert_eq!(steps(1), [plain], "the recorder is on, and the capture has not begun");
        assert_eq!(control.open_window(2, true), Some(3..5));
        let inside = control.begin_step(false, || true);
        assert!(inside.full && !inside.kernels, "those of the step around it");
        assert!(!control.kernels_used_up() && !control.stop_recorder());
        assert_eq!(steps(2), [(StepFate::Recorded, true, true), plain]);
        assert!(control.kernels_used_up() && !control.stop_recorder(), "the capture may still wait for kernels");
        control.end_capture();
        assert!(control.stop_recorder() && !control.stop_recorder());
        // If the recorder fails, later steps have no kernels; nothing else changes.
        assert!(kernels.ask_for_capture());
        kernels.ready();
        control.open_window(2, true);
        assert_eq!(steps(1), [(StepFate::Recorded, true, true)]);
        control.recorder_failed();
        assert_eq!(steps(1), [(StepFate::Recorded, true, false)]);
    }

    #[test]
    fn a_window_is_told_from_the_schedule_and_requests_from_steps() {
        use StepFate::{Captured, Closed, Paused, Recorded, ScheduledOut};
        let schedule = Schedule { skip_first: 1, wait: 1, warmup: 0, active: 1, repeat: 0 };
        let control = Control::new(Some(schedule), false);
        let fates = |n: usize| (0..n).map(|_| control.begin_step(true, || false).fate).collect::<Vec<_>>();
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
