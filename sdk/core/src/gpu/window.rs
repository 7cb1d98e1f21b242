//! Windows of steps in which kernels are recorded: asked for, made ready in the background, used up step by step.
//!
//! Switching a recorder on can take seconds, and the application must not wait for it. So a window is first *wanted*; a
//! background thread switches the recorder on and calls it *ready*; the steps that begin from then on are the window.

use crate::control::{Schedule, StepAction};
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

const IDLE: u8 = 0;
const WANTED: u8 = 1;
const READY: u8 = 2;
/// All its steps have begun; the recorder stays on until their kernels are in.
const CLOSING: u8 = 3;
const FAILED: u8 = 4;
/// Between the two: how many steps are wanted is being written down.
const PREPARING: u8 = 5;

/// Bits of `remaining` that count steps. Those above hold the window's number, so that the end of one window is not another's.
const STEPS: u64 = (1 << 48) - 1;

/// Shared between application threads, the recorder's thread and the drain.
#[derive(Debug)]
pub(crate) struct KernelWindow {
    state: AtomicU8,
    schedule: Option<Schedule>,
    /// Steps begun.
    steps: AtomicU64,
    /// Steps the window still takes, below the lower bits of its number.
    remaining: AtomicU64,
    /// Steps taken into windows so far.
    taken: AtomicU64,
    windows: AtomicU64,
    /// Set once by a schedule that asks for everything.
    started: AtomicBool,
}

impl KernelWindow {
    pub(crate) fn new(schedule: Option<Schedule>) -> Self {
        let window = Self {
            state: AtomicU8::new(IDLE),
            schedule,
            steps: AtomicU64::new(0),
            remaining: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            windows: AtomicU64::new(0),
            started: AtomicBool::new(false),
        };
        // Where the very first step is to be recorded, the recorder had better be on before it.
        if let Some(s) = schedule
            && s.skip_first == 0
            && s.wait == 0
            && s.active > 0
        {
            window.started.store(true, Ordering::Relaxed);
            window.want(s.active);
        }
        window
    }

    /// A recorded step begins; whether its kernels are.
    pub(crate) fn begin_step(&self) -> bool {
        let number = self.steps.fetch_add(1, Ordering::Relaxed);
        // Read before the state: a thread that is held up between the two must not take a step of the next window, whose
        // recorder may not be on yet.
        let window = self.remaining.load(Ordering::Acquire) & !STEPS;
        match self.state.load(Ordering::Acquire) {
            READY => self.take(window),
            IDLE => {
                if let Some(active) = self.due(number) {
                    self.want(active);
                }
                false
            }
            _ => false,
        }
    }

    /// Takes a step of the window with these upper bits.
    fn take(&self, window: u64) -> bool {
        let one_less = |n: u64| (n & !STEPS == window && n & STEPS > 0).then(|| n - 1);
        match self.remaining.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less) {
            Ok(before) => {
                self.taken.fetch_add(1, Ordering::Relaxed);
                if before & STEPS == 1 {
                    let _ = self.state.compare_exchange(READY, CLOSING, Ordering::Release, Ordering::Relaxed);
                }
                true
            }
            Err(_) => false,
        }
    }

    /// Steps of the window that the schedule wants prepared at step `number`.
    fn due(&self, number: u64) -> Option<u64> {
        let s = self.schedule?;
        let at = number.checked_sub(s.skip_first)?;
        let cycle = s.wait.saturating_add(s.warmup).saturating_add(s.active);
        let wanted = s.action(number) != StepAction::Skip && cycle > 0 && at % cycle >= s.wait;
        // The window of a cycle is asked for once. One that became ready late may reach into the next cycle, which then has none.
        let first = at % cycle.max(1) == s.wait || !self.started.load(Ordering::Relaxed);
        (wanted && first && s.active > 0).then(|| {
            self.started.store(true, Ordering::Relaxed);
            s.active
        })
    }

    /// The number of the window.
    fn want(&self, steps: u64) -> Option<u64> {
        self.state.compare_exchange(IDLE, PREPARING, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        let number = self.windows.fetch_add(1, Ordering::Relaxed);
        // Release: whoever sees this window sees that the one before it is over.
        self.remaining.store(tagged(number) | steps.min(STEPS), Ordering::Release);
        // Only now may the recorder be told: one that is quick would find no steps left, and close the window.
        self.state.compare_exchange(PREPARING, WANTED, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        Some(number)
    }

    /// Asks for a window of the next `steps` steps, and returns its number; `None` while another is under way or nothing can be
    /// recorded.
    pub(crate) fn request(&self, steps: u64) -> Option<u64> {
        if steps == 0 { None } else { self.want(steps) }
    }

    /// Ends a window that was requested, if it is still open: no further step is in it.
    pub(crate) fn end(&self, number: u64) {
        let none_left = |n: u64| (n & !STEPS == tagged(number) && n & STEPS > 0).then_some(n & !STEPS);
        if self.remaining.fetch_update(Ordering::AcqRel, Ordering::Relaxed, none_left).is_ok() {
            self.close_if_used_up();
        }
    }

    /// Where the recorder is not on yet, the same happens once it is.
    fn close_if_used_up(&self) {
        if self.remaining.load(Ordering::Acquire) & STEPS == 0 {
            let _ = self.state.compare_exchange(READY, CLOSING, Ordering::Release, Ordering::Relaxed);
        }
    }

    /// Whether the recorder should be switched on.
    pub(crate) fn is_wanted(&self) -> bool {
        self.state.load(Ordering::Acquire) == WANTED
    }

    /// Whether the recorder should be switched off once kernels of all steps taken are in.
    pub(crate) fn is_closing(&self) -> bool {
        self.state.load(Ordering::Acquire) == CLOSING
    }

    /// Whether the recorder is, or is about to be, on.
    pub(crate) fn is_active(&self) -> bool {
        matches!(self.state.load(Ordering::Acquire), PREPARING | WANTED | READY | CLOSING)
    }

    /// The recorder is on.
    pub(crate) fn ready(&self) {
        let _ = self.state.compare_exchange(WANTED, READY, Ordering::AcqRel, Ordering::Relaxed);
        self.close_if_used_up();
    }

    /// The recorder is off again.
    pub(crate) fn closed(&self) {
        let _ = self.state.compare_exchange(CLOSING, IDLE, Ordering::Release, Ordering::Relaxed);
    }

    /// No kernels can be recorded in this session.
    pub(crate) fn fail(&self) {
        self.state.store(FAILED, Ordering::Release);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.state.load(Ordering::Acquire) == FAILED
    }

    /// Steps taken into windows so far.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    pub(crate) fn windows(&self) -> u64 {
        self.windows.load(Ordering::Relaxed)
    }

    /// Steps of the window under way that are still to come.
    pub(crate) fn remaining(&self) -> u64 {
        self.remaining.load(Ordering::Relaxed) & STEPS
    }
}

const fn tagged(number: u64) -> u64 {
    number << STEPS.count_ones()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(skip_first: u64, wait: u64, warmup: u64, active: u64, repeat: u64) -> Option<Schedule> {
        Some(Schedule { skip_first, wait, warmup, active, repeat })
    }

    #[test]
    fn without_a_request_nothing_happens() {
        let window = KernelWindow::new(None);
        assert!((0..10).all(|_| !window.begin_step()));
        assert!(!window.is_active());
    }

    #[test]
    fn a_request_takes_the_steps_after_it_became_ready() {
        let window = KernelWindow::new(None);
        assert_eq!(window.request(2), Some(0));
        assert_eq!(window.request(2), None, "one at a time");
        assert!(!window.begin_step(), "not ready yet");
        assert!(window.is_wanted());
        window.ready();
        assert!(window.begin_step());
        assert!(!window.is_closing());
        assert!(window.begin_step());
        assert!(window.is_closing());
        assert!(!window.begin_step());
        assert_eq!((window.taken(), window.windows()), (2, 1));
        window.closed();
        assert_eq!(window.request(1), Some(1), "and then the next");
    }

    #[test]
    fn a_window_ends_early_and_no_other_with_it() {
        let window = KernelWindow::new(None);
        let first = window.request(5).unwrap();
        window.ready();
        assert!(window.begin_step());
        window.end(first + 1);
        assert!(window.begin_step(), "another window's end");
        window.end(first);
        assert!(window.is_closing() && !window.begin_step());
        assert_eq!((window.remaining(), window.taken()), (0, 2));
        window.closed();
        // Before the recorder was on.
        let second = window.request(5).unwrap();
        window.end(second);
        assert!(window.is_wanted(), "the recorder is being switched on");
        window.ready();
        assert!(window.is_closing() && !window.begin_step());
        window.closed();
        // Long after.
        let third = window.request(5).unwrap();
        window.ready();
        window.end(second);
        assert!((0..5).all(|_| window.begin_step()));
        assert!(window.is_closing() && window.request(1).is_none() && third == 2);
    }

    #[test]
    fn a_schedule_asks_before_its_window() {
        let window = KernelWindow::new(schedule(0, 5, 2, 3, 0));
        let mut taken = Vec::new();
        for step in 0..30 {
            if window.begin_step() {
                taken.push(step);
            }
            if window.is_wanted() {
                window.ready();
            }
            if window.is_closing() {
                window.closed();
            }
        }
        // Asked for at step 5 of each ten, ready for the next ones.
        assert_eq!(taken, [6, 7, 8, 16, 17, 18, 26, 27, 28]);
    }

    #[test]
    fn everything_is_wanted_before_the_first_step() {
        let window = KernelWindow::new(schedule(0, 0, 0, u64::MAX, 1));
        assert!(window.is_wanted());
        window.ready();
        assert!((0..1000).all(|_| window.begin_step()));
    }

    #[test]
    fn a_finite_schedule_ends() {
        let window = KernelWindow::new(schedule(0, 0, 0, 2, 1));
        window.ready();
        let taken: Vec<_> = (0..20)
            .filter(|_| {
                let taken = window.begin_step();
                if window.is_closing() {
                    window.closed();
                }
                if window.is_wanted() {
                    window.ready();
                }
                taken
            })
            .collect();
        assert_eq!(taken, [0, 1]);
    }

    #[test]
    fn after_a_failure_nothing_is_taken() {
        let window = KernelWindow::new(schedule(0, 0, 0, 5, 0));
        window.fail();
        window.ready();
        assert!(!window.begin_step() && window.request(1).is_none() && window.has_failed());
    }
}
