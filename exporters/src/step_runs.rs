//! How steps ran, which their records say, for the slices of the intervals that are these steps. Pure.

use candlescope_core::{Batch, Ran};
use std::collections::HashMap;

/// Steps that wait for their intervals. A session delivers both together, a run on disk all its steps first.
///
/// Overload policy: beyond this all are forgotten, and their slices do not say how they ran: a viewer shows no more either.
const MOST_WAITING: usize = 1 << 20;

/// How each step ran whose interval has no slice yet, by the interval's `seq`.
#[derive(Debug, Default)]
pub(crate) struct StepRuns(HashMap<u64, Ran>);

impl StepRuns {
    /// Notes the steps of a batch.
    pub(crate) fn add(&mut self, batch: &Batch) {
        for (seq, ran) in batch.steps.iter().filter_map(|step| Some((step.seq, step.ran?))) {
            if self.0.len() >= MOST_WAITING {
                self.0.clear();
            }
            self.0.insert(seq, ran);
        }
    }

    /// How the step ran that this interval is, as a word.
    pub(crate) fn of(&self, seq: u64) -> Option<&'static str> {
        self.0.get(&seq).map(|ran| ran.as_str())
    }

    /// Forgets the steps whose intervals are in a batch: all their slices are drawn.
    pub(crate) fn drawn(&mut self, batch: &Batch) {
        if self.0.is_empty() {
            return;
        }
        for span in &batch.spans {
            self.0.remove(&span.seq);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_testkit::Decoder;

    #[test]
    fn a_step_is_known_until_its_interval_is_drawn() {
        let mut whole = Decoder::new(1).decode();
        whole.steps[0].ran = Some(Ran::Replay);
        let (step, inside) = (whole.steps[0].seq, whole.spans[1].seq);
        let mut steps = Batch::default();
        steps.steps = std::mem::take(&mut whole.steps);
        let mut runs = StepRuns::default();
        runs.add(&steps);
        runs.drawn(&steps);
        assert_eq!((runs.of(step), runs.of(inside)), (Some("replay"), None));
        runs.drawn(&whole);
        assert_eq!(runs.of(step), None);
    }
}
