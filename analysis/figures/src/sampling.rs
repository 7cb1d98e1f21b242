//! How the steps of a run were sampled: which have a record, which have none and why, and which figures cannot be given
//! then.
//!
//! Requests are recorded whether their steps are or not, so their own figures (time to first and last token, queue
//! time, tokens) cover all requests. A figure that adds up steps over wall time, or looks from one step to the next,
//! needs every step.

use super::StepRow;
use candlescope_schema::RequestRecord;
use candlescope_schema::run::{RunManifest, StepCounts};

/// How steps were sampled.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sampling {
    /// Steps begun, recorded, captured, scheduled out, paused, lost; `None` for a run that does not say.
    pub counts: Option<StepCounts>,
    /// Steps with a record ÷ steps that began; `None` if that is not known.
    pub share: Option<f64>,
    /// Steps without a record between the first and the last that have one.
    pub missing: u64,
}

impl Sampling {
    /// From the run's manifest and the numbers of its steps.
    pub fn of(manifest: &RunManifest, steps: &[StepRow]) -> Self {
        let counts = manifest.steps;
        let share = counts.filter(|c| c.begun > 0).map(|c| c.with_record() as f64 / c.begun as f64);
        Self { counts, share, missing: holes(steps.iter().map(|s| s.step)) }
    }

    /// Whether only some of the steps that ran during the recorded time have records.
    ///
    /// Recording that was off before the first recorded step, or after the last, does not matter.
    pub fn is_sampled(&self) -> bool {
        // Of an experiment that stood alone, after what was measured, nothing is missing there; of others, numbers are.
        let left_out = |c: StepCounts| c.scheduled_out.saturating_add(c.lost).saturating_add(c.left_plain);
        let told = self.counts.is_some_and(|c| left_out(c) > 0 || (c.captured > 0 && c.without_record() > c.perturbed));
        told || self.missing > 0
    }

    /// Whether requests that ran in the time of `requests` have no record: their numbers have gaps, or the run says so.
    pub fn requests_missing(&self, manifest: &RunManifest, requests: &[&RequestRecord]) -> bool {
        let numbers = || requests.iter().map(|r| r.request);
        let span =
            numbers().min().zip(numbers().max()).map_or(0, |(first, last)| last.abs_diff(first).saturating_add(1));
        span > requests.len() as u64 || manifest.loss.requests_lost > 0 || manifest.loss.requests_paused > 0
    }
}

/// Numbers between the first and the last that are not among these.
fn holes(numbers: impl IntoIterator<Item = u64>) -> u64 {
    let mut numbers: Vec<u64> = numbers.into_iter().collect();
    numbers.sort_unstable();
    numbers.windows(2).map(|pair| (pair[1] - pair[0]).saturating_sub(1)).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::holes;

    #[test]
    fn numbers_that_are_missing_are_counted() {
        assert_eq!([holes([]), holes([u64::MAX]), holes(5..20), holes([5, 6, 9, 10, 6])], [0, 0, 0, 2]);
        assert_eq!(holes([0, u64::MAX]), u64::MAX - 1);
    }
}
