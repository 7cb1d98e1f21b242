//! An interval: one enter/exit pair of a span.

use crate::record::{GpuTime, PathInfo, SpanId, ThreadInfo, TraceId};
use crate::vocabulary::{DType, Phase, Shape};
use crate::{HostNs, table::record};
use std::sync::Arc;

record! {
    [$] each_span
    /// One interval: one enter/exit pair of a span. Work is annotated on the interval itself; that of its children is
    /// not included.
    SpanRecord, Span, Spans {
        /// Number of the interval, unique in the run; ascending in enter order within one thread, but for replayed ones
        /// (`graph`).
        seq: u64 => Int,
        /// seq of the interval open on the same thread when this one was entered.
        parent_seq: Option<u64> => Int,
        /// W3C trace id, 32 hex digits, of the request or else of the step; the one OTLP exports.
        trace_id: TraceId => Word,
        /// W3C span id as a signed 64-bit integer; the one OTLP and NVTX carry.
        span_id: SpanId => Int,
        /// Number of the step; null for what stands above steps: entries of a request's span, and ranges by start and
        /// end of a recorded program.
        step: Option<u64> => Int,
        /// Innermost phase: prefill, decode, sample, encode or vision; null outside a marked phase.
        phase: Option<Phase> => Word,
        /// Path, name, target and module.
        path: Arc<PathInfo> => Names,
        /// Intervals open on the thread at entry; 0 is outermost.
        depth: u16 => Narrow,
        /// Name of the thread that entered it.
        thread: Arc<ThreadInfo> => Thread,
        /// Start on the host, nanoseconds since the Unix epoch.
        host_start: HostNs => Int "host_start_ns",
        /// Duration on the host, nanoseconds.
        host_dur_ns: u64 => Int,
        /// Time on the device, if it was measured.
        gpu: Option<GpuTime> => Gpu,
        /// Floating-point operations, analytic; the interval's own.
        flops: Option<u64> => Repeated,
        /// Bytes of weights and KV cache, analytic lower bound; the interval's own.
        bytes: Option<u64> => Repeated,
        /// Tokens processed.
        tokens: Option<u32> => Repeated,
        /// Context length after the step, tokens.
        context_len: Option<u32> => Repeated,
        /// Sequences in the batch.
        batch: Option<u32> => Repeated,
        /// Element type of the operation.
        dtype: Option<DType> => Word,
        /// Shape of the operation's output or principal operand, dimensions joined by x.
        shape: Option<Shape> => Word,
        /// FLOPs that are executed, masked ones included; the interval's own (null: as flops).
        flops_executed: Option<u64> => Repeated,
        /// Bytes with activations in and out of the operation, of which arithmetic intensity is computed; the
        /// interval's own.
        io_bytes: Option<u64> => Repeated,
        /// Time on a CPU within it, nanoseconds; null where the thread's switches are not recorded.
        cpu_ns: Option<u64> => Int,
        /// Time within it in which the thread was ready, but another one had its CPU, nanoseconds.
        preempted_ns: Option<u64> => Int,
        /// Time within it in which the thread waited: for a lock, another thread, a file, a device; nanoseconds.
        blocked_ns: Option<u64> => Int,
        /// Pages that the system had to provide within it.
        page_faults: Option<u64> => Int,
        /// CUDA graph that replayed it: it was not entered then, so that its duration on the host is 0 and its start
        /// that of the graph's launch; its work is what was stated when it was captured. Null for intervals that were
        /// entered.
        graph: Option<u32> => Int,
        /// 1 if it was replayed, and that follows from what ran, because nobody saw the graph's capture; see the column
        /// of kernels. Null otherwise.
        derived: Option<bool> => Narrow,
        /// A number that the program attached to it and that means what the program says, such as the payload of an NVTX
        /// range; null for most.
        payload: Option<f64> => Real,
    }
}

impl SpanRecord {
    /// The time in which it was open on the host, start and duration in nanoseconds; `None` if it was
    /// [replayed](Self::graph), not entered.
    pub fn host_time(&self) -> Option<(HostNs, u64)> {
        self.graph.is_none().then_some((self.host_start, self.host_dur_ns))
    }

    /// An interval without parent, step, device time and work.
    pub fn new(
        seq: u64,
        trace_id: TraceId,
        span_id: SpanId,
        path: Arc<PathInfo>,
        thread: Arc<ThreadInfo>,
        host_start: HostNs,
        host_dur_ns: u64,
    ) -> Self {
        Self {
            seq,
            parent_seq: None,
            trace_id,
            span_id,
            step: None,
            phase: None,
            path,
            depth: 0,
            thread,
            host_start,
            host_dur_ns,
            gpu: None,
            flops: None,
            bytes: None,
            tokens: None,
            context_len: None,
            batch: None,
            dtype: None,
            shape: None,
            flops_executed: None,
            io_bytes: None,
            cpu_ns: None,
            preempted_ns: None,
            blocked_ns: None,
            page_faults: None,
            graph: None,
            derived: None,
            payload: None,
        }
    }
}
