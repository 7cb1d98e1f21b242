//! Replays a run from disk in the order in which it happened.
//!
//! A reader delivers table after table. During a session, a step comes with its intervals and a request after its last
//! step, which bounds the memory that sending needs.

use super::{OtlpConfig, OtlpExporter};
use candlescope_core::run::{ExporterReport, RunManifest};
use candlescope_core::{Batch, ExportError, Exporter, Ledger, RequestRecord, StepRecord};
use std::collections::HashMap;

/// What became of a run that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SentRun {
    /// The account of its records.
    pub report: ExporterReport,
    /// Spans that the collector accepted. Not the number of intervals: a request is a span that is no interval, and
    /// the intervals in which threads worked for it are its events.
    pub spans: u64,
}

/// Sends a run that has ended to a collector. `batches` should have steps and requests before spans: spans whose step
/// comes later are kept in memory until then.
///
/// # Errors
/// If the settings cannot be used, or the collector accepts nothing. If it accepts a part, the report says so, with the
/// last error.
pub fn send_run(
    config: OtlpConfig,
    run: &RunManifest,
    batches: impl IntoIterator<Item = Batch>,
) -> Result<SentRun, ExportError> {
    let mut exporter = OtlpExporter::new(config);
    let ledger = Ledger::new();
    exporter.start(run)?;
    let mut order = Order::default();
    let pass = |exporter: &mut OtlpExporter, batch: &Batch| {
        ledger.received(batch);
        exporter.export(batch, &ledger).or_else(|error| {
            ledger.note_error(error.to_string());
            // Nothing else depends on going on here: if nothing has arrived yet, nothing will.
            let arrived = ledger.report("otlp").exported.values().any(|n| *n > 0);
            if arrived { Ok(()) } else { Err(error) }
        })
    };
    for batch in batches {
        pass(&mut exporter, &order.take(batch))?;
    }
    pass(&mut exporter, &order.finish())?;
    let closed = exporter.close(&ledger);
    let report = ledger.report("otlp");
    let spans = exporter.spans_sent();
    match closed {
        Err(error) if report.exported.values().all(|n| *n == 0) => Err(error),
        Err(error) => Ok(SentRun { report: ExporterReport { last_error: Some(error.to_string()), ..report }, spans }),
        Ok(()) => Ok(SentRun { report, spans }),
    }
}

/// Orders steps after their intervals and requests after their steps.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// Steps with the number of their intervals still to come.
    steps: HashMap<u64, (StepRecord, u64)>,
    /// Requests with the number of their steps still to come.
    requests: HashMap<u64, (Option<RequestRecord>, u64)>,
    /// Requests whose steps are complete. They wait for one more batch, because the request's own interval ends after
    /// its steps.
    ended: Vec<RequestRecord>,
}

impl Order {
    pub(super) fn take(&mut self, mut batch: Batch) -> Batch {
        for step in std::mem::take(&mut batch.steps) {
            for request in step.requests() {
                self.requests.entry(request).or_default().1 += 1;
            }
            let intervals = step.intervals;
            self.steps.insert(step.step, (step, intervals));
        }
        for request in std::mem::take(&mut batch.requests) {
            let number = request.request;
            self.requests.entry(number).or_default().0 = Some(request);
        }
        batch.requests = std::mem::take(&mut self.ended);
        for number in batch.spans.iter().filter_map(|s| s.step) {
            if let Some((_, left)) = self.steps.get_mut(&number) {
                *left = left.saturating_sub(1);
                if *left == 0
                    && let Some((step, _)) = self.steps.remove(&number)
                {
                    self.step_ended(&step);
                    batch.steps.push(step);
                }
            }
        }
        batch
    }

    fn step_ended(&mut self, step: &StepRecord) {
        for number in step.requests() {
            if let Some((record, left)) = self.requests.get_mut(&number) {
                *left = left.saturating_sub(1);
                if *left == 0 {
                    self.ended.extend(record.take());
                }
            }
        }
    }

    /// The rest, which is incomplete because intervals were lost.
    pub(super) fn finish(&mut self) -> Batch {
        let mut batch = Batch::default();
        batch.steps = std::mem::take(&mut self.steps).into_values().map(|(step, _)| step).collect();
        batch.steps.sort_unstable_by_key(|s| s.step);
        let left = std::mem::take(&mut self.requests).into_values().filter_map(|(request, _)| request);
        batch.requests = std::mem::take(&mut self.ended).into_iter().chain(left).collect();
        batch.requests.sort_unstable_by_key(|r| r.request);
        batch
    }
}
