//! The state of a running session, for whoever holds its handle and for its exporters.

use crate::numbers;
use crate::record::RecordKind;
use crate::run::{ExporterReport, LossCounts, StepCounts};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// Numbers of a running session.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Records resolved so far, by kind.
    pub counts: BTreeMap<RecordKind, u64>,
    /// Intervals lost so far.
    pub loss: LossCounts,
    /// Every exporter's account so far.
    pub exporters: Vec<ExporterReport>,
    /// The queue before each of them, in the same order.
    #[doc(hidden)]
    pub queues: Vec<ExporterQueue>,
    /// Steps so far by what became of them.
    pub steps: StepCounts,
    /// Requests that have begun and have not ended yet.
    pub requests_open: u64,
    /// Context of these requests after their latest steps, in tokens over all their sequences. Only steps that state
    /// their context count ([`llm::prefill`](crate::llm::prefill), [`llm::decode`](crate::llm::decode)), whether they
    /// are recorded or not.
    pub tokens_in_flight: u64,
    /// Steps of [`Handle::capture_next`](crate::Handle::capture_next) that are still to come.
    pub capture_remaining: u64,
    /// Time taken from the application's threads ÷ sum of step durations so far, like
    /// `overhead.ratio` of the final manifest (derived from the loop: registry and layer, caches
    /// warm); `None` before the first step.
    pub overhead_ratio: Option<f64>,
}

/// How full the queue before an exporter is. Not the same as what it has not settled: an exporter may keep records for
/// minutes that it has taken out of its queue, such as those of a segment that is not full.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExporterQueue {
    /// Name of the exporter.
    pub exporter: String,
    /// Records in the queue, with those of the batch that the exporter works on.
    pub queued: u64,
    /// With more than these, it drops.
    pub limit: u64,
}

/// One line: what was recorded and lost, and whether every exporter has it.
impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let intervals = self.counts.get(&RecordKind::Span).copied().unwrap_or(0);
        let (intervals, lost) = (numbers::count(intervals), numbers::count(self.loss.lost()));
        write!(f, "{intervals} intervals, {lost} lost; {}; {} requests open", self.steps, self.requests_open)?;
        for exporter in &self.exporters {
            let (received, exported) = (exporter.received.values().sum(), exporter.exported.values().sum());
            write!(f, "; {} has {} of {} records", exporter.name, numbers::count(exported), numbers::count(received))?;
        }
        Ok(())
    }
}

type Source = Box<dyn Fn() -> Option<Stats> + Send + Sync>;

/// Gives an exporter the numbers of the session that it belongs to, see [`Exporter::attach`](crate::Exporter::attach).
/// Clones ask the same session.
#[derive(Clone, Default)]
pub struct SessionStats(Arc<OnceLock<Source>>);

impl fmt::Debug for SessionStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionStats")
    }
}

impl SessionStats {
    /// The same numbers as [`Handle::stats`](crate::Handle::stats); `None` before the session has started and after it
    /// has been dropped. It takes locks: do not call it for every batch.
    pub fn get(&self) -> Option<Stats> {
        self.0.get()?()
    }

    /// Called once the session has started. `source` must not keep the session alive.
    pub(crate) fn set(&self, source: impl Fn() -> Option<Stats> + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(source));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_fit_on_a_line() {
        let mut stats = Stats { requests_open: 2, ..Stats::default() };
        stats.counts.insert(RecordKind::Span, 12_345);
        stats.steps = StepCounts { begun: 40, recorded: 40, ..StepCounts::default() };
        stats.exporters.push(ExporterReport {
            name: "parquet".into(),
            received: [("spans".into(), 12_345), ("steps".into(), 40)].into(),
            exported: [("spans".into(), 12_000)].into(),
            ..ExporterReport::default()
        });
        assert_eq!(
            stats.to_string(),
            "12,345 intervals, 0 lost; recorded 40 of 40 steps; 2 requests open; parquet has 12,000 of 12,385 records"
        );
    }
}
