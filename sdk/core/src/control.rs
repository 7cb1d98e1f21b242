//! When to record: runtime start and stop, schedules, and windows of steps. Decisions are taken where a step begins, so that
//! enter and exit always balance.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

const OFF: u8 = 0;
const ON: u8 = 1;
const SCHEDULED: u8 = 2;

/// Shared between the layer and the session's handle.
#[derive(Debug)]
pub(crate) struct Control {
    mode: AtomicU8,
    schedule: Option<Schedule>,
    steps: AtomicU64,
    /// Steps still to be recorded by `capture_next`, whatever the mode.
    remaining: AtomicU64,
    /// Whether the latest step was recorded: what request spans, which stand above steps, go by.
    recording: AtomicBool,
    closed: AtomicBool,
}

/// What was decided for a step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepDecision {
    pub(crate) number: u64,
    pub(crate) record: bool,
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
            remaining: AtomicU64::new(0),
            recording: AtomicBool::new(mode == ON),
            closed: AtomicBool::new(false),
        }
    }

    /// Called where a step begins.
    pub(crate) fn begin_step(&self) -> StepDecision {
        let number = self.steps.fetch_add(1, Ordering::Relaxed);
        let by_mode = match self.mode.load(Ordering::Relaxed) {
            ON => true,
            SCHEDULED => self.schedule.is_some_and(|s| s.action(number) == StepAction::Record),
            _ => false,
        };
        // A window that was asked for is used up by the steps that follow, recorded anyway or not.
        let in_window = self.take_remaining();
        let record = !self.closed.load(Ordering::Relaxed) && (by_mode || in_window);
        if self.recording.load(Ordering::Relaxed) != record {
            self.recording.store(record, Ordering::Relaxed);
        }
        StepDecision { number, record }
    }

    fn take_remaining(&self) -> bool {
        self.remaining.load(Ordering::Relaxed) > 0
            && self.remaining.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
    }

    /// Whether intervals above steps are recorded now.
    pub(crate) fn recording(&self) -> bool {
        self.recording.load(Ordering::Relaxed)
    }

    pub(crate) fn start(&self) {
        self.mode.store(if self.schedule.is_some() { SCHEDULED } else { ON }, Ordering::Relaxed);
        self.recording.store(true, Ordering::Relaxed);
    }

    pub(crate) fn stop(&self) {
        self.mode.store(OFF, Ordering::Relaxed);
        self.recording.store(false, Ordering::Relaxed);
    }

    /// Records the next `steps` steps even where the mode says otherwise. `false` if such a window is open already.
    pub(crate) fn capture_next(&self, steps: u64) -> bool {
        self.remaining.compare_exchange(0, steps, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    pub(crate) fn remaining(&self) -> u64 {
        self.remaining.load(Ordering::Relaxed)
    }

    pub(crate) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}
