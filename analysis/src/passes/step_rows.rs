//! A step as the passes keep it: a tenth of the record, because a run may have millions.

use candlescope_core::{GpuSource, PathInfo, Phase, StepRecord};
use std::sync::Arc;

/// One step.
#[derive(Debug, Clone)]
pub struct StepRow {
    /// Number of the step.
    pub step: u64,
    /// Phase, where it is one.
    pub phase: Option<Phase>,
    /// Request it works for.
    pub request: Option<u64>,
    /// Name of its interval.
    pub path: Arc<PathInfo>,
    /// Number of the thread that ran it.
    pub thread: u32,
    /// Start, Unix nanoseconds.
    pub start_ns: i64,
    /// Duration on the host in nanoseconds.
    pub dur_ns: u64,
    /// Start on the device, Unix nanoseconds.
    pub gpu_start_ns: Option<i64>,
    /// Duration on the device in nanoseconds.
    pub gpu_ns: Option<u64>,
    /// What measured that.
    pub gpu_source: Option<GpuSource>,
    /// Tokens processed.
    pub tokens: Option<u32>,
    /// Context length after the step.
    pub context_len: Option<u32>,
    /// Sequences in the batch.
    pub batch: Option<u32>,
    /// Tokens that are new in it, of sequences that go on.
    pub new_tokens: Option<u32>,
    /// Sum of the contexts after it, of sequences that go on.
    pub context_sum: Option<u64>,
    /// Sequences that go on.
    pub sequences: Option<u32>,
    /// Analytic FLOPs.
    pub flops: Option<u64>,
    /// Executed FLOPs.
    pub flops_executed: Option<u64>,
    /// Analytic bytes of weights and KV cache.
    pub bytes: Option<u64>,
    /// The same with activations.
    pub io_bytes: Option<u64>,
    /// Intervals in it, itself included.
    pub intervals: u64,
    /// Intervals of it that were lost, where the run says.
    pub intervals_lost: Option<u64>,
}

impl StepRow {
    /// What is kept of a record.
    pub fn of(step: &StepRecord) -> Self {
        Self {
            step: step.step,
            phase: step.phase,
            request: step.request,
            path: step.path.clone(),
            thread: step.thread.index,
            start_ns: step.host_start.0,
            dur_ns: step.host_dur_ns,
            gpu_start_ns: step.gpu.map(|gpu| gpu.start.0),
            gpu_ns: step.gpu.map(|gpu| gpu.dur_ns),
            gpu_source: step.gpu.map(|gpu| gpu.source),
            tokens: step.tokens,
            context_len: step.context_len,
            batch: step.batch,
            new_tokens: step.new_tokens,
            context_sum: step.context_sum,
            sequences: step.sequences,
            flops: step.flops,
            flops_executed: step.flops_executed,
            bytes: step.bytes,
            io_bytes: step.io_bytes,
            intervals: step.intervals,
            intervals_lost: step.intervals_lost,
        }
    }

    /// End, Unix nanoseconds.
    pub fn end_ns(&self) -> i64 {
        self.start_ns.saturating_add(i64::try_from(self.dur_ns).unwrap_or(i64::MAX))
    }

    /// Start and end on the device, Unix nanoseconds.
    pub fn gpu_window(&self) -> Option<(i64, i64)> {
        let start = self.gpu_start_ns?;
        Some((start, start.saturating_add(i64::try_from(self.gpu_ns?).unwrap_or(i64::MAX))))
    }

    /// The word steps of its kind are grouped under: the phase, or else the name.
    pub fn group(&self) -> &str {
        self.phase.map_or(self.path.rollup.as_str(), |phase| phase.as_str())
    }
}
