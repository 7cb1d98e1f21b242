//! The course of an experiment: when a stretch begins and ends, of what, and in which order the two of a pair come.

use super::assigned::StretchAssignment;
use crate::clock::Ticks;
use crate::raw::phase_of;
use crate::vocabulary::Phase;
use std::sync::Arc;

/// What becomes of a step that begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepRole {
    /// Nothing of an experiment.
    Usual,
    /// It is part of the stretch that is open; a stretch begins with it if `first`.
    Part { of: StretchAssignment, first: bool },
}

/// A step that begins.
pub(crate) struct StepBegin<'a> {
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

pub(super) struct Stretch {
    pub(super) thread: u64,
    pub(super) name: Arc<str>,
    pub(super) text: u32,
    pub(super) phase: u8,
    pub(super) request: u32,
    /// Number of the step; known only after the stretch has begun.
    pub(super) step: u64,
    pub(super) start: Ticks,
    pub(super) planned: StretchPlan,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct StretchPlan {
    pub(super) arm: usize,
    pub(super) delayed: bool,
    pub(super) pair: u64,
    /// Whether the first of the pair had a next step of its kind; `None` for the first itself.
    pub(super) first_had_next: Option<bool>,
    /// Whether it is no part of a pair: it tells what a delayed stretch of its target would add.
    pub(super) only_tells: bool,
    /// The kind of its steps.
    pub(super) text: u32,
    pub(super) phase: u8,
}

/// What stretches of a target were like.
#[derive(Debug, Clone, Copy)]
pub(super) struct StretchTold {
    /// What a delayed one adds, by the latest, as it was asked for: nanoseconds.
    pub(super) asked_ns: f64,
    /// How long the shortest of those took that were not delayed, nanoseconds.
    pub(super) took_ns: f64,
}

/// Written by the thread whose stretch is open, and by the one that begins the next.
pub(crate) struct Course {
    pub(super) seed: u64,
    /// When its first step began.
    pub(super) began: Option<Ticks>,
    pub(super) stretch: Option<Stretch>,
    /// The second of a pair.
    pub(super) second: Option<StretchPlan>,
    /// Stretches and pairs so far.
    pub(super) stretches: u64,
    pub(super) pairs: u64,
    /// Steps of the kind since the last pair.
    pub(super) since: u64,
    /// After so many the next one begins.
    pub(super) between: u64,
    pub(super) added_ns: f64,
    /// Of each arm; `None` until a stretch of it has ended.
    pub(super) told: Vec<Option<StretchTold>>,
}

impl Course {
    pub(super) fn new(seed: u64, arms: usize) -> Self {
        Self {
            seed,
            began: None,
            stretch: None,
            second: None,
            stretches: 0,
            pairs: 0,
            since: 0,
            between: 1,
            added_ns: 0.0,
            told: vec![None; arms],
        }
    }
}

/// What a step that begins is to the stretch that is open.
pub(super) enum StepRelation {
    /// Something that runs in it.
    Part,
    /// The next of its kind, for the same request: the stretch has ended.
    Next,
    /// The thread has turned to something else: no next step will tell how long it took.
    End,
}

impl Stretch {
    pub(super) fn sees(&self, step: &StepBegin<'_>) -> StepRelation {
        let other_request = step.request != 0 && self.request != 0 && step.request != self.request;
        let same_kind = step.text == self.text && step.phase == self.phase;
        if step.thread != self.thread {
            // A request may go on on another thread.
            let moved = same_kind && step.request != 0 && step.request == self.request;
            return if moved { StepRelation::Next } else { StepRelation::Part };
        }
        match phase_of(step.phase) {
            _ if other_request => StepRelation::End,
            _ if same_kind => StepRelation::Next,
            // What decides on the next token, and what is between phases, follows from the step.
            Some(Phase::Sample) | None => StepRelation::Part,
            Some(_) => StepRelation::End,
        }
    }
}
