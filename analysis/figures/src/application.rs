//! Steps that are spans of the application, such as that of a handler.
//!
//! A session in which phases are marked takes such spans for no steps. Those that it entered before the first phase was
//! marked have become steps: where the run has phases, they are in no figure either.

use super::int_map::IntSet;
use super::step_rows::StepRow;
use std::borrow::Cow;

/// The application's steps of a run, if it has phases.
#[derive(Debug, Default)]
pub(super) struct Application {
    numbers: IntSet<u64>,
}

impl Application {
    /// Those among all steps of a run.
    pub(super) fn of(steps: &[StepRow]) -> Self {
        if steps.iter().all(|step| step.phase.is_none()) {
            return Self::default();
        }
        Self { numbers: steps.iter().filter(|step| step.is_application).map(|step| step.step).collect() }
    }

    /// Whether the step is one of them.
    pub(super) fn has_step(&self, step: Option<u64>) -> bool {
        step.is_some_and(|step| self.numbers.contains(&step))
    }

    /// The steps that are not the application's.
    pub(super) fn without<'a>(&self, steps: &'a [StepRow]) -> Cow<'a, [StepRow]> {
        if self.numbers.is_empty() {
            return Cow::Borrowed(steps);
        }
        Cow::Owned(steps.iter().filter(|step| !self.numbers.contains(&step.step)).cloned().collect())
    }
}
