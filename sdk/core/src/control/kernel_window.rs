//! Which steps have their kernels recorded, and whether the recorder has to be on for that.
//!
//! Switching the recorder on can take seconds, and the application must not wait for it. So a window is asked for
//! first, a background thread switches the recorder on and reports that it is ready, and the steps that begin from then
//! on are the window. There are two kinds of window: the next N *recorded* steps, which are counted here, and the steps
//! of a capture, whose numbers [`Control`](super::Control) knows. Both may be open at once; the recorder stays on while
//! either needs it.

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard, PoisonError};
use crate::{Schedule, StepAction};
use std::time::{Duration, Instant};

/// The two highest bits of `counted` are the state of its window, the other bits the number of steps that it still
/// takes.
const NONE: u64 = 0;
const ASKED: u64 = 1 << 62;
/// The recorder is on. If no steps are left, the window is used up.
const OPEN: u64 = 2 << 62;
/// Nothing can be recorded in this session any more.
const FAILED: u64 = 3 << 62;
const PHASE: u64 = 3 << 62;

/// Shared by the application's threads, the recorder's thread and the drain.
#[derive(Debug)]
pub(crate) struct KernelWindow {
    /// When windows are asked for automatically; it counts recorded steps.
    schedule: Option<Schedule>,
    /// Least time between the beginnings of two of the schedule's windows.
    apart: Duration,
    /// The schedule's windows do not begin yet.
    holds: AtomicBool,
    /// Somebody asked for the window that is to come.
    urgent: AtomicBool,
    /// Recorded steps that have begun; counted only if there is a schedule.
    recorded: AtomicU64,
    /// Set once the schedule has asked for its first window.
    asked_once: AtomicBool,
    /// The window of the next N recorded steps.
    counted: AtomicU64,
    /// Steps so far whose kernels are recorded.
    taken: AtomicU64,
    windows: AtomicU64,
    /// Windows that were due while another one was under way.
    missed: AtomicU64,
    /// Whether a capture needs the recorder, for threads that must not take its lock.
    held: AtomicBool,
    /// No application thread takes this lock.
    recorder: Mutex<Recorder>,
}

/// Whether the recorder is on, and for which capture.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    on: bool,
    /// On, but nothing more is recorded: all steps of the windows so far have ended.
    paused: bool,
    capture: Capture,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Capture {
    #[default]
    None,
    /// A capture is to begin when the recorder is on.
    Waits,
    /// A capture goes on: its steps are those below this number.
    Until(u64),
}

impl Recorder {
    /// Lets a capture that waited for the recorder go on until step `end`.
    pub(super) fn capture_until(&mut self, end: u64) {
        self.capture = Capture::Until(end);
    }

    /// See [`Control::kernels_used_up`](super::Control::kernels_used_up); `begun` is the number of steps so far.
    fn is_used_up(&self, counted: u64, begun: u64) -> bool {
        let captured = match self.capture {
            Capture::None => true,
            Capture::Waits => false,
            Capture::Until(end) => begun > end,
        };
        self.on && captured && (counted == NONE || counted == OPEN)
    }
}

/// Whether a window with this state is open and has steps left.
const fn has_steps(counted: u64) -> bool {
    counted & PHASE == OPEN && counted != OPEN
}

impl KernelWindow {
    pub(super) fn new(schedule: Option<Schedule>) -> Self {
        let window = Self {
            schedule,
            apart: Duration::ZERO,
            holds: AtomicBool::new(false),
            urgent: AtomicBool::new(false),
            recorded: AtomicU64::new(0),
            asked_once: AtomicBool::new(false),
            counted: AtomicU64::new(NONE),
            taken: AtomicU64::new(0),
            windows: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            held: AtomicBool::new(false),
            recorder: Mutex::new(Recorder::default()),
        };
        // If the very first step is to be recorded, the recorder should be on before it.
        if let Some(s) = schedule
            && s.begins_at_once()
        {
            window.asked_once.store(true, Ordering::Relaxed);
            window.ask(s.active);
        }
        window
    }

    /// With this time between two windows of the schedule. One that is due sooner waits for it, and those that are due
    /// meanwhile are not missed.
    pub(super) fn apart(mut self, apart: Duration) -> Self {
        self.apart = apart;
        self
    }

    /// With windows of the schedule that do not begin before [`let_begin`](Self::let_begin).
    pub(super) fn held(self) -> Self {
        self.holds.store(true, Ordering::Relaxed);
        self
    }

    /// Whether they do not yet, and nobody asked for one.
    pub(crate) fn is_held(&self) -> bool {
        self.holds.load(Ordering::Relaxed) && self.rests(None, Instant::now())
    }

    /// Windows of the schedule may begin. Whether they were held.
    pub(crate) fn let_begin(&self) -> bool {
        self.holds.swap(false, Ordering::Relaxed)
    }

    /// Whether a window that is asked for has to wait, if the last began at `last`. Nobody waits who asked for steps or for a
    /// capture, and nothing does while the recorder is on anyway.
    pub(crate) fn rests(&self, last: Option<Instant>, now: Instant) -> bool {
        let rests = last.is_some_and(|last| now.saturating_duration_since(last) < self.apart);
        if !(rests || self.holds.load(Ordering::Relaxed)) || self.urgent.load(Ordering::Relaxed) {
            return false;
        }
        let recorder = self.recorder();
        !recorder.on && recorder.capture == Capture::None
    }

    /// Whether windows that are due may have to wait, so that none of them is missed.
    fn may_rest(&self) -> bool {
        !self.apart.is_zero() || self.holds.load(Ordering::Relaxed)
    }

    /// Called when a recorded step begins; `captured` if it is a step of a capture with kernels. Returns whether its
    /// kernels are recorded.
    pub(super) fn begin_step(&self, captured: bool) -> bool {
        let counted = self.counted.load(Ordering::Acquire);
        if let Some(schedule) = &self.schedule {
            let nth = self.recorded.fetch_add(1, Ordering::Relaxed);
            if let Some(active) = self.due(schedule, nth)
                && !self.ask(active)
                && !self.has_failed()
                && !self.may_rest()
            {
                self.missed.fetch_add(1, Ordering::Relaxed);
            }
        }
        if self.take(counted) {
            return true;
        }
        if captured {
            self.taken.fetch_add(1, Ordering::Relaxed);
        }
        captured
    }

    /// Whether the counted window is open and takes further steps.
    pub(super) fn takes_steps(&self) -> bool {
        has_steps(self.counted.load(Ordering::Acquire))
    }

    /// Takes a step of the counted window; `counted` is the value that was read before.
    fn take(&self, mut counted: u64) -> bool {
        if !has_steps(counted) {
            return false;
        }
        // Counted before the step is taken: whoever sees that no step is left sees all of them counted.
        self.taken.fetch_add(1, Ordering::Relaxed);
        while has_steps(counted) {
            match self.counted.compare_exchange_weak(counted, counted - 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => counted = now,
            }
        }
        self.taken.fetch_sub(1, Ordering::Relaxed);
        false
    }

    /// The number of steps of the window to ask for at the `nth` recorded step, if the schedule wants one.
    fn due(&self, s: &Schedule, nth: u64) -> Option<u64> {
        // The window that begins with the very first step was asked for when the session began.
        if nth == 0 && self.asked_once.load(Ordering::Relaxed) {
            return None;
        }
        let at = nth.checked_sub(s.skip_first)?;
        let cycle = s.wait.saturating_add(s.warmup).saturating_add(s.active);
        let wanted = s.action(nth) != StepAction::Skip && cycle > 0 && at % cycle >= s.wait;
        // The window of a cycle is asked for once. If it became ready late, it may reach into the next cycle, which
        // then has none.
        let first = at % cycle.max(1) == s.wait || !self.asked_once.load(Ordering::Relaxed);
        (wanted && first && s.active > 0).then(|| {
            self.asked_once.store(true, Ordering::Relaxed);
            s.active
        })
    }

    /// Whether a window may be asked for. A window that is used up blocks others until the recorder is off, but not if
    /// a capture keeps the recorder on.
    fn makes_room(&self, counted: u64) -> bool {
        counted == NONE || (counted == OPEN && self.held.load(Ordering::Relaxed))
    }

    /// Asks for a window of the next `steps` recorded steps; `false` if another is under way or nothing can be
    /// recorded.
    pub(crate) fn ask(&self, steps: u64) -> bool {
        let asked = |counted: u64| self.makes_room(counted).then_some(ASKED | steps.min(!PHASE));
        steps > 0 && self.counted.fetch_update(Ordering::AcqRel, Ordering::Relaxed, asked).is_ok()
    }

    /// As [`ask`](Self::ask), for somebody who wants these steps now: where the schedule's next window waits for its time, they
    /// are that window.
    pub(crate) fn ask_now(&self, steps: u64) -> bool {
        // Held to the end: the recorder is not ready in between.
        let recorder = self.recorder();
        let takes_over = self.may_rest() && !recorder.on;
        let asked = |counted: u64| {
            let free = self.makes_room(counted) || takes_over && counted & PHASE == ASKED;
            free.then_some(ASKED | steps.min(!PHASE))
        };
        let free = steps > 0 && self.counted.fetch_update(Ordering::AcqRel, Ordering::Relaxed, asked).is_ok();
        if free {
            self.urgent.store(true, Ordering::Relaxed);
        }
        drop(recorder);
        free
    }

    /// Asks for the recorder, for a capture that is to begin when it is on; `false` if nothing can be recorded.
    pub(crate) fn ask_for_capture(&self) -> bool {
        let mut recorder = self.recorder();
        if self.has_failed() {
            return false;
        }
        recorder.capture = Capture::Waits;
        self.held.store(true, Ordering::Relaxed);
        true
    }

    /// The locked recorder, if it is on and a capture waits for it.
    pub(super) fn on_for_capture(&self) -> Option<MutexGuard<'_, Recorder>> {
        let recorder = self.recorder();
        let ready = recorder.on && !recorder.paused && recorder.capture == Capture::Waits;
        self.windows.fetch_add(u64::from(ready), Ordering::Relaxed);
        ready.then_some(recorder)
    }

    /// The capture that waited has begun without kernels: it no longer needs a recorder that gets ready later.
    pub(crate) fn go_without(&self) {
        let mut recorder = self.recorder();
        if recorder.capture == Capture::Waits {
            self.let_go(&mut recorder);
        }
    }

    /// The capture that goes on has no steps from `end` on.
    pub(super) fn cut_capture(&self, end: u64) {
        let mut recorder = self.recorder();
        if let Capture::Until(until) = &mut recorder.capture {
            *until = end.min(*until);
        }
    }

    /// No capture needs the recorder any more.
    pub(super) fn end_capture(&self) {
        self.let_go(&mut self.recorder());
    }

    fn let_go(&self, recorder: &mut Recorder) {
        recorder.capture = Capture::None;
        self.held.store(false, Ordering::Relaxed);
    }

    fn recorder(&self) -> MutexGuard<'_, Recorder> {
        self.recorder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether something that was asked for waits for the recorder to be switched on.
    pub(crate) fn is_wanted(&self) -> bool {
        let recorder = self.recorder();
        let captures = match recorder.capture {
            Capture::None => false,
            Capture::Waits => !recorder.on || recorder.paused,
            Capture::Until(_) => !recorder.on,
        };
        captures || self.counted.load(Ordering::Acquire) & PHASE == ASKED
    }

    /// Whether the recorder is on, or is about to be.
    pub(crate) fn is_active(&self) -> bool {
        self.recorder().on || self.is_wanted()
    }

    /// Whether what begins now can be recorded: the recorder is on, and not because of what has ended alone.
    pub(crate) fn is_on(&self) -> bool {
        let recorder = self.recorder();
        recorder.on && !recorder.paused
    }

    /// The recorder is on: the window that was asked for begins.
    pub(crate) fn ready(&self) {
        let mut recorder = self.recorder();
        recorder.on = !self.has_failed();
        recorder.paused = false;
        let open = |counted: u64| (counted & PHASE == ASKED).then_some(counted & !PHASE | OPEN);
        let opened = self.counted.fetch_update(Ordering::AcqRel, Ordering::Relaxed, open).is_ok();
        self.windows.fetch_add(u64::from(opened), Ordering::Relaxed);
        if opened {
            self.urgent.store(false, Ordering::Relaxed);
        }
    }

    /// See [`Control::kernels_used_up`](super::Control::kernels_used_up).
    pub(super) fn is_used_up(&self, begun: u64) -> bool {
        self.recorder().is_used_up(self.counted.load(Ordering::Acquire), begun)
    }

    /// See [`Control::pause_recorder`](super::Control::pause_recorder).
    pub(super) fn pause(&self, begun: u64) -> bool {
        let mut recorder = self.recorder();
        recorder.paused = recorder.is_used_up(self.counted.load(Ordering::Acquire), begun);
        recorder.paused
    }

    /// See [`Control::stop_recorder`](super::Control::stop_recorder).
    pub(super) fn stop(&self) -> bool {
        let mut recorder = self.recorder();
        let used_up = recorder.is_used_up(self.counted.load(Ordering::Acquire), u64::MAX);
        if !used_up || recorder.capture != Capture::None {
            return false;
        }
        // If a window is asked for at this very moment, the recorder is switched on again.
        let _ = self.counted.compare_exchange(OPEN, NONE, Ordering::AcqRel, Ordering::Relaxed);
        *recorder = Recorder::default();
        true
    }

    /// Whether a capture still waits for kernels, even if only for those of steps that have begun.
    pub(crate) fn has_capture(&self) -> bool {
        self.recorder().capture != Capture::None
    }

    /// No kernels can be recorded in this session any more. `then` is called before a capture can begin without knowing
    /// that.
    pub(super) fn fail(&self, then: impl FnOnce()) {
        let mut recorder = self.recorder();
        self.counted.store(FAILED, Ordering::Release);
        self.let_go(&mut recorder);
        *recorder = Recorder::default();
        then();
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.counted.load(Ordering::Acquire) == FAILED
    }

    /// Steps whose kernels are recorded, so far.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Windows so far, with one that was asked for and that the recorder is not ready for yet; not one that waits for its time.
    pub(crate) fn windows(&self) -> u64 {
        let begun = self.windows.load(Ordering::Relaxed);
        let waits = self.holds.load(Ordering::Relaxed) || (begun > 0 && !self.apart.is_zero());
        let asked = self.counted.load(Ordering::Acquire) & PHASE == ASKED;
        begun + u64::from(asked && (!waits || self.urgent.load(Ordering::Relaxed)))
    }

    /// Windows of the schedule that were left out, because the one before was still under way or its kernels had not
    /// all come.
    pub(crate) fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }

    /// Steps of the counted window that are still to come.
    pub(crate) fn remaining(&self) -> u64 {
        self.counted.load(Ordering::Relaxed) & !PHASE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_that_begins_without_kernels_wants_none_later() {
        let window = KernelWindow::new(None);
        assert!(window.ask_for_capture() && window.is_wanted());
        window.go_without();
        assert!(!window.is_wanted() && !window.has_capture());
        assert!(window.ask_for_capture() && window.is_wanted(), "the next capture asks anew");
    }

    fn schedule(skip_first: u64, wait: u64, warmup: u64, active: u64, repeat: u64) -> Option<Schedule> {
        Some(Schedule { skip_first, wait, warmup, active, repeat })
    }

    #[test]
    fn without_a_request_nothing_happens() {
        let window = KernelWindow::new(None);
        assert!((0..10).all(|_| !window.begin_step(false)));
        assert!(!window.is_active());
    }

    #[test]
    fn a_request_takes_the_steps_after_it_became_ready() {
        let window = KernelWindow::new(None);
        assert!(!window.ask(0) && window.ask(2));
        assert!(!window.ask(2), "one at a time");
        assert!(!window.begin_step(false), "not ready yet");
        assert!(window.is_wanted());
        window.ready();
        assert!(window.begin_step(false) && !window.is_used_up(0));
        assert!(window.begin_step(false) && window.is_used_up(0));
        assert!(!window.begin_step(false) && !window.ask(1), "the recorder is still on for it");
        assert_eq!((window.taken(), window.windows()), (2, 1));
        assert!(window.stop() && !window.is_on());
        assert!(window.ask(1), "and then the next");
    }

    #[test]
    fn a_capture_and_a_window_share_the_recorder() {
        let window = KernelWindow::new(None);
        assert!(window.ask_for_capture() && window.is_wanted() && window.on_for_capture().is_none());
        window.ready();
        window.on_for_capture().expect("it is on").capture_until(7);
        assert!(window.ask(2) && window.is_wanted(), "a window is asked for besides");
        assert!(window.begin_step(true), "of the capture");
        window.ready();
        // Steps of the capture are recorded steps too.
        assert!(window.begin_step(true) && window.begin_step(false) && !window.begin_step(false));
        assert_eq!((window.taken(), window.windows()), (3, 2));
        assert!(!window.is_used_up(7), "the capture's last step has just begun, and may be long");
        assert!(window.is_used_up(8) && window.has_capture() && !window.stop(), "its kernels may still come");
        window.end_capture();
        assert!(window.stop() && !window.is_active());
    }

    #[test]
    fn a_paused_recorder_is_on_again_for_whoever_needs_it() {
        let window = KernelWindow::new(None);
        assert!(window.ask(1));
        window.ready();
        assert!(!window.pause(9), "a step is left");
        assert!(window.begin_step(false) && window.pause(9));
        assert!(window.is_active() && !window.is_on() && !window.is_wanted());
        assert!(window.is_used_up(9), "its kernels are still to be fetched");
        assert!(window.ask_for_capture() && window.is_wanted() && window.on_for_capture().is_none());
        window.ready();
        window.on_for_capture().expect("it is on again").capture_until(3);
        assert!(!window.pause(3), "the capture's last step has just begun");
        assert!(window.pause(4) && window.ask(1) && window.is_wanted(), "a window beside it");
        window.end_capture();
        window.ready();
        assert!(window.begin_step(false) && window.stop() && !window.is_active());
    }

    #[test]
    fn windows_come_and_go_while_a_capture_keeps_the_recorder_on() {
        let window = KernelWindow::new(schedule(0, 5, 2, 3, 0));
        assert!(window.ask_for_capture());
        window.ready();
        window.on_for_capture().expect("it is on").capture_until(1_000);
        assert_eq!(taken(&window, 30), [6, 7, 8, 16, 17, 18, 26, 27, 28], "as without a capture");
        assert!(window.ask(2) && !window.ask(1), "and on request, one at a time");
        window.ready();
        assert!((0..2).all(|_| window.begin_step(false)) && window.ask(1), "the one before is used up");
        window.ready();
        assert!(window.begin_step(false) && window.remaining() == 0);
        window.end_capture();
        assert!(!window.ask(1), "the recorder is on for the last one alone, and is to be switched off");
        assert!(window.stop() && window.ask(1));
    }

    #[test]
    fn windows_that_find_no_room_are_counted() {
        for wait in [0, 2] {
            let window = KernelWindow::new(schedule(0, wait, 0, 1, 0));
            // The recorder takes its time: nothing is recorded for ten steps.
            let before = (0..10).filter(|_| window.begin_step(false)).count();
            let due = 10 / (wait + 1);
            assert_eq!((before, window.windows(), window.missed()), (0, 1, due - 1), "wait {wait}");
            window.ready();
            assert_eq!(window.windows(), 1);
            assert!(window.begin_step(false), "wait {wait}");
            let more = if wait == 0 { 1 } else { 0 };
            assert_eq!(window.missed(), due - 1 + more, "wait {wait}");
            window.fail(|| {});
            let missed = window.missed();
            (0..10).for_each(|_| assert!(!window.begin_step(false)));
            assert_eq!(window.missed(), missed, "a recorder that has failed is told as that");
        }
    }

    #[test]
    fn windows_at_a_distance_wait_and_are_not_missed() {
        let window = KernelWindow::new(schedule(0, 0, 8, 2, 0)).apart(Duration::from_secs(5));
        let begun = Instant::now();
        (0..100).for_each(|_| assert!(!window.begin_step(false)));
        assert!(window.is_wanted() && !window.rests(None, begun), "the first one does not wait");
        window.ready();
        assert_eq!(taken(&window, 10), [0, 1]);
        assert!(!window.is_active());
        (0..100).for_each(|_| assert!(!window.begin_step(false)));
        assert!(window.is_wanted() && window.rests(Some(begun), begun + Duration::from_millis(4_999)));
        assert!(!window.rests(Some(begun), begun + Duration::from_secs(5)));
        assert!(window.ask_for_capture() && !window.rests(Some(begun), begun), "whoever asks waits for nothing");
        window.end_capture();
        assert_eq!((window.windows(), window.missed()), (1, 0), "one that waits for its time is none");
        assert!(window.rests(Some(begun), begun) && window.ask_now(3) && !window.rests(Some(begun), begun));
        assert_eq!(window.windows(), 2);
        window.ready();
        assert_eq!(taken(&window, 10), [0, 1, 2], "as many as were asked for");
    }

    #[test]
    fn a_window_that_is_due_in_a_capture_does_not_keep_the_recorder_on_for_its_distance() {
        let window = KernelWindow::new(schedule(0, 0, 1, 2, 0)).apart(Duration::from_secs(5));
        let now = Instant::now();
        assert!(window.ask_for_capture());
        window.ready();
        window.on_for_capture().expect("it is on").capture_until(1_000);
        (0..100).for_each(|_| _ = window.begin_step(true));
        assert!(window.is_wanted(), "the schedule's next window is due");
        window.end_capture();
        assert!(!window.rests(Some(now), now), "the recorder is on: it begins now, and then the recorder goes off");
    }

    #[test]
    fn held_windows_wait_until_they_may_begin() {
        let window = KernelWindow::new(schedule(0, 3, 0, 2, 0)).held();
        let now = Instant::now();
        (0..100).for_each(|_| assert!(!window.begin_step(false)));
        assert!(window.is_wanted() && window.rests(None, now) && window.missed() == 0);
        window.let_begin();
        assert!(!window.rests(None, now), "the one that was due is not lost");
    }

    #[test]
    fn a_capture_that_is_given_up_leaves_the_recorder_off() {
        let window = KernelWindow::new(None);
        assert!(window.ask_for_capture());
        window.end_capture();
        assert!(!window.is_wanted());
        // The recorder was being switched on when the capture began.
        window.ready();
        assert!(window.is_used_up(0) && window.stop());
        // A capture that comes before the recorder is off keeps it on.
        assert!(window.ask(1));
        window.ready();
        assert!(window.begin_step(false) && window.is_used_up(0));
        assert!(window.ask_for_capture() && !window.stop() && window.on_for_capture().is_some());
    }

    /// Which of `n` steps have kernels, with a recorder that is ready at once.
    fn taken(window: &KernelWindow, n: u64) -> Vec<u64> {
        let step = |_: &u64| {
            let taken = window.begin_step(false);
            window.stop();
            if window.is_wanted() {
                window.ready();
            }
            taken
        };
        (0..n).filter(step).collect()
    }

    #[test]
    fn a_schedule_asks_before_its_window() {
        // Asked for at step 5 of each ten, ready for the steps after it.
        let window = KernelWindow::new(schedule(0, 5, 2, 3, 0));
        assert_eq!(taken(&window, 30), [6, 7, 8, 16, 17, 18, 26, 27, 28]);
    }

    #[test]
    fn everything_is_wanted_before_the_first_step() {
        let window = KernelWindow::new(schedule(0, 0, 0, u64::MAX, 1));
        assert!(window.is_wanted());
        window.ready();
        assert!((0..1000).all(|_| window.begin_step(false)));
    }

    #[test]
    fn a_finite_schedule_ends() {
        let window = KernelWindow::new(schedule(0, 0, 0, 2, 1));
        window.ready();
        assert_eq!(taken(&window, 20), [0, 1]);
    }

    #[test]
    fn after_a_failure_nothing_is_taken() {
        let window = KernelWindow::new(schedule(0, 0, 0, 5, 0));
        window.fail(|| ());
        window.ready();
        assert!(!window.begin_step(false) && !window.ask(1) && window.has_failed());
        assert!(!window.ask_for_capture() && !window.is_active());
    }
}
