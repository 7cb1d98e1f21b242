//! What a search found, as data.

use super::forecast::Latency;
use super::goal::{BatchFigures, Goal};
use super::prediction::Prediction;
use super::search::{Attempt, BatchReason, Search, Stop};
use crate::method::StopReason;
use candlescope_figures::Price;
use serde::Serialize;
use std::collections::BTreeMap;

/// A batch that was tried.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TunePoint {
    /// Sequences in each request, all at once.
    pub batch: u64,
    /// Why it was tried.
    pub why: BatchReason,
    /// What was predicted beforehand (derived), if anything was.
    pub predicted: Option<Latency>,
    /// What was expected when it was chosen: the prediction corrected by the batches measured until then (derived).
    pub expected: Option<Latency>,
    /// What was found (measured); `None` if it gave nothing.
    pub found: Option<BatchFigures>,
    /// How well it serves, in units of the metric: output tokens a second, or requests a second for the latency.
    pub score: Option<f64>,
    /// Its largest time ÷ limit; above 1 it misses the service level. `None` without one.
    pub excess: Option<f64>,
    /// Whether it was measured a second time, side by side with those nearest to the best.
    pub finalist: bool,
    /// Why it gave nothing.
    pub without: Option<StopReason>,
    /// The same in words, with the figures.
    pub detail: Option<String>,
    /// Keys, values and activations that it needs beside the weights, in bytes (derived).
    pub need_bytes: Option<u64>,
    /// The same ÷ the memory available.
    pub pressure: Option<f64>,
    /// US dollars for a million output tokens at the rate found (derived), where the machine has a price.
    pub usd_per_million_output_tokens: Option<f64>,
}

/// Memory: what there is, and where it ends.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct MemoryPressure {
    /// Bytes of the weights.
    pub weight_bytes: Option<u64>,
    /// Bytes that were free beside the weights when measuring began, or the limit that was given; `None` where nobody
    /// tells.
    pub available_bytes: Option<u64>,
    /// The largest batch of the range that is predicted to fit (derived); `None` if not even the smallest is, or the
    /// available memory is not known.
    pub largest_predicted: Option<u64>,
    /// The largest batch that was measured.
    pub largest_found: Option<u64>,
    /// The smallest batch that was tried and did not fit.
    pub first_without: Option<u64>,
    /// Needs by batch, for the chart.
    #[serde(skip)]
    pub needs: BTreeMap<u64, u64>,
}

/// What a search found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TuneOutcome {
    /// The metric that batches were ranked by, and the limits that they had to keep.
    pub goal: Goal,
    /// The smallest batch asked about.
    pub start: u64,
    /// The largest batch asked about, itself included.
    pub end: u64,
    /// Tokens of each prompt.
    pub prompt_tokens: u64,
    /// Tokens of each output.
    pub output_tokens: u64,
    /// The best batch; `None` if none keeps the limits.
    pub best: Option<u64>,
    /// Other measured batches that cannot be told from the best: their spreads overlap.
    pub equal: Vec<u64>,
    /// The smallest measured batch with four fifths of the highest throughput measured.
    pub knee: Option<u64>,
    /// The batch that comes nearest to the limits, if none keeps them.
    pub nearest: Option<u64>,
    /// What ended the search; of the second pass only an interrupt is told.
    pub stop: Stop,
    /// What was tried, by batch.
    pub points: Vec<TunePoint>,
    /// Batches of the range that were not measured.
    pub unmeasured: u64,
    /// What the prediction rests on.
    pub prediction: Prediction,
    /// Median of |predicted ÷ measured − 1| of the throughput, of the prediction as it was beforehand.
    pub prediction_error: Option<f64>,
    /// The same of what was expected when each batch was chosen.
    pub expectation_error: Option<f64>,
    /// Bytes that there were and that batches need, and the batches at which memory ended.
    pub memory: MemoryPressure,
    /// What the machine costs, in US dollars an hour, if somebody said it.
    pub usd_per_hour: Option<f64>,
    /// The measured batch whose tokens cost least, of those that keep the service level; `None` without a price.
    pub cheapest: Option<u64>,
    /// Curves for the charts: expected output tokens a second by batch.
    #[serde(skip)]
    pub expected: BTreeMap<u64, f64>,
}

/// What was noted when a batch was chosen.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChosenBatch {
    pub(super) why: BatchReason,
    pub(super) expected: Option<Latency>,
    pub(super) finalist: bool,
}

impl TuneOutcome {
    /// With what tokens cost on a machine of this price.
    #[must_use]
    pub fn priced(mut self, price: Option<Price>) -> Self {
        self.usd_per_hour = price.map(|price| price.usd_per_hour);
        for point in &mut self.points {
            let rate = point.found.map(|found| found.output_tokens_per_s);
            point.usd_per_million_output_tokens = price.zip(rate).and_then(|(price, rate)| price.per_million(rate));
        }
        let keeps = |point: &&TunePoint| point.excess.is_none_or(|excess| excess <= 1.0);
        let costs = self.points.iter().filter(keeps);
        let costs = costs.filter_map(|point| Some((point.batch, point.usd_per_million_output_tokens?)));
        self.cheapest = costs.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(batch, _)| batch);
        self
    }

    /// Sums a search up.
    pub(super) fn of(
        search: &Search,
        (goal, stop): (Goal, Stop),
        ((start, end), (prompt, output)): ((u64, u64), (u64, u64)),
        chosen: &BTreeMap<u64, ChosenBatch>,
        prediction: Prediction,
        memory: MemoryPressure,
    ) -> Self {
        let point = |(batch, attempt): (&u64, &Attempt)| {
            let chosen = chosen.get(batch)?;
            let (found, without) = match attempt {
                Attempt::Found(found) => (Some(*found), None),
                Attempt::Without(reason, detail) => (None, Some((*reason, detail.clone()))),
            };
            let need_bytes = memory.needs.get(batch).copied();
            Some(TunePoint {
                batch: *batch,
                why: chosen.why,
                predicted: search.forecast().predicted(*batch),
                expected: chosen.expected,
                score: found.as_ref().map(|found| goal.score_of(found)),
                excess: found.as_ref().filter(|_| goal.limits()).map(|found| goal.excess(&found.latency)),
                found,
                finalist: chosen.finalist,
                without: without.as_ref().map(|(reason, _)| *reason),
                detail: without.map(|(_, detail)| detail),
                need_bytes,
                pressure: need_bytes.zip(memory.available_bytes).map(|(need, there)| need as f64 / there.max(1) as f64),
                usd_per_million_output_tokens: None,
            })
        };
        let points: Vec<TunePoint> = search.attempts().iter().filter_map(point).collect();
        let best = search.best().map(|(batch, _)| batch);
        let expected = (start..=end)
            .filter_map(|batch| Some((batch, search.forecast().expect(batch)?.output_tokens_per_s(batch, output))))
            .collect();
        let mut memory = memory;
        memory.largest_found = search.found().next_back().map(|(batch, _)| batch);
        memory.first_without = points.iter().find(|point| point.without.is_some()).map(|point| point.batch);
        Self {
            goal,
            start,
            end,
            prompt_tokens: prompt,
            output_tokens: output,
            equal: best.map_or_else(Vec::new, |best| equal_to(best, &points, &goal)),
            best,
            knee: search.knee().map(|(batch, _)| batch),
            nearest: if best.is_none() { search.nearest().map(|(batch, _)| batch) } else { None },
            stop,
            unmeasured: (end - start + 1).saturating_sub(points.len() as u64),
            prediction_error: error(&points, output, |point| point.predicted),
            expectation_error: error(&points, output, |point| point.expected),
            points,
            prediction,
            memory,
            usd_per_hour: None,
            cheapest: None,
            expected,
        }
    }

    /// The point of a batch.
    pub fn point(&self, batch: Option<u64>) -> Option<&TunePoint> {
        self.points.iter().find(|point| Some(point.batch) == batch)
    }
}

/// Measured batches that serve and cannot be told from the best.
fn equal_to(best: u64, points: &[TunePoint], goal: &Goal) -> Vec<u64> {
    let Some(own) = points.iter().find(|point| point.batch == best).and_then(|point| point.found) else {
        return Vec::new();
    };
    let serves = |point: &&TunePoint| point.batch != best && point.score.is_some_and(|score| score > 0.0);
    let alike = |point: &&TunePoint| point.found.is_some_and(|found| goal.alike(&own, &found));
    points.iter().filter(serves).filter(alike).map(|point| point.batch).collect()
}

fn error(points: &[TunePoint], output: u64, of: impl Fn(&TunePoint) -> Option<Latency>) -> Option<f64> {
    let off = |point: &TunePoint| {
        Some((of(point)?.output_tokens_per_s(point.batch, output) / point.found?.output_tokens_per_s - 1.0).abs())
    };
    let errors: Vec<f64> = points.iter().filter_map(off).collect();
    candlescope_figures::stats::percentile_of(&errors, 0.5)
}
