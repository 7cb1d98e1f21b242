//! `RUN/spans`: one row per interval.

use super::columns::{Columns, FewInts, Ints, Keyed, NamedPaths, Threads, Words};
use super::table;
use crate::parquet::encoding::chunk::signed;
use crate::parquet::encoding::dictionary::ValueDict;
use candlescope_core::{DType, GpuSource, Phase, Shape, SpanRecord, TraceId};

table! {
    /// Intervals of the next row group.
    Spans: SpanRecord, Span {
        seq: Ints,
        parent_seq: Ints,
        trace_id: Words<TraceId>,
        span_id: Ints,
        step: Ints,
        phase: Words<Phase>,
        path: Keyed<NamedPaths>,
        depth: Keyed<ValueDict<i32>>,
        thread: Threads,
        host_start: Ints,
        host_dur: Ints,
        gpu_start: Ints,
        gpu_dur: Ints,
        gpu_source: Words<GpuSource>,
        flops: FewInts,
        bytes: FewInts,
        tokens: FewInts,
        context_len: FewInts,
        batch: FewInts,
        dtype: Words<DType>,
        shape: Words<Shape>,
        flops_executed: FewInts,
        io_bytes: FewInts,
    }
}

impl Spans {
    #[inline]
    fn add(&mut self, span: &SpanRecord) {
        // Values of one path repeat from step to step, so the path is the slot in which the last value is looked up.
        let path = self.path.push(&span.path);
        self.seq.push(signed(span.seq));
        self.parent_seq.push_opt(span.parent_seq.map(signed));
        self.trace_id.push(0, Some(span.trace_id));
        self.span_id.push(span.span_id.0 as i64);
        self.step.push_opt(span.step.map(signed));
        self.phase.push(0, span.phase);
        self.depth.push(path, Some(i32::from(span.depth)));
        self.thread.push(&span.thread);
        self.host_start.push(span.host_start.0);
        self.host_dur.push(signed(span.host_dur_ns));
        self.gpu_start.push_opt(span.gpu.map(|g| g.start.0));
        self.gpu_dur.push_opt(span.gpu.map(|g| signed(g.dur_ns)));
        self.gpu_source.push(0, span.gpu.map(|g| g.source));
        self.flops.push(path, span.flops.map(signed));
        self.bytes.push(path, span.bytes.map(signed));
        self.tokens.push(path, span.tokens.map(i64::from));
        self.context_len.push(path, span.context_len.map(i64::from));
        self.batch.push(path, span.batch.map(i64::from));
        self.dtype.push(path, span.dtype);
        self.shape.push(path, span.shape);
        self.flops_executed.push(path, span.flops_executed.map(signed));
        self.io_bytes.push(path, span.io_bytes.map(signed));
    }
}
