//! Which batch is measured next, and when that is enough. Pure: it learns what was found, and asks.

use super::forecast::{Forecast, Latency};
use super::goal::{BatchFigures, Goal};
use crate::method::StopReason;
use candlescope_predict::roofline::KNEE;
use serde::Serialize;
use std::collections::BTreeMap;

/// Share by which a batch must be expected to serve better than the best one found, for it to be measured: below the
/// noise of most machines nothing is gained by it.
const WORTH: f64 = 0.02;
/// Two batches this share apart, or closer, are neighbours.
const APART: u64 = 8;
/// Batches with this share of the best one's score are measured again beside it.
const NEARLY: f64 = 0.95;
/// As are, of those whose spreads overlap its own, the best ones up to this many.
const FINALISTS: usize = 6;

/// Why a batch is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BatchReason {
    /// An end of the range.
    End,
    /// The middle of a range about which nothing was predicted.
    Middle,
    /// Where memory ends, or does not yet.
    MemoryEdge,
    /// It is expected to be the best.
    Candidate,
    /// It is expected to come nearest to the limits, which none keeps.
    Nearest,
    /// It is at most an eighth of the best batch, or 1, away from it, on a side on which none so near was tried.
    Neighbour,
    /// It is expected to be the knee.
    Knee,
}

impl BatchReason {
    /// As reports have it.
    pub const fn words(self) -> &'static str {
        match self {
            Self::End => "end of the range",
            Self::Middle => "middle, as nothing was predicted",
            Self::MemoryEdge => "where memory ends",
            Self::Candidate => "expected to be the best",
            Self::Nearest => "expected to come nearest to the limits",
            Self::Neighbour => "beside the best",
            Self::Knee => "expected to be the knee",
        }
    }
}

/// What ended the search: what is known by then, a limit, or an interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Stop {
    /// The best one and its neighbours were measured, and no other batch is expected to be better.
    Settled,
    /// Every batch of the range was measured.
    AllMeasured,
    /// The most points that were allowed were measured.
    Points,
    /// No batch keeps the limits, and none is expected to.
    Unmet,
    /// Not even the smallest batch fits into memory.
    NothingFits,
    /// It was interrupted, before the search had its answer or while the best few were measured again.
    Cancelled,
}

/// What a search asks for: one more measurement, or the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Measure this batch, for this reason, and tell [`Search::learn`] what became of it.
    Measure(u64, BatchReason),
    /// No further batch is to be measured, for this reason.
    Stop(Stop),
}

/// What became of a batch that was tried.
#[derive(Debug, Clone, PartialEq)]
pub enum Attempt {
    /// It gave figures, those of a second pass included once there is one.
    Found(BatchFigures),
    /// It gave nothing: out of memory, or refused because it would be.
    Without(StopReason, String),
}

/// The state of a search.
#[derive(Debug, Clone)]
pub struct Search {
    goal: Goal,
    start: u64,
    end: u64,
    points: usize,
    output: u64,
    forecast: Forecast,
    attempts: BTreeMap<u64, Attempt>,
}

impl Search {
    /// A search among batches from `start` to `end`, which measures at most `points` of them, with requests of
    /// `output` tokens a sequence.
    pub fn new(goal: Goal, (start, end): (u64, u64), points: usize, output: u64, forecast: Forecast) -> Self {
        Self { goal, start, end, points, output, forecast, attempts: BTreeMap::new() }
    }

    /// Learns what became of a batch.
    pub fn learn(&mut self, batch: u64, attempt: Attempt) {
        if let Attempt::Found(found) = &attempt {
            self.forecast.learn(batch, found.latency);
        }
        self.attempts.insert(batch, attempt);
    }

    /// What was tried, by batch.
    pub fn attempts(&self) -> &BTreeMap<u64, Attempt> {
        &self.attempts
    }

    /// What is expected of batches.
    pub fn forecast(&self) -> &Forecast {
        &self.forecast
    }

    /// Batches that were measured, with what was found.
    pub fn found(&self) -> impl DoubleEndedIterator<Item = (u64, &BatchFigures)> {
        self.attempts.iter().filter_map(|(batch, attempt)| match attempt {
            Attempt::Found(found) => Some((*batch, found)),
            Attempt::Without(..) => None,
        })
    }

    /// The best batch measured; `None` if none keeps the limits. Of equal ones the smallest.
    pub fn best(&self) -> Option<(u64, &BatchFigures)> {
        let serves = self.found().filter(|(_, found)| self.goal.score_of(found) > 0.0);
        serves.rev().max_by(|a, b| self.goal.score_of(a.1).total_cmp(&self.goal.score_of(b.1)))
    }

    /// The measured batch that comes nearest to the limits.
    pub fn nearest(&self) -> Option<(u64, &BatchFigures)> {
        self.found().min_by(|a, b| self.goal.excess(&a.1.latency).total_cmp(&self.goal.excess(&b.1.latency)))
    }

    /// The smallest measured batch with four fifths of the highest throughput measured.
    pub fn knee(&self) -> Option<(u64, &BatchFigures)> {
        let highest = self.found().map(|(_, found)| found.output_tokens_per_s).fold(0.0, f64::max);
        self.found().find(|(_, found)| found.output_tokens_per_s >= KNEE * highest)
    }

    /// The largest batch that memory may have room for, as far as it was tried.
    pub fn ceiling(&self) -> u64 {
        let without = |attempt: &Attempt| matches!(attempt, Attempt::Without(..));
        let first = self.attempts.iter().find(|(_, attempt)| without(attempt)).map(|(batch, _)| *batch);
        first.map_or(self.end, |batch| batch.saturating_sub(1))
    }

    /// The next batch to measure, or why none.
    pub fn next(&self) -> Next {
        let ceiling = self.ceiling();
        if ceiling < self.start {
            return Next::Stop(Stop::NothingFits);
        }
        let tried = |batch: u64| self.attempts.contains_key(&batch);
        for end in [self.start, self.end] {
            if !tried(end) {
                return Next::Measure(end, BatchReason::End);
            }
        }
        if (self.start..=ceiling).all(tried) {
            return Next::Stop(if self.best().is_some() { Stop::AllMeasured } else { Stop::Unmet });
        }
        if self.attempts.len() >= self.points {
            return Next::Stop(if self.best().is_some() { Stop::Points } else { Stop::Unmet });
        }
        match self.wanted(ceiling) {
            Some((batch, why)) => Next::Measure(batch, why),
            None => Next::Stop(if self.best().is_some() { Stop::Settled } else { Stop::Unmet }),
        }
    }

    /// What is worth measuring, the most important first.
    fn wanted(&self, ceiling: u64) -> Option<(u64, BatchReason)> {
        let middle = |low: u64, high: u64| ((low as f64 * high as f64).sqrt().round() as u64).clamp(low + 1, high);
        let largest = self.found().next_back().map_or(self.start, |(batch, _)| batch);
        // Nothing is known above the largest batch that fitted, and the next one tried did not.
        let edge = ceiling < self.end && ceiling > largest && ceiling - largest > largest / APART;
        if edge && (self.found().count() < 2 || self.best().is_none_or(|(batch, _)| batch == largest)) {
            return Some((middle(largest, ceiling), BatchReason::MemoryEdge));
        }
        let unknown = !self.forecast.is_predicted() && self.found().count() == 2 && largest / self.start.max(1) >= 4;
        let halfway = middle(self.start, largest.max(self.start + 1));
        if unknown && !self.tried(halfway) {
            return Some((halfway, BatchReason::Middle));
        }
        self.candidate(ceiling).or_else(|| self.neighbour(ceiling)).or_else(|| self.expected_knee(ceiling))
    }

    fn tried(&self, batch: u64) -> bool {
        self.attempts.contains_key(&batch)
    }

    /// The batch with the highest expected score, if that is enough above the best found. Where none is expected to
    /// serve, the one that is expected to come nearest.
    fn candidate(&self, ceiling: u64) -> Option<(u64, BatchReason)> {
        let open: Vec<(u64, Latency)> = (self.start..=ceiling)
            .filter(|batch| !self.tried(*batch))
            .filter_map(|batch| Some((batch, self.forecast.expect(batch)?)))
            .collect();
        let best = self.best().map_or(0.0, |(_, found)| self.goal.score_of(found));
        let score = |batch: u64, latency: &Latency| {
            let kept = f64::from(u8::from(self.goal.excess(latency) <= 1.0));
            self.goal.score(latency, latency.output_tokens_per_s(batch, self.output), kept)
        };
        let scored = open.iter().map(|(batch, latency)| (*batch, score(*batch, latency)));
        // Of equal ones the smallest: `max_by` takes the last.
        let highest = scored.rev().max_by(|a, b| a.1.total_cmp(&b.1));
        if let Some((batch, score)) = highest.filter(|(_, score)| *score > best * (1.0 + WORTH)) {
            debug_assert!(score > 0.0);
            return Some((batch, BatchReason::Candidate));
        }
        if best > 0.0 {
            return None;
        }
        let excess = self.nearest().map_or(f64::INFINITY, |(_, found)| self.goal.excess(&found.latency));
        let nearest = open.iter().map(|(batch, latency)| (*batch, self.goal.excess(latency)));
        let nearest = nearest.min_by(|a, b| a.1.total_cmp(&b.1));
        nearest
            .filter(|(_, expected)| *expected < excess * (1.0 - WORTH))
            .map(|(batch, _)| (batch, BatchReason::Nearest))
    }

    /// A batch beside the best, on a side on which none was measured.
    fn neighbour(&self, ceiling: u64) -> Option<(u64, BatchReason)> {
        let (best, _) = self.best()?;
        let step = step(best);
        let (below, above) = (best.saturating_sub(step).max(self.start), best.saturating_add(step).min(ceiling));
        let measured = |from: u64, to: u64| (from..=to).any(|batch| self.tried(batch));
        [(above, best + 1, above), (below, below, best.saturating_sub(1))]
            .into_iter()
            .find(|(batch, from, to)| *batch != best && !measured(*from, *to))
            .map(|(batch, ..)| (batch, BatchReason::Neighbour))
    }

    /// The batch that is expected to be the knee, if none near it was measured.
    fn expected_knee(&self, ceiling: u64) -> Option<(u64, BatchReason)> {
        let tokens_per_s = |batch: u64| Some(self.forecast.expect(batch)?.output_tokens_per_s(batch, self.output));
        let all: Vec<(u64, f64)> =
            (self.start..=ceiling).filter_map(|batch| Some((batch, tokens_per_s(batch)?))).collect();
        let highest = all.iter().map(|(_, tokens_per_s)| *tokens_per_s).fold(0.0, f64::max);
        let (knee, _) = *all.iter().find(|(_, tokens_per_s)| *tokens_per_s >= KNEE * highest)?;
        let near = (knee.saturating_sub(step(knee) - 1)..=knee + step(knee) - 1).any(|batch| self.tried(batch));
        (!near).then_some((knee, BatchReason::Knee))
    }

    /// Batches to measure again, side by side: the best, those beside it, and those of the next highest scores that
    /// cannot be told from it by what was measured one after the other.
    pub fn finalists(&self) -> Vec<u64> {
        let Some((best, own)) = self.best() else {
            return self.nearest().map(|(batch, _)| batch).into_iter().collect();
        };
        let below = self.found().map(|(batch, _)| batch).rfind(|batch| *batch < best);
        let above = self.found().map(|(batch, _)| batch).find(|batch| *batch > best);
        let near = |found: &BatchFigures| self.goal.score_of(found) >= self.goal.score_of(own) * NEARLY;
        let serves = |found: &BatchFigures| self.goal.score_of(found) > 0.0;
        let mut close: Vec<(u64, &BatchFigures)> =
            self.found().filter(|(_, found)| serves(found) && (near(found) || self.goal.alike(own, found))).collect();
        close.sort_by(|a, b| self.goal.score_of(b.1).total_cmp(&self.goal.score_of(a.1)));
        let close = close.into_iter().map(|(batch, _)| batch).take(FINALISTS);
        let mut all: Vec<u64> = [below, Some(best), above].into_iter().flatten().chain(close).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// How far apart batches about this large are measured.
fn step(batch: u64) -> u64 {
    (batch / APART).max(1)
}
