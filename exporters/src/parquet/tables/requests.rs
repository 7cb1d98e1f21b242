//! `RUN/requests`: one row per inference request.

use super::{RunColumns, Table, rendered, text};
use crate::parquet::chunk::{ColumnData, signed};
use crate::parquet::column::{KeyColumn, ValueColumn};
use crate::parquet::dictionary::{TextDict, TraceDict};
use candlescope_core::{RecordKind, RequestRecord};

/// Requests of the next row group.
#[derive(Default)]
pub(in crate::parquet) struct Requests {
    request: ValueColumn<i64>,
    trace_id: KeyColumn,
    traces: TraceDict,
    span_id: ValueColumn<i64>,
    operation: KeyColumn,
    operations: TextDict,
    model: KeyColumn,
    models: TextDict,
    host_start: ValueColumn<i64>,
    host_dur: ValueColumn<i64>,
    ttft: ValueColumn<i64>,
    prompt_tokens: ValueColumn<i64>,
    output_tokens: ValueColumn<i64>,
    batch: ValueColumn<i64>,
    last_token: ValueColumn<i64>,
    queue: ValueColumn<i64>,
}

impl Table for Requests {
    type Record = RequestRecord;
    const KIND: RecordKind = RecordKind::Request;

    fn push(&mut self, request: &RequestRecord) {
        self.request.push(signed(request.request));
        self.trace_id.push(self.traces.key(0, Some(request.trace_id)));
        self.span_id.push(request.span_id.0 as i64);
        self.operation.push(self.operations.key(&request.operation));
        self.model.push(self.models.key(&request.model));
        self.host_start.push(request.host_start.0);
        self.host_dur.push(signed(request.host_dur_ns));
        self.ttft.push_opt(request.ttft_ns.map(signed));
        self.prompt_tokens.push_opt(request.prompt_tokens.map(signed));
        self.output_tokens.push_opt(request.output_tokens.map(signed));
        self.batch.push_opt(request.batch.map(i64::from));
        self.last_token.push_opt(request.last_token_ns.map(signed));
        self.queue.push_opt(request.queue_ns.map(signed));
    }

    fn rows(&self) -> usize {
        self.request.len()
    }

    fn columns<'a>(&'a self, run: &'a RunColumns) -> Vec<ColumnData<'a>> {
        let mut columns = run.columns(self.rows());
        columns.extend([
            ColumnData::Int64(&self.request),
            rendered(&self.trace_id, &self.traces),
            ColumnData::Int64(&self.span_id),
            text(&self.operation, self.operations.values()),
            text(&self.model, self.models.values()),
            ColumnData::Int64(&self.host_start),
            ColumnData::Int64(&self.host_dur),
            ColumnData::Int64(&self.ttft),
            ColumnData::Int64(&self.prompt_tokens),
            ColumnData::Int64(&self.output_tokens),
            ColumnData::Int64(&self.batch),
            ColumnData::Int64(&self.last_token),
            ColumnData::Int64(&self.queue),
        ]);
        columns
    }

    fn clear(&mut self) {
        *self = Self::default();
    }

    fn memory(&self) -> usize {
        self.rows() * 150
    }
}
