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
    /// Analytic FLOPs.
    pub flops: Option<u64>,
    /// Analytic bytes.
    pub bytes: Option<u64>,
    /// Intervals in it, itself included.
    pub intervals: u64,
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
            gpu_ns: step.gpu.map(|gpu| gpu.dur_ns),
            gpu_source: step.gpu.map(|gpu| gpu.source),
            tokens: step.tokens,
            context_len: step.context_len,
            batch: step.batch,
            flops: step.flops,
            bytes: step.bytes,
            intervals: step.intervals,
        }
    }

    /// End, Unix nanoseconds.
    pub fn end_ns(&self) -> i64 {
        self.start_ns.saturating_add(i64::try_from(self.dur_ns).unwrap_or(i64::MAX))
    }

    /// The word steps of its kind are grouped under: the phase, or else the name.
    pub fn group(&self) -> &str {
        self.phase.map_or(self.path.rollup.as_str(), |phase| phase.as_str())
    }
}
