//! The course of an experiment: when a stretch begins and ends, of what, and in which order the two of a pair come.

use super::experiment::{Assigned, Ended, Experiment};
use crate::clock::Ticks;
use crate::probe::mixed;
use crate::raw::NO_PHASE;
use crate::vocabulary::{Phase, Side};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{PoisonError, TryLockError};

/// A stretch that has not ended after so long has lost its thread, or its thread has no more steps of its kind.
const LOST_NS: f64 = 10e9;

/// Steps of a kind between two pairs that are recorded as usual.
const BETWEEN: u64 = 1;

/// What becomes of a step that begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begin {
    /// Nothing of an experiment.
    Usual,
    /// It is part of the stretch that is open; a stretch begins with it if `first`.
    Part { of: Assigned, first: bool },
    /// It is part of none, and not recorded, because the experiment is [alone](crate::Perturb::alone).
    Aside,
}

/// A step that begins.
pub(crate) struct Beginning<'a> {
    pub(crate) thread: u64,
    pub(crate) name: &'a Arc<str>,
    /// Number of the name's text.
    pub(crate) text: u32,
    pub(crate) phase: u8,
    pub(crate) request: u32,
    /// Whether stretches begin with steps like it.
    pub(crate) is_kind: bool,
    pub(crate) now: Ticks,
}

struct Stretch {
    thread: u64,
    name: Arc<str>,
    text: u32,
    phase: u8,
    request: u32,
    /// Number of the step; known only after the stretch has begun.
    step: u64,
    start: Ticks,
    planned: Planned,
}

#[derive(Debug, Clone, Copy)]
struct Planned {
    arm: usize,
    delayed: bool,
    pair: u64,
    /// Whether the first of the pair had a next step of its kind; `None` for the first itself.
    first_had_next: Option<bool>,
}

/// Written by the thread whose stretch is open, and by the one that begins the next.
pub(crate) struct Course {
    seed: u64,
    /// When its first step began.
    began: Option<Ticks>,
    stretch: Option<Stretch>,
    /// The second of a pair.
    second: Option<Planned>,
    /// Stretches and pairs so far.
    stretches: u64,
    pairs: u64,
    /// Steps of the kind since the last pair.
    since: u64,
    added_ns: f64,
}

impl Course {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, began: None, stretch: None, second: None, stretches: 0, pairs: 0, since: 0, added_ns: 0.0 }
    }
}

impl Experiment {
    /// A step begins that is inside no other. Only the thread whose stretch is open waits for another one here, and that
    /// one for nobody.
    pub(crate) fn begin(&self, step: &Beginning<'_>) -> Begin {
        let mut course = match self.course.try_lock() {
            Ok(course) => course,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if step.is_kind => self.course.lock().unwrap_or_else(PoisonError::into_inner),
            Err(TryLockError::WouldBlock) => {
                return self.assigned().map_or(Begin::Usual, |of| Begin::Part { of, first: false });
            }
        };
        if let Some(stretch) = &course.stretch {
            let lost = step.now.0.saturating_sub(stretch.start.0) as f64 * self.ns_per_tick > LOST_NS;
            match stretch.sees(step) {
                Sees::Part if !lost => {
                    return self.assigned().map_or(Begin::Usual, |of| Begin::Part { of, first: false });
                }
                Sees::Next if !lost => self.close(&mut course, Some(step.now)),
                Sees::End if !lost => self.close(&mut course, None),
                _ => {
                    course.stretch = None;
                    course.second = None;
                    self.set_open(None);
                }
            }
        }
        self.steps.fetch_add(u64::from(step.is_kind), Relaxed);
        if !step.is_kind || self.is_over() {
            return Begin::Usual;
        }
        let Some(planned) = self.plan(&mut course, step.now) else { return Begin::Usual };
        course.stretches += 1;
        let of = Assigned::new(course.stretches, planned.arm, planned.delayed);
        let Beginning { thread, text, phase, request, now, .. } = *step;
        let name = step.name.clone();
        course.stretch = Some(Stretch { thread, name, text, phase, request, step: 0, start: now, planned });
        for sum in [&self.intervals, &self.interval_ticks, &self.added, &self.step_end] {
            sum.store(0, Relaxed);
        }
        self.set_open(Some(of));
        Begin::Part { of, first: true }
    }

    /// The second of a pair, or the first of the next one if it is time for it.
    fn plan(&self, course: &mut Course, now: Ticks) -> Option<Planned> {
        if let Some(second) = course.second.take() {
            return Some(second);
        }
        course.since += 1;
        let began = *course.began.get_or_insert(now);
        let elapsed = now.0.saturating_sub(began.0) as f64 * self.ns_per_tick;
        if course.since <= BETWEEN || course.added_ns > self.budget * elapsed {
            return None;
        }
        let wanting = |arm: &&(usize, u64)| arm.1 < self.wanted;
        let able = self.arms.iter().enumerate().filter(|(_, arm)| arm.is_able());
        let counted: Vec<(usize, u64)> = able.map(|(at, arm)| (at, arm.pairs.load(Relaxed))).collect();
        // Those that have the fewest pairs take their turn, in an order that is in step with nothing.
        let fewest = counted.iter().filter(wanting).map(|(_, pairs)| *pairs).min()?;
        let next: Vec<usize> = counted.iter().filter(|(_, pairs)| *pairs == fewest).map(|(at, _)| *at).collect();
        course.pairs += 1;
        let random = mixed(course.pairs, course.seed);
        let random = random ^ (random >> 29);
        let arm = *next.get((random >> 8) as usize % next.len().max(1))?;
        course.since = 0;
        Some(Planned { arm, delayed: random & 1 != 0, pair: course.pairs, first_had_next: None })
    }

    fn close(&self, course: &mut Course, next: Option<Ticks>) {
        self.set_open(None);
        let Some(stretch) = course.stretch.take() else { return };
        let Planned { arm, delayed, pair, first_had_next } = stretch.planned;
        let added = self.added.load(Relaxed);
        let on_host = self.arms.get(arm).is_none_or(|arm| arm.side == Side::Host);
        course.added_ns += added as f64 * if on_host { self.ns_per_tick } else { 1.0 };
        let step_end = Ticks(self.step_end.load(Relaxed));
        let whole = step_end.0 > stretch.start.0;
        let ended = Ended {
            arm,
            pair,
            delayed,
            step: stretch.step,
            name: stretch.name,
            phase: stretch.phase,
            start: stretch.start,
            step_end,
            next,
            intervals: self.intervals.load(Relaxed),
            interval_ticks: self.interval_ticks.load(Relaxed),
            added,
        };
        let kept = whole && self.ended.try_send(ended).is_ok();
        match first_had_next {
            None => {
                let first_had_next = Some(next.is_some());
                course.second = kept.then_some(Planned { arm, delayed: !delayed, pair, first_had_next });
            }
            Some(had_next) if kept && had_next == next.is_some() => {
                if let Some(arm) = self.arms.get(arm) {
                    arm.pairs.fetch_add(1, Relaxed);
                }
            }
            // Unlike stretches make no pair; readers leave them out.
            Some(_) => {}
        }
    }

    /// The stretch of thread `thread` that has just begun did so with step `number`, from `start` on.
    pub(crate) fn began_with(&self, thread: u64, number: u64, start: Ticks) {
        let mut course = self.course.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stretch) = course.stretch.as_mut().filter(|stretch| stretch.thread == thread) {
            (stretch.step, stretch.start) = (number, start);
        }
    }

    /// The stretch that has just begun is given up: its step is a window's.
    pub(crate) fn give_up(&self, thread: u64) {
        let mut course = self.course.lock().unwrap_or_else(PoisonError::into_inner);
        if course.stretch.as_ref().is_some_and(|stretch| stretch.thread == thread) {
            course.stretch = None;
            course.second = None;
            self.set_open(None);
        }
    }
}

/// What a step that begins is to the stretch that is open.
enum Sees {
    /// Something that runs in it.
    Part,
    /// The next of its kind, for the same request: the stretch has ended.
    Next,
    /// The thread has turned to something else: no next step will tell how long it took.
    End,
}

impl Stretch {
    fn sees(&self, step: &Beginning<'_>) -> Sees {
        if step.thread != self.thread {
            return Sees::Part;
        }
        let other_request = step.request != 0 && self.request != 0 && step.request != self.request;
        let same_kind = step.text == self.text && step.phase == self.phase;
        match Phase::from_index(step.phase).filter(|_| step.phase != NO_PHASE) {
            _ if other_request => Sees::End,
            _ if same_kind => Sees::Next,
            // What decides on the next token, and what is between phases, follows from the step.
            Some(Phase::Sample) | None => Sees::Part,
            Some(_) => Sees::End,
        }
    }
}
