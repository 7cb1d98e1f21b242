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
    steps: Vec<StepRow>,
    numbers: IntSet<u64>,
}

impl Application {
    /// Takes them out of `steps`.
    pub(super) fn take(steps: &mut Vec<StepRow>) -> Self {
        if !steps.iter().any(|step| step.is_application) || steps.iter().all(|step| step.phase.is_none()) {
            return Self::default();
        }
        let (own, model) = std::mem::take(steps).into_iter().partition(|step| step.is_application);
        *steps = model;
        let own: Vec<StepRow> = own;
        Self { numbers: own.iter().map(|step| step.step).collect(), steps: own }
    }

    /// Whether the step is one of them.
    pub(super) fn has_step(&self, step: Option<u64>) -> bool {
        step.is_some_and(|step| self.numbers.contains(&step))
    }

    /// These and `steps`, which figures need that look at the numbers of all steps.
    pub(super) fn with<'a>(&self, steps: &'a [StepRow]) -> Cow<'a, [StepRow]> {
        if self.steps.is_empty() {
            return Cow::Borrowed(steps);
        }
        Cow::Owned(self.steps.iter().chain(steps).cloned().collect())
    }
}
