//! Of how much of the steps' time it is known what their threads did.

use crate::step_rows::StepRow;
use rustc_hash::{FxHashMap, FxHashSet};

/// Time of steps of a kind, nanoseconds: of all of them, and of those of which it is known what their thread did.
#[derive(Debug, Clone, Copy, Default)]
struct Times {
    all_ns: f64,
    known_ns: f64,
}

impl Times {
    fn add(&mut self, step: &StepRow) {
        self.all_ns += step.dur_ns as f64;
        self.known_ns += if step.thread_known { step.dur_ns as f64 } else { 0.0 };
    }

    fn factor(self) -> Option<f64> {
        (self.known_ns > 0.0).then(|| self.all_ns / self.known_ns)
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct StepTimes {
    all: Times,
    /// By the name of the steps' own interval.
    by_root: FxHashMap<String, Times>,
    unknown: FxHashSet<u64>,
}

impl StepTimes {
    /// Of the measured steps.
    pub(crate) fn of<'a>(steps: impl Iterator<Item = &'a StepRow>) -> Self {
        let mut times = Self::default();
        for step in steps {
            times.all.add(step);
            times.by_root.entry(root(&step.path.rollup).to_string()).or_default().add(step);
            if !step.thread_known {
                times.unknown.insert(step.step);
            }
        }
        times
    }

    /// Whether it is known what the step's thread did.
    pub(super) fn is_known(&self, step: u64) -> bool {
        !self.unknown.contains(&step)
    }

    /// By how much the time in known steps is raised to that in all, of the steps that a rollup path is in.
    pub(super) fn factor(&self, rollup: &str) -> f64 {
        let of_root = self.by_root.get(root(rollup)).and_then(|times| times.factor());
        of_root.or_else(|| self.all.factor()).unwrap_or(1.0)
    }
}

fn root(rollup: &str) -> &str {
    rollup.split('/').next().unwrap_or_default()
}
