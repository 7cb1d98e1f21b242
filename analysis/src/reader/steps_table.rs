//! Rows of `RUN/steps` as records.

use super::columns::{FloatColumn, IntColumn, TextColumn};
use super::columns::{add, times};
use super::intern::Interner;
use super::spans_table::{GpuColumns, trace_id};
use arrow_array::RecordBatch;
use candlescope_core::run::{STEP_TARGET, UNRECORDED_STEPS};
use candlescope_core::{Phase, Served, StepRecord, TraceId, UnrecordedStep};

/// Adds the rows of a batch that `keep` selects; returns how many lack the values that a step must have.
pub(super) fn rows(batch: &RecordBatch, interner: &mut Interner, keep: &[bool], into: &mut Vec<StepRecord>) -> u64 {
    let int = |name| IntColumn::of(batch, name);
    let text = |name| TextColumn::of(batch, name);
    let (step, seq, request) = (int("step"), int("seq"), int("request"));
    let (intervals, lost) = (int("intervals"), int("intervals_lost"));
    let (start, dur) = (int("host_start_ns"), int("host_dur_ns"));
    let gpu = GpuColumns::of(batch);
    let energy = FloatColumn::of(batch, "energy_mj");
    let (flops, bytes, tokens) = (int("flops"), int("bytes"), int("tokens"));
    let (context_len, sequences) = (int("context_len"), int("batch"));
    let (new_tokens, context_sum, going_on) = (int("new_tokens"), int("context_sum"), int("sequences"));
    let (executed, io_bytes) = (int("flops_executed"), int("io_bytes"));
    let (trace, phase, path, thread) = (text("trace_id"), text("phase"), text("path"), text("thread"));
    let (module, serves) = (text("module"), text("serves"));
    let (target, unrecorded) = (text(STEP_TARGET), text(UNRECORDED_STEPS));
    // Steps one after the other often serve the same requests.
    let served = serves.map_values(Served::from_text);

    let row = |row: usize| -> Option<StepRecord> {
        let path = path.get(row).unwrap_or_default();
        let when = times(start.get(row)?, dur.unsigned(row)?)?;
        let mut record = StepRecord::new(
            step.unsigned(row)?,
            seq.unsigned(row)?,
            trace.get(row).and_then(trace_id).unwrap_or(TraceId(0)),
            interner.path(
                path,
                path.rsplit('/').next().unwrap_or_default(),
                target.get(row).unwrap_or_default(),
                module.get(row),
            ),
            interner.thread(thread.get(row)?),
            when.0,
            when.1,
        );
        record.phase = phase.get(row).and_then(Phase::from_word);
        record.request = request.unsigned(row);
        record.serves = served.get(serves.id(row) as usize).cloned().unwrap_or_default();
        record.gpu = gpu.get(row);
        record.energy_mj = energy.get(row);
        record.tokens = tokens.small(row);
        record.context_len = context_len.small(row);
        record.batch = sequences.small(row);
        record.flops = flops.unsigned(row);
        record.bytes = bytes.unsigned(row);
        record.intervals = intervals.unsigned(row).unwrap_or(1);
        record.intervals_lost = lost.unsigned(row);
        record.new_tokens = new_tokens.small(row);
        record.context_sum = context_sum.unsigned(row);
        record.sequences = going_on.small(row);
        record.flops_executed = executed.unsigned(row);
        record.io_bytes = io_bytes.unsigned(row);
        record.unrecorded = unrecorded.get(row).map(UnrecordedStep::of_text);
        Some(record)
    };
    add(into, keep, row)
}
