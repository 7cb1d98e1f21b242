//! Rows of `RUN/requests` as records.

use super::columns::{IntColumn, TextColumn};
use super::columns::{add, times};
use super::intern::Interner;
use super::spans_table::trace_id;
use arrow_array::RecordBatch;
use candlescope_core::{Outcome, RequestRecord, SpanId, TraceId};

/// Adds the rows of a batch that `keep` selects; returns how many lack the values that a request must have.
pub(super) fn rows(batch: &RecordBatch, interner: &mut Interner, keep: &[bool], into: &mut Vec<RequestRecord>) -> u64 {
    let int = |name| IntColumn::of(batch, name);
    let text = |name| TextColumn::of(batch, name);
    let (request, span_id, start, dur) = (int("request"), int("span_id"), int("host_start_ns"), int("host_dur_ns"));
    let (ttft, prompt, output, sequences) = (int("ttft_ns"), int("prompt_tokens"), int("output_tokens"), int("batch"));
    let (last_token, queue) = (int("last_token_ns"), int("queue_ns"));
    let (parent, sampled, outcome) = (int("parent_span_id"), int("caller_sampled"), text("outcome"));
    let (trace, operation, model) = (text("trace_id"), text("operation"), text("model"));

    let row = |row: usize| -> Option<RequestRecord> {
        let when = times(start.get(row)?, dur.unsigned(row)?)?;
        let mut record = RequestRecord::new(
            request.unsigned(row)?,
            trace.get(row).and_then(trace_id).unwrap_or(TraceId(0)),
            SpanId(span_id.get(row).unwrap_or(0) as u64),
            interner.word(operation.get(row).unwrap_or_default()),
            interner.word(model.get(row).unwrap_or_default()),
            when.0,
            when.1,
        );
        record.ttft_ns = ttft.unsigned(row);
        record.last_token_ns = last_token.unsigned(row);
        record.queue_ns = queue.unsigned(row);
        record.prompt_tokens = prompt.unsigned(row);
        record.output_tokens = output.unsigned(row);
        record.batch = sequences.small(row);
        // A span id of zero is none.
        record.parent_span_id = parent.get(row).filter(|id| *id != 0).map(|id| SpanId(id as u64));
        record.caller_sampled = sampled.get(row).map(|sampled| sampled != 0);
        record.outcome = outcome.get(row).and_then(Outcome::from_word);
        Some(record)
    };
    add(into, keep, row)
}
