//! `RUN/steps`: one row per step.

use super::columns::{Columns, Floats, Ints, Paths, Texts, Threads, Words};
use super::table;
use crate::parquet::encoding::chunk::signed;
use candlescope_core::{GpuSource, Phase, Served, StepRecord, TraceId, UnrecordedStep};
use std::sync::Arc;

table! {
    /// Steps of the next row group.
    Steps: StepRecord, Step {
        step: Ints,
        seq: Ints,
        trace_id: Words<TraceId>,
        phase: Words<Phase>,
        request: Ints,
        path: Paths,
        thread: Threads,
        host_start: Ints,
        host_dur: Ints,
        gpu_start: Ints,
        gpu_dur: Ints,
        gpu_source: Words<GpuSource>,
        energy: Floats,
        tokens: Ints,
        context_len: Ints,
        batch: Ints,
        flops: Ints,
        bytes: Ints,
        intervals: Ints,
        intervals_lost: Ints,
        new_tokens: Ints,
        context_sum: Ints,
        sequences: Ints,
        flops_executed: Ints,
        io_bytes: Ints,
        module: Texts,
        serves: Texts,
        target: Texts,
        unrecorded: Texts,
    }
}

impl Steps {
    fn add(&mut self, step: &StepRecord) {
        self.step.push(signed(step.step));
        self.seq.push(signed(step.seq));
        self.trace_id.push(0, Some(step.trace_id));
        self.phase.push(0, step.phase);
        self.request.push_opt(step.request.map(signed));
        self.path.push_opt(Some(&step.path));
        self.thread.push(&step.thread);
        self.host_start.push(step.host_start.0);
        self.host_dur.push(signed(step.host_dur_ns));
        self.gpu_start.push_opt(step.gpu.map(|g| g.start.0));
        self.gpu_dur.push_opt(step.gpu.map(|g| signed(g.dur_ns)));
        self.gpu_source.push(0, step.gpu.map(|g| g.source));
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
        self.module.push_opt(step.path.module.as_ref());
        self.serves.push_opt(Served::to_text(&step.serves).map(Arc::from).as_ref());
        self.target.push_opt(Some(&step.path.target).filter(|target| !target.is_empty()));
        let unrecorded = step.unrecorded.as_deref().map(|steps| UnrecordedStep::to_text(steps).into());
        self.unrecorded.push_opt(unrecorded.as_ref());
    }
}
