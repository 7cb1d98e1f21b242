//! Steers an experiment: begins and ends its stretches as steps begin.

use super::assigned::StretchAssignment;
use super::course::{Course, StepBegin, StepRelation, StepRole, Stretch, StretchPlan, StretchTold};
use super::experiment::{EndedStretch, Experiment, Sums};
use crate::clock::Ticks;
use crate::probe::mixed;
use crate::vocabulary::Side;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{PoisonError, TryLockError};

/// A stretch whose step ended so long ago has lost its thread, or its thread has no more steps: another thread's step tells.
const LOST_NS: f64 = 1e9;
/// The same of one whose step goes on.
const LOST_IN_STEP_NS: f64 = 600e9;

/// At most so many steps of a kind between two pairs are recorded as usual: how many is drawn by lot, so that pairs are in step with
/// nothing, such as the end of short requests.
const BETWEEN: u64 = 3;
/// Steps that a pair takes: its two, and those before the next one.
const STEPS_OF_A_PAIR: f64 = 2.0 + BETWEEN as f64 / 2.0;
/// Pairs by whose time a dose is bounded, where more are wanted: an experiment without an end is no reason for a longer
/// one.
const MOST_PAIRS: u64 = 100;

/// What a delayed stretch of a target may add, nanoseconds.
struct DelayDose {
    /// What was asked for, or less: no more than the budget's share of the time that the pairs take at the least.
    wanted_ns: f64,
    /// `wanted_ns` as a share of what was asked for.
    share: f64,
    /// The most that the budget has for it now.
    most_ns: f64,
}

impl Experiment {
    /// A step begins that is inside no other. Only the thread whose stretch is open waits for another one here, and that
    /// one for nobody.
    pub(crate) fn begin(&self, step: &StepBegin<'_>) -> StepRole {
        let mut course = match self.course.try_lock() {
            Ok(course) => course,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if step.is_kind => self.course.lock().unwrap_or_else(PoisonError::into_inner),
            Err(TryLockError::WouldBlock) => {
                return self.assigned().map_or(StepRole::Usual, |of| StepRole::Part { of, first: false });
            }
        };
        if let Some(stretch) = &course.stretch {
            let lost = step.thread != stretch.thread && self.is_lost(stretch, step.now);
            match stretch.sees(step) {
                StepRelation::Part if !lost => {
                    return self.assigned().map_or(StepRole::Usual, |of| StepRole::Part { of, first: false });
                }
                StepRelation::Next if !lost => self.close(&mut course, Some(step.now)),
                StepRelation::End if !lost => self.close(&mut course, None),
                _ => self.drop_stretch(&mut course),
            }
        }
        self.steps.fetch_add(u64::from(step.is_kind), Relaxed);
        if !step.is_kind || self.is_over() {
            return StepRole::Usual;
        }
        let Some(planned) = self.plan(&mut course, step) else { return StepRole::Usual };
        course.stretches += 1;
        let of = StretchAssignment::new(course.stretches, planned.arm, planned.delayed);
        let StepBegin { thread, text, phase, request, now, .. } = *step;
        let name = step.name.clone();
        course.stretch = Some(Stretch { thread, name, text, phase, request, step: 0, start: now, planned });
        self.sums.set(&Sums::default());
        self.sums_at_step_end.set(&Sums::default());
        self.step_end.store(0, Relaxed);
        self.allow(&course, planned, now);
        self.set_open(Some(of));
        StepRole::Part { of, first: true }
    }

    /// The second of a pair, or the first of the next one if it is time for it.
    fn plan(&self, course: &mut Course, step: &StepBegin<'_>) -> Option<StretchPlan> {
        let now = step.now;
        if let Some(second) = &course.second {
            // Of another kind of step it would be no pair.
            let fits = (second.text, second.phase) == (step.text, step.phase);
            return if fits { course.second.take() } else { None };
        }
        course.since += 1;
        course.began.get_or_insert(now);
        if course.since <= course.between {
            return None;
        }
        let wanting = |arm: &&(usize, u64)| arm.1 < self.wanted;
        let able = self.arms.iter().enumerate().filter(|(_, arm)| arm.is_able());
        let counted: Vec<(usize, u64)> = able.map(|(at, arm)| (at, arm.pairs.load(Relaxed))).collect();
        // Those that have the fewest pairs take their turn, in an order that is in step with nothing.
        let fewest = counted.iter().filter(wanting).map(|(_, pairs)| *pairs).min()?;
        let next: Vec<usize> = counted.iter().filter(|(_, pairs)| *pairs == fewest).map(|(at, _)| *at).collect();
        // The same until the pair begins: which path it is of does not depend on how long the budget lets it wait.
        let random = mixed(course.pairs + 1, course.seed);
        let random = random ^ (random >> 29);
        let arm = *next.get((random >> 8) as usize % next.len().max(1))?;
        // What is added has to fit in before it is. What that is, a stretch tells that adds nothing.
        let dose = self.dose(course, arm, now);
        if dose.as_ref().is_some_and(|dose| dose.wanted_ns > dose.most_ns) {
            return None;
        }
        let only_tells = dose.is_none();
        course.pairs += u64::from(!only_tells);
        course.since = 0;
        course.between = (random >> 40) % (BETWEEN + 1);
        let (pair, delayed) = (self.first_pair + course.pairs, random & 1 != 0 && !only_tells);
        let StepBegin { text, phase, .. } = *step;
        Some(StretchPlan { arm, delayed, pair, first_had_next: None, only_tells, text, phase })
    }

    /// What a delayed stretch of a target may add; `None` while nothing is known of its stretches.
    fn dose(&self, course: &Course, arm: usize, now: Ticks) -> Option<DelayDose> {
        let StretchTold { asked_ns, took_ns } = course.told.get(arm).copied().flatten()?;
        let of_pairs = self.budget * self.wanted.min(MOST_PAIRS) as f64 * STEPS_OF_A_PAIR * took_ns;
        let wanted_ns = asked_ns.min(of_pairs);
        let share = if wanted_ns < asked_ns { wanted_ns / asked_ns } else { 1.0 };
        let elapsed = course.began.map_or(0, |began| now.0.saturating_sub(began.0)) as f64 * self.ns_per_tick;
        let most_ns = (self.budget * elapsed - course.added_ns).clamp(0.0, of_pairs);
        Some(DelayDose { wanted_ns, share, most_ns })
    }

    /// Says what the stretch that begins may add in all, whatever its intervals turn out to take.
    fn allow(&self, course: &Course, planned: StretchPlan, now: Ticks) {
        let dose = self.dose(course, planned.arm, now).filter(|_| planned.delayed);
        let on_host = self.arms.get(planned.arm).is_none_or(|arm| arm.side == Side::Host);
        let unit_ns = if on_host { self.ns_per_tick } else { 1.0 };
        match dose {
            Some(dose) => self.allowed.set(dose.share, (dose.most_ns / unit_ns).ceil() as u64),
            None => self.allowed.set(0.0, 0),
        }
    }

    /// Notes what a stretch says of those that follow.
    fn tell(&self, course: &mut Course, stretch: &Stretch, end: Ticks, sums: &Sums) {
        let StretchPlan { arm: at, delayed, .. } = stretch.planned;
        let (Some(arm), Some(told)) = (self.arms.get(at), course.told.get_mut(at)) else { return };
        let host_ns = sums.interval_ticks.load(Relaxed) as f64 * self.ns_per_tick;
        let asked_ns = arm.asked_ns(sums.intervals.load(Relaxed), host_ns);
        let took_ns = end.0.saturating_sub(stretch.start.0) as f64 * self.ns_per_tick;
        *told = match *told {
            // How long one takes without what is added, only such a one says.
            Some(before) if delayed => Some(StretchTold { asked_ns, ..before }),
            None if delayed => None,
            before => {
                Some(StretchTold { asked_ns, took_ns: before.map_or(took_ns, |before| before.took_ns.min(took_ns)) })
            }
        };
    }

    fn close(&self, course: &mut Course, next: Option<Ticks>) {
        self.set_open(None);
        let Some(stretch) = course.stretch.take() else { return };
        let StretchPlan { arm, delayed, pair, first_had_next, only_tells, .. } = stretch.planned;
        self.charge(course, arm);
        // Without a next step the stretch is its step, and so is what counts.
        let sums = if next.is_some() { &self.sums } else { &self.sums_at_step_end };
        let step_end = Ticks(self.step_end.load(Relaxed));
        let whole = step_end.0 > stretch.start.0;
        if whole {
            self.tell(course, &stretch, next.unwrap_or(step_end), sums);
        }
        if only_tells {
            return;
        }
        let ended = EndedStretch {
            arm,
            pair,
            delayed,
            step: stretch.step,
            name: stretch.name,
            phase: stretch.phase,
            start: stretch.start,
            step_end,
            next,
            intervals: sums.intervals.load(Relaxed),
            interval_ticks: sums.interval_ticks.load(Relaxed),
            added: sums.added.load(Relaxed),
        };
        let kept = whole && self.ended.try_send(ended).is_ok();
        match first_had_next {
            None => {
                let first_had_next = Some(next.is_some());
                course.second = kept.then_some(StretchPlan { delayed: !delayed, first_had_next, ..stretch.planned });
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

    /// The stretch that is open is given up: steps run that are recorded, a window's, or nothing is to be tried any more.
    pub(crate) fn give_up(&self) {
        let mut course = self.course.lock().unwrap_or_else(PoisonError::into_inner);
        self.drop_stretch(&mut course);
    }

    fn drop_stretch(&self, course: &mut Course) {
        self.set_open(None);
        if let Some(stretch) = course.stretch.take() {
            self.charge(course, stretch.planned.arm);
        }
        course.second = None;
    }

    /// Counts what was added in the open stretch against the budget, whatever becomes of the stretch.
    fn charge(&self, course: &mut Course, arm: usize) {
        let on_host = self.arms.get(arm).is_none_or(|arm| arm.side == Side::Host);
        let added = self.sums.added.load(Relaxed) as f64;
        course.added_ns += added * if on_host { self.ns_per_tick } else { 1.0 };
    }

    fn is_lost(&self, stretch: &Stretch, now: Ticks) -> bool {
        let since = |then: u64| now.0.saturating_sub(then) as f64 * self.ns_per_tick;
        match self.step_end.load(Relaxed) {
            0 => since(stretch.start.0) > LOST_IN_STEP_NS,
            end => since(end) > LOST_NS,
        }
    }
}
