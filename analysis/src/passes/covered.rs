//! Time in which rates can be taken: every step that was open has a record, and nothing only warmed up.

use super::sampling::Sampling;
use super::step_rows::StepRow;
use candlescope_core::stretches::{self, StepTime, Stretch, difference, intersection, length};

/// Time in which rates can be taken.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Covered {
    /// Windows in order; `None` for all time.
    windows: Option<Vec<Stretch>>,
    /// When something only warmed up.
    warmup: Vec<Stretch>,
}

impl Covered {
    /// From all steps of the run, warm-up included, by [`stretches::covered`].
    pub fn of(sampling: &Sampling, steps: &[StepRow]) -> Self {
        if !sampling.is_sampled() {
            return Self::default();
        }
        let times: Vec<StepTime> = steps.iter().map(StepRow::time).collect();
        let windows = stretches::covered(&times, sampling.counts.map(|counts| counts.begun));
        Self { windows: Some(windows), warmup: Vec::new() }
    }

    /// The same without the windows (in order, apart) in which something only warmed up: a step that is around that did nothing of its
    /// own then, and beside one on another thread the device worked for what is in no figure.
    pub fn without_warmup(self, windows: &[Stretch]) -> Self {
        Self { warmup: windows.to_vec(), ..self }
    }

    /// Windows in which every step that was open has a record; `None` where all have one.
    pub fn windows(&self) -> Option<&[Stretch]> {
        self.windows.as_deref()
    }

    /// When something only warmed up.
    pub fn warmup(&self) -> &[Stretch] {
        &self.warmup
    }

    /// Whether some steps have no record.
    pub fn is_partial(&self) -> bool {
        self.windows.is_some()
    }

    /// Whether all time counts.
    pub fn is_all(&self) -> bool {
        self.windows.is_none() && self.warmup.is_empty()
    }

    /// The part of `windows` (in order, apart) in which rates can be taken.
    pub fn cut(&self, windows: Vec<Stretch>) -> Vec<Stretch> {
        let measured = if self.warmup.is_empty() { windows } else { difference(&windows, &self.warmup) };
        match &self.windows {
            None => measured,
            Some(covered) => intersection(&measured, covered),
        }
    }

    /// The share of a step's time in which rates can be taken.
    pub fn share(&self, step: &StepRow) -> f64 {
        if self.is_all() {
            return 1.0;
        }
        if step.dur_ns == 0 {
            return 0.0;
        }
        // Of a step around warm-up more is taken than the steps that warmed up: the time between them, too.
        (length(&self.cut(vec![(step.start_ns, step.end_ns())])) as f64 / step.dur_ns as f64).min(1.0)
    }
}
