//! Time in which rates can be taken: every step that was open has a record, and no warm-up ran.

use super::sampling::Sampling;
use super::step_rows::StepRow;
use candlescope_core::stretches::{self, StepTime, Stretch, difference, intersection, length};

/// Time in which rates can be taken.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Covered {
    /// Windows in order; `None` for all time.
    windows: Option<Vec<Stretch>>,
    /// [`Warmup::left_out`](super::Warmup::left_out).
    warmup: Vec<Stretch>,
}

/// A part of a step's time that counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part {
    /// The index of its window in [`Covered::windows`]; 0 if all time counts.
    pub window: usize,
    /// How much of the step's time it is.
    pub share: f64,
}

impl Covered {
    /// From all steps of the run, warm-up included, by [`stretches::covered`].
    pub fn of(sampling: &Sampling, steps: &[StepRow]) -> Self {
        if !sampling.is_sampled() {
            return Self::default();
        }
        let times: Vec<StepTime> = steps.iter().map(StepRow::time).collect();
        let windows = stretches::covered(&times, 0..sampling.counts.map_or(u64::MAX, |counts| counts.begun));
        Self { windows: Some(windows), warmup: Vec::new() }
    }

    /// The same without [`Warmup::left_out`](super::Warmup::left_out): while warm-up steps run, the device works for
    /// steps that are in no figure, and a step around them does nothing of its own.
    pub fn without_warmup(self, left_out: &[Stretch]) -> Self {
        Self { warmup: left_out.to_vec(), ..self }
    }

    /// Windows in which every step that was open has a record; `None` if all steps have one.
    pub fn windows(&self) -> Option<&[Stretch]> {
        self.windows.as_deref()
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

    /// The parts of a step's time in which rates can be taken.
    pub fn parts(&self, step: &StepRow) -> Vec<Part> {
        if self.is_all() || step.dur_ns == 0 {
            return Vec::new();
        }
        let open_ns = step.end_ns().abs_diff(step.start_ns);
        let whole_ns =
            if step.warmup_ns > 0 { open_ns - length(&intersection(&[step.window()], &self.warmup)) } else { open_ns };
        let part = |(start, end): Stretch| Part {
            window: self.windows.as_ref().map_or(0, |windows| windows.partition_point(|window| window.1 <= start)),
            share: end.abs_diff(start) as f64 / whole_ns.max(1) as f64,
        };
        self.cut(vec![step.window()]).into_iter().map(part).collect()
    }
}
