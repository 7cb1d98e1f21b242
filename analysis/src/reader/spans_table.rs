//! Rows of `RUN/spans` as records.

use super::columns::{IntColumn, TextColumn};
use super::columns::{add, times};
use super::intern::Interner;
use arrow_array::RecordBatch;
use candlescope_core::{DType, GpuSource, GpuTime, PathInfo, Phase, Shape, SpanId, SpanRecord, TraceId};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Adds the rows of a batch that `keep` selects; returns how many lack the values that a span must have.
pub(super) fn rows(batch: &RecordBatch, interner: &mut Interner, keep: &[bool], into: &mut Vec<SpanRecord>) -> u64 {
    let int = |name| IntColumn::of(batch, name);
    let text = |name| TextColumn::of(batch, name);
    let (seq, parent_seq, span_id, step) = (int("seq"), int("parent_seq"), int("span_id"), int("step"));
    let (start, dur, depth) = (int("host_start_ns"), int("host_dur_ns"), int("depth"));
    let gpu = GpuColumns::of(batch);
    let (flops, bytes, tokens) = (int("flops"), int("bytes"), int("tokens"));
    let (executed, io_bytes) = (int("flops_executed"), int("io_bytes"));
    let (context_len, sequences) = (int("context_len"), int("batch"));
    let (trace, phase, path) = (text("trace_id"), text("phase"), text("path"));
    let (name, target, thread) = (text("name"), text("target"), text("thread"));
    let module = text("module");
    let (dtype, shape) = (text("dtype"), text("shape"));

    let traces = trace.map_values(trace_id);
    let phases = phase.map_values(Phase::from_word);
    let threads = thread.map_values(|name| interner.thread(name));
    let dtypes = dtype.map_values(|word| DType::from_word(word).unwrap_or(DType::Other));
    let shapes = shape.map_values(|text| text.parse::<Shape>().ok());
    let mut paths: FxHashMap<[u32; 4], Arc<PathInfo>> = FxHashMap::default();

    let row = |row: usize| -> Option<SpanRecord> {
        let path = paths
            .entry([path.id(row), name.id(row), target.id(row), module.id(row)])
            .or_insert_with(|| {
                let path = path.get(row).unwrap_or_default();
                let own = path.rsplit('/').next().unwrap_or_default();
                let name = name.get(row).unwrap_or(own);
                interner.path(path, name, target.get(row).unwrap_or_default(), module.get(row))
            })
            .clone();
        let when = times(start.get(row)?, dur.unsigned(row)?)?;
        let mut record = SpanRecord::new(
            seq.unsigned(row)?,
            traces.get(trace.id(row) as usize).copied().flatten().unwrap_or(TraceId(0)),
            SpanId(span_id.get(row).unwrap_or(0) as u64),
            path,
            threads.get(thread.id(row) as usize)?.clone(),
            when.0,
            when.1,
        );
        record.parent_seq = parent_seq.unsigned(row);
        record.step = step.unsigned(row);
        record.phase = phases.get(phase.id(row) as usize).copied().flatten();
        record.depth = depth.get(row).and_then(|d| u16::try_from(d).ok()).unwrap_or(0);
        record.gpu = gpu.get(row);
        record.flops = flops.unsigned(row);
        record.bytes = bytes.unsigned(row);
        record.tokens = tokens.small(row);
        record.context_len = context_len.small(row);
        record.batch = sequences.small(row);
        record.dtype = dtypes.get(dtype.id(row) as usize).copied();
        record.flops_executed = executed.unsigned(row);
        record.io_bytes = io_bytes.unsigned(row);
        record.shape = shapes.get(shape.id(row) as usize).copied().flatten();
        Some(record)
    };
    add(into, keep, row)
}

/// A W3C trace id of 32 hex digits.
pub(super) fn trace_id(text: &str) -> Option<TraceId> {
    u128::from_str_radix(text, 16).ok().map(TraceId)
}

/// The three columns with device time, which both spans and steps have.
pub(super) struct GpuColumns {
    start: IntColumn,
    dur: IntColumn,
    source: TextColumn,
}

impl GpuColumns {
    pub(super) fn of(batch: &RecordBatch) -> Self {
        Self {
            start: IntColumn::of(batch, "gpu_start_ns"),
            dur: IntColumn::of(batch, "gpu_dur_ns"),
            source: TextColumn::of(batch, "gpu_source"),
        }
    }

    pub(super) fn get(&self, row: usize) -> Option<GpuTime> {
        // Impossible times are not a measurement; the interval is kept without them.
        let (start, dur_ns) = times(self.start.get(row)?, self.dur.unsigned(row)?)?;
        Some(GpuTime { start, dur_ns, source: GpuSource::from_word(self.source.get(row)?)? })
    }
}
