//! `RUN/spans`: one row per interval.

use super::{RunColumns, Table, rendered, text};
use crate::parquet::chunk::{ColumnData, KeySource, signed};
use crate::parquet::column::{KeyColumn, ValueColumn};
use crate::parquet::dictionary::{PathDict, ThreadDict, TraceDict, ValueDict};
use candlescope_core::{DType, GpuSource, Phase, RecordKind, Shape, SpanRecord};

/// Intervals of the next row group.
#[derive(Default)]
pub(in crate::parquet) struct Spans {
    seq: ValueColumn<i64>,
    parent_seq: ValueColumn<i64>,
    trace_id: KeyColumn,
    span_id: ValueColumn<i64>,
    step: ValueColumn<i64>,
    phase: KeyColumn,
    path: KeyColumn,
    depth: KeyColumn,
    thread: KeyColumn,
    host_start: ValueColumn<i64>,
    host_dur: ValueColumn<i64>,
    gpu_start: ValueColumn<i64>,
    gpu_dur: ValueColumn<i64>,
    gpu_source: KeyColumn,
    flops: KeyColumn,
    bytes: KeyColumn,
    tokens: KeyColumn,
    context_len: KeyColumn,
    batch: KeyColumn,
    dtype: KeyColumn,
    shape: KeyColumn,
    flops_executed: KeyColumn,
    io_bytes: KeyColumn,
    dict: Dictionaries,
}

#[derive(Default)]
struct Dictionaries {
    trace_id: TraceDict,
    phase: ValueDict<Phase>,
    path: PathDict,
    depth: ValueDict<i32>,
    thread: ThreadDict,
    gpu_source: ValueDict<GpuSource>,
    flops: ValueDict<i64>,
    bytes: ValueDict<i64>,
    tokens: ValueDict<i64>,
    context_len: ValueDict<i64>,
    batch: ValueDict<i64>,
    dtype: ValueDict<DType>,
    shape: ValueDict<Shape>,
    flops_executed: ValueDict<i64>,
    io_bytes: ValueDict<i64>,
}

impl Table for Spans {
    type Record = SpanRecord;
    const KIND: RecordKind = RecordKind::Span;

    fn push(&mut self, span: &SpanRecord) {
        let dict = &mut self.dict;
        // Values of one path repeat from step to step: the path is the slot where the last one is looked for.
        let path = dict.path.key(&span.path);
        self.seq.push(signed(span.seq));
        self.parent_seq.push_opt(span.parent_seq.map(signed));
        self.trace_id.push(dict.trace_id.key(0, Some(span.trace_id)));
        self.span_id.push(span.span_id.0 as i64);
        self.step.push_opt(span.step.map(signed));
        self.phase.push(dict.phase.key(0, span.phase));
        self.path.push(path);
        self.depth.push(dict.depth.key(path, Some(i32::from(span.depth))));
        self.thread.push(dict.thread.key(&span.thread));
        self.host_start.push(span.host_start.0);
        self.host_dur.push(signed(span.host_dur_ns));
        self.gpu_start.push_opt(span.gpu.map(|g| g.start.0));
        self.gpu_dur.push_opt(span.gpu.map(|g| signed(g.dur_ns)));
        self.gpu_source.push(dict.gpu_source.key(0, span.gpu.map(|g| g.source)));
        self.flops.push(dict.flops.key(path, span.flops.map(signed)));
        self.bytes.push(dict.bytes.key(path, span.bytes.map(signed)));
        self.tokens.push(dict.tokens.key(path, span.tokens.map(i64::from)));
        self.context_len.push(dict.context_len.key(path, span.context_len.map(i64::from)));
        self.batch.push(dict.batch.key(path, span.batch.map(i64::from)));
        self.dtype.push(dict.dtype.key(path, span.dtype));
        self.shape.push(dict.shape.key(path, span.shape));
        self.flops_executed.push(dict.flops_executed.key(path, span.flops_executed.map(signed)));
        self.io_bytes.push(dict.io_bytes.key(path, span.io_bytes.map(signed)));
    }

    fn rows(&self) -> usize {
        self.seq.len()
    }

    fn columns<'a>(&'a self, run: &'a RunColumns) -> Vec<ColumnData<'a>> {
        let dict = &self.dict;
        let mut columns = run.columns(self.rows());
        let made = |keys_of: &[u32]| KeySource::Made(self.path.mapped(keys_of));
        columns.extend([
            ColumnData::Int64(&self.seq),
            ColumnData::Int64(&self.parent_seq),
            rendered(&self.trace_id, &dict.trace_id),
            ColumnData::Int64(&self.span_id),
            ColumnData::Int64(&self.step),
            rendered(&self.phase, &dict.phase),
            text(&self.path, dict.path.values()),
            ColumnData::Text(made(&dict.path.name_of), dict.path.names.values().map(Into::into).collect()),
            ColumnData::Text(made(&dict.path.target_of), dict.path.targets.values().map(Into::into).collect()),
            ColumnData::Int32(KeySource::Kept(&self.depth), dict.depth.values().to_vec()),
            text(&self.thread, dict.thread.values()),
            ColumnData::Int64(&self.host_start),
            ColumnData::Int64(&self.host_dur),
            ColumnData::Int64(&self.gpu_start),
            ColumnData::Int64(&self.gpu_dur),
            rendered(&self.gpu_source, &dict.gpu_source),
            ColumnData::Int64Keys(&self.flops, dict.flops.values()),
            ColumnData::Int64Keys(&self.bytes, dict.bytes.values()),
            ColumnData::Int64Keys(&self.tokens, dict.tokens.values()),
            ColumnData::Int64Keys(&self.context_len, dict.context_len.values()),
            ColumnData::Int64Keys(&self.batch, dict.batch.values()),
            rendered(&self.dtype, &dict.dtype),
            rendered(&self.shape, &dict.shape),
            ColumnData::Int64Keys(&self.flops_executed, dict.flops_executed.values()),
            ColumnData::Int64Keys(&self.io_bytes, dict.io_bytes.values()),
        ]);
        columns
    }

    fn clear(&mut self) {
        for column in self.values_mut() {
            column.clear();
        }
        for column in self.keys_mut() {
            column.clear();
        }
        let Dictionaries {
            trace_id,
            phase,
            path,
            depth,
            thread,
            gpu_source,
            flops,
            bytes,
            tokens,
            context_len,
            batch,
            dtype,
            shape,
            flops_executed,
            io_bytes,
        } = &mut self.dict;
        trace_id.clear();
        phase.clear();
        path.clear();
        depth.clear();
        thread.clear();
        gpu_source.clear();
        for ints in [flops, bytes, tokens, context_len, batch, flops_executed, io_bytes] {
            ints.clear();
        }
        dtype.clear();
        shape.clear();
    }

    fn memory(&self) -> usize {
        let values = [
            &self.seq,
            &self.parent_seq,
            &self.span_id,
            &self.step,
            &self.host_start,
            &self.host_dur,
            &self.gpu_start,
            &self.gpu_dur,
        ];
        let keys = [
            &self.trace_id,
            &self.phase,
            &self.path,
            &self.depth,
            &self.thread,
            &self.gpu_source,
            &self.flops,
            &self.bytes,
            &self.tokens,
            &self.context_len,
            &self.batch,
            &self.dtype,
            &self.shape,
            &self.flops_executed,
            &self.io_bytes,
        ];
        let dict = &self.dict;
        values.iter().map(|c| c.memory()).sum::<usize>()
            + keys.iter().map(|c| c.memory()).sum::<usize>()
            + dict.trace_id.memory()
            + [
                &dict.flops,
                &dict.bytes,
                &dict.tokens,
                &dict.context_len,
                &dict.batch,
                &dict.flops_executed,
                &dict.io_bytes,
            ]
            .iter()
            .map(|d| d.memory())
            .sum::<usize>()
            + dict.shape.memory()
    }
}

impl Spans {
    fn values_mut(&mut self) -> [&mut ValueColumn<i64>; 8] {
        [
            &mut self.seq,
            &mut self.parent_seq,
            &mut self.span_id,
            &mut self.step,
            &mut self.host_start,
            &mut self.host_dur,
            &mut self.gpu_start,
            &mut self.gpu_dur,
        ]
    }

    fn keys_mut(&mut self) -> [&mut KeyColumn; 15] {
        [
            &mut self.trace_id,
            &mut self.phase,
            &mut self.path,
            &mut self.depth,
            &mut self.thread,
            &mut self.gpu_source,
            &mut self.flops,
            &mut self.bytes,
            &mut self.tokens,
            &mut self.context_len,
            &mut self.batch,
            &mut self.dtype,
            &mut self.shape,
            &mut self.flops_executed,
            &mut self.io_bytes,
        ]
    }
}
