//! `RUN/steps`: one row per step.

use super::{RunColumns, Table, rendered, text};
use crate::parquet::chunk::{ColumnData, signed};
use crate::parquet::column::{KeyColumn, ValueColumn};
use crate::parquet::dictionary::{PathDict, ThreadDict, TraceDict, ValueDict};
use candlescope_core::{GpuSource, Phase, RecordKind, StepRecord};

/// Steps of the next row group. A step comes with hundreds of intervals, so plain columns do.
#[derive(Default)]
pub(in crate::parquet) struct Steps {
    step: ValueColumn<i64>,
    seq: ValueColumn<i64>,
    trace_id: KeyColumn,
    traces: TraceDict,
    phase: KeyColumn,
    phases: ValueDict<Phase>,
    request: ValueColumn<i64>,
    path: KeyColumn,
    paths: PathDict,
    thread: KeyColumn,
    threads: ThreadDict,
    host_start: ValueColumn<i64>,
    host_dur: ValueColumn<i64>,
    gpu_start: ValueColumn<i64>,
    gpu_dur: ValueColumn<i64>,
    gpu_source: KeyColumn,
    gpu_sources: ValueDict<GpuSource>,
    energy: ValueColumn<f64>,
    tokens: ValueColumn<i64>,
    context_len: ValueColumn<i64>,
    batch: ValueColumn<i64>,
    flops: ValueColumn<i64>,
    bytes: ValueColumn<i64>,
    intervals: ValueColumn<i64>,
    intervals_lost: ValueColumn<i64>,
    new_tokens: ValueColumn<i64>,
    context_sum: ValueColumn<i64>,
    sequences: ValueColumn<i64>,
    flops_executed: ValueColumn<i64>,
    io_bytes: ValueColumn<i64>,
}

impl Table for Steps {
    type Record = StepRecord;
    const KIND: RecordKind = RecordKind::Step;

    fn push(&mut self, step: &StepRecord) {
        self.step.push(signed(step.step));
        self.seq.push(signed(step.seq));
        self.trace_id.push(self.traces.key(0, Some(step.trace_id)));
        self.phase.push(self.phases.key(0, step.phase));
        self.request.push_opt(step.request.map(signed));
        self.path.push(self.paths.key(&step.path));
        self.thread.push(self.threads.key(&step.thread));
        self.host_start.push(step.host_start.0);
        self.host_dur.push(signed(step.host_dur_ns));
        self.gpu_start.push_opt(step.gpu.map(|g| g.start.0));
        self.gpu_dur.push_opt(step.gpu.map(|g| signed(g.dur_ns)));
        self.gpu_source.push(self.gpu_sources.key(0, step.gpu.map(|g| g.source)));
        self.energy.push_opt(step.energy_mj);
        self.tokens.push_opt(step.tokens.map(i64::from));
        self.context_len.push_opt(step.context_len.map(i64::from));
        self.batch.push_opt(step.batch.map(i64::from));
        self.flops.push_opt(step.flops.map(signed));
        self.bytes.push_opt(step.bytes.map(signed));
        self.intervals.push(signed(step.intervals));
        self.intervals_lost.push_opt(step.intervals_lost.map(signed));
        self.new_tokens.push_opt(step.new_tokens.map(i64::from));
        self.context_sum.push_opt(step.context_sum.map(signed));
        self.sequences.push_opt(step.sequences.map(i64::from));
        self.flops_executed.push_opt(step.flops_executed.map(signed));
        self.io_bytes.push_opt(step.io_bytes.map(signed));
    }

    fn rows(&self) -> usize {
        self.step.len()
    }

    fn columns<'a>(&'a self, run: &'a RunColumns) -> Vec<ColumnData<'a>> {
        let mut columns = run.columns(self.rows());
        columns.extend([
            ColumnData::Int64(&self.step),
            ColumnData::Int64(&self.seq),
            rendered(&self.trace_id, &self.traces),
            rendered(&self.phase, &self.phases),
            ColumnData::Int64(&self.request),
            text(&self.path, self.paths.values()),
            text(&self.thread, self.threads.values()),
            ColumnData::Int64(&self.host_start),
            ColumnData::Int64(&self.host_dur),
            ColumnData::Int64(&self.gpu_start),
            ColumnData::Int64(&self.gpu_dur),
            rendered(&self.gpu_source, &self.gpu_sources),
            ColumnData::Float64(&self.energy),
            ColumnData::Int64(&self.tokens),
            ColumnData::Int64(&self.context_len),
            ColumnData::Int64(&self.batch),
            ColumnData::Int64(&self.flops),
            ColumnData::Int64(&self.bytes),
            ColumnData::Int64(&self.intervals),
            ColumnData::Int64(&self.intervals_lost),
            ColumnData::Int64(&self.new_tokens),
            ColumnData::Int64(&self.context_sum),
            ColumnData::Int64(&self.sequences),
            ColumnData::Int64(&self.flops_executed),
            ColumnData::Int64(&self.io_bytes),
        ]);
        columns
    }

    fn clear(&mut self) {
        *self = Self::default();
    }

    fn memory(&self) -> usize {
        self.rows() * 200
    }
}
