//! How the steps of a run were sampled: which have a record, which have none and why, and what cannot be said then.
//!
//! Requests are recorded whatever becomes of their steps, so their own figures (time to first and last token, queue
//! time, tokens) are those of all of them. A figure that adds up steps over wall time, or looks from one step to the
//! next, needs every step.

use super::StepRow;
use crate::reader::finding;
use crate::render::format::count;
use candlescope_core::RequestRecord;
use candlescope_core::run::{Finding, RunManifest, Severity, StepCounts};
use std::ops::Range;

/// How steps were sampled.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sampling {
    /// Steps begun, recorded, captured, scheduled out, paused, lost; `None` of a run that does not say.
    pub counts: Option<StepCounts>,
    /// Steps with a record ÷ steps that began; `None` where that is not known.
    pub share: Option<f64>,
    /// Which steps have a record.
    pub recorded: Recorded,
}

/// Figures that need every step of the time they are over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NeedsAllSteps {
    /// Tokens a second from the tokens of steps over wall time.
    StepThroughput,
    /// Output tokens, and their rate, counted by steps because requests do not say them.
    OutputTokensFromSteps,
    /// Time to the first or last token taken from steps because the request does not say it, and TPOT made of it.
    TokenTimesFromSteps,
    /// Gap between two tokens of a request; this one holds where nothing is missing between the two steps:
    /// [`Recorded::whole`].
    InterTokenLatency,
    /// Share of wall time, or of a request's, in and outside of steps.
    TimeOutsideSteps,
}

impl NeedsAllSteps {
    /// All of them.
    pub const ALL: [NeedsAllSteps; 5] = [
        NeedsAllSteps::StepThroughput,
        NeedsAllSteps::OutputTokensFromSteps,
        NeedsAllSteps::TokenTimesFromSteps,
        NeedsAllSteps::InterTokenLatency,
        NeedsAllSteps::TimeOutsideSteps,
    ];
}

impl Sampling {
    /// What the run's manifest and the numbers of its steps say.
    pub fn of(manifest: &RunManifest, steps: &[StepRow]) -> Self {
        let counts = manifest.steps;
        let share = counts.filter(|c| c.begun > 0).map(|c| c.with_record() as f64 / c.begun as f64);
        Self { counts, share, recorded: Recorded::of(steps.iter().map(|s| s.step)) }
    }

    /// Whether the recorded steps are some of those that ran in their time.
    ///
    /// Recording that was off before the first recorded step, or after the last, takes nothing from what lies between.
    pub fn is_sampled(&self) -> bool {
        let left_out = |c: StepCounts| c.scheduled_out.saturating_add(c.lost).saturating_add(c.left_plain);
        let told = self.counts.is_some_and(|c| left_out(c) > 0 || (c.captured > 0 && c.without_record() > 0));
        told || self.recorded.missing() > 0
    }

    /// Whether a figure over the whole run is void. Gaps between tokens are not void as a whole: see
    /// [`Recorded::whole`].
    pub fn voids(&self, figure: NeedsAllSteps) -> bool {
        figure != NeedsAllSteps::InterTokenLatency && self.is_sampled()
    }

    /// Whether requests that ran in the time of `requests` have no record: their numbers have holes, or the run says so.
    pub fn requests_missing(&self, manifest: &RunManifest, requests: &[&RequestRecord]) -> bool {
        let numbers = || requests.iter().map(|r| r.request);
        let span =
            numbers().min().zip(numbers().max()).map_or(0, |(first, last)| last.abs_diff(first).saturating_add(1));
        span > requests.len() as u64 || manifest.loss.requests_lost > 0 || manifest.loss.requests_paused > 0
    }

    /// The figures over the whole run that are void.
    pub fn voided(&self) -> Vec<NeedsAllSteps> {
        NeedsAllSteps::ALL.into_iter().filter(|&figure| self.voids(figure)).collect()
    }

    /// Says that steps have no record, where some have none.
    pub fn finding(&self) -> Option<Finding> {
        let message = match &self.counts {
            Some(counts) if counts.without_record() > 0 => counts.to_string(),
            // A run that does not say what became of its steps, or lost some of its files since.
            _ if self.recorded.missing() > 0 => format!(
                "{} steps between the first and the last that were recorded have no record",
                count(self.recorded.missing())
            ),
            _ => return None,
        };
        let remedy = if self.is_sampled() {
            "Figures of requests are those of all requests; figures of steps and layers are those of the recorded \
             ones, and figures that need every step are left out. Record all steps for them"
        } else {
            "Nothing is missing among the steps that were recorded"
        };
        Some(finding(Severity::Info, "steps_sampled", message, remedy))
    }
}

/// The numbers of the steps that have a record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recorded {
    /// Numbers in a row, ascending; between two of these something is missing.
    runs: Vec<Range<u64>>,
}

impl Recorded {
    /// From the numbers, in any order.
    pub fn of(numbers: impl IntoIterator<Item = u64>) -> Self {
        let mut numbers: Vec<u64> = numbers.into_iter().collect();
        numbers.sort_unstable();
        let mut runs: Vec<Range<u64>> = Vec::new();
        for n in numbers {
            match runs.last_mut() {
                Some(last) if n < last.end => {}
                Some(last) if n == last.end => last.end = n.saturating_add(1),
                _ => runs.push(n..n.saturating_add(1)),
            }
        }
        Self { runs }
    }

    /// Steps without a record between the first and the last that have one.
    pub fn missing(&self) -> u64 {
        self.runs.windows(2).map(|pair| pair[1].start - pair[0].end).sum()
    }

    /// Whether both steps, and every one that began between them on any thread, have a record: then a gap between two
    /// tokens that these yield is one between consecutive tokens.
    pub fn whole(&self, a: u64, b: u64) -> bool {
        let (first, last) = (a.min(b), a.max(b));
        let at = self.runs.partition_point(|run| run.end <= first);
        self.runs.get(at).is_some_and(|run| run.contains(&first) && run.contains(&last))
    }
}
