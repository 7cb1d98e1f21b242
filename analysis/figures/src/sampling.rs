//! How the steps of a run were sampled: which have a record, which have none and why, and which figures cannot be given
//! then.
//!
//! Requests are recorded whether their steps are or not, so their own figures (time to first and last token, queue
//! time, tokens) cover all requests. A figure that adds up steps over wall time, or looks from one step to the next,
//! needs every step.

use super::StepRow;
use candlescope_schema::run::{RunManifest, StepCounts};
use candlescope_schema::{Phase, RequestRecord};
use std::collections::{BTreeMap, BTreeSet};

/// How steps were sampled.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sampling {
    /// Steps begun, recorded, captured, scheduled out, paused, lost; `None` for a run that does not say.
    pub counts: Option<StepCounts>,
    /// Steps with a record ÷ steps that began; `None` if that is not known.
    pub share: Option<f64>,
    /// Steps without a record between the first and the last that have one.
    pub missing: u64,
    /// Which part of requests the recorded steps are of, if it is the same of each.
    pub in_step: Option<InStep>,
}

/// The part of requests that a schedule records, where it keeps step with them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InStep {
    /// Recorded decoding steps whose place in their request is known.
    pub steps: u64,
    /// Requests that they belong to.
    pub requests: u64,
    /// The first and the last of these places, as shares of the request's output.
    pub part: (f64, f64),
}

/// Fewer decoding steps, and of fewer requests, say nothing about where a schedule records.
const FEWEST_PLACED: (u64, usize) = (30, 6);
/// The same part: steps that lie anywhere in their requests are within less than this, by chance, in up to 23 % of runs of six
/// requests, 2 % of twelve and 0.05 % of twenty (n·r^(n−1) − (n−1)·r^n for the range of n uniform places). What the finding
/// says of the figures is true then as well; that the schedule is why may not be.
const SAME_PART: f64 = 0.6;

impl InStep {
    /// From recorded decoding steps of one sequence and the requests that they belong to.
    fn of(steps: &[StepRow], requests: &[RequestRecord]) -> Option<Self> {
        let sizes: BTreeMap<u64, (f64, f64)> = requests
            .iter()
            .filter_map(|r| Some((r.request, (r.prompt_tokens? as f64, r.output_tokens.filter(|n| *n > 1)? as f64))))
            .collect();
        let place = |step: &StepRow| {
            let one = step.phase == Some(Phase::Decode) && step.batch.is_none_or(|batch| batch == 1);
            let request = step.request.filter(|_| one && step.serves.is_empty())?;
            let (prompt, output) = sizes.get(&request)?;
            Some((request, (f64::from(step.context_len?) - prompt) / output))
        };
        let placed: Vec<(u64, f64)> = steps.iter().filter_map(place).collect();
        let requests: BTreeSet<u64> = placed.iter().map(|(request, _)| *request).collect();
        if (placed.len() as u64) < FEWEST_PLACED.0 || requests.len() < FEWEST_PLACED.1 {
            return None;
        }
        let (least, most) = placed
            .iter()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), (_, at)| (least.min(*at), most.max(*at)));
        (most - least < SAME_PART).then_some(Self {
            steps: placed.len() as u64,
            requests: requests.len() as u64,
            part: (least, most),
        })
    }
}

impl Sampling {
    /// From the run's manifest and the numbers of its steps.
    pub fn of(manifest: &RunManifest, steps: &[StepRow]) -> Self {
        let counts = manifest.steps;
        let share = counts.filter(|c| c.begun > 0).map(|c| c.with_record() as f64 / c.begun as f64);
        Self { counts, share, missing: holes(steps.iter().map(|s| s.step)), in_step: None }
    }

    /// With [`in_step`](Self::in_step), if a schedule left out steps of these requests.
    pub(crate) fn placed(self, steps: &[StepRow], requests: &[RequestRecord]) -> Self {
        let is_scheduled = self.counts.is_some_and(|counts| counts.scheduled_out > 0);
        Self { in_step: is_scheduled.then(|| InStep::of(steps, requests)).flatten(), ..self }
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
