//! A step: the outermost interval on a thread, or a marked phase.

use crate::record::{GpuTime, PathInfo, ThreadInfo, TraceId, UnrecordedStep, is_of_model};
use crate::served::Served;
use crate::vocabulary::{Phase, Ran};
use crate::{HostNs, table::record};
use std::sync::Arc;

record! {
    [$] each_step
    /// One step: the outermost interval on a thread, or a marked phase.
    StepRecord, Step, Steps {
        /// Number of the step, from 0 in order of start over all threads.
        step: u64 => Int,
        /// seq of the interval that is the step.
        seq: u64 => Int,
        /// W3C trace id, 32 hex digits; the one OTLP exports.
        trace_id: TraceId => Word,
        /// prefill, decode, sample, encode or vision; null outside a marked phase.
        phase: Option<Phase> => Word,
        /// Number of the request the step works for; joins requests.request.
        request: Option<u64> => Int,
        /// Path of the step's interval, which is its own name, with its module and target.
        path: Arc<PathInfo> => StepPath,
        /// Name of the thread that ran it.
        thread: Arc<ThreadInfo> => Thread,
        /// Start on the host, nanoseconds since the Unix epoch.
        host_start: HostNs => Int "host_start_ns",
        /// Duration on the host, nanoseconds.
        host_dur_ns: u64 => Int,
        /// Time on the device of the whole step, if it was measured.
        gpu: Option<GpuTime> => Gpu,
        /// Energy in millijoules, where the window is long enough to be measured.
        energy_mj: Option<f64> => Real,
        /// Tokens processed, all sequences of the batch together.
        tokens: Option<u32> => Int,
        /// Context length after the step, tokens.
        context_len: Option<u32> => Int,
        /// Sequences in the batch.
        batch: Option<u32> => Int,
        /// Floating-point operations, analytic; sum over the step.
        flops: Option<u64> => Int,
        /// Bytes of weights and KV cache, analytic lower bound; sum over the step.
        bytes: Option<u64> => Int,
        /// Intervals recorded in the step, itself included; without those that a CUDA graph replayed.
        intervals: u64 => Several,
        /// Intervals of the step that were dropped because its thread's ring was full: where not 0, layers are missing;
        /// 65535: that many or more.
        intervals_lost: Option<u64> => Int,
        /// Tokens that are new in the step, of sequences that go on; `tokens` also counts padding and ended sequences.
        new_tokens: Option<u32> => Int,
        /// Sum of the context lengths after the step, of sequences that go on.
        context_sum: Option<u64> => Int,
        /// Sequences that go on.
        sequences: Option<u32> => Int,
        /// FLOPs that are executed, masked ones included; sum over the step, with flops of intervals that state none.
        flops_executed: Option<u64> => Int,
        /// Bytes with activations in and out of operations; sum over the step.
        io_bytes: Option<u64> => Int,
        /// Requests that the step serves, if it states them: a JSON list of `[request, tokens, output tokens]`, in order
        /// of request.
        serves: Vec<Served> => Lines,
        /// Steps without a record whose times rates need, as they became known: a line for each with number, start,
        /// duration (ns), request, phase and name, `-` where absent; empty: none; null: the run does not record them.
        unrecorded: Option<Vec<UnrecordedStep>> => Lines,
        /// Time on a CPU within it, nanoseconds; null where the thread's switches are not recorded.
        cpu_ns: Option<u64> => Int,
        /// Time within it in which the thread was ready, but another one had its CPU, nanoseconds.
        preempted_ns: Option<u64> => Int,
        /// Time within it in which the thread waited: for a lock, another thread, a file, a device; nanoseconds.
        blocked_ns: Option<u64> => Int,
        /// Pages that the system had to provide within it.
        page_faults: Option<u64> => Int,
        /// How it ran, where the program says it: replay (of a CUDA graph), or why call by call: not_asked, warm_up,
        /// no_device, stream, capture_failed, quantized or model.
        ran: Option<Ran> => Word,
    }
}

impl StepRecord {
    /// A step of one interval, without phase, request, device time and work.
    pub fn new(
        step: u64,
        seq: u64,
        trace_id: TraceId,
        path: Arc<PathInfo>,
        thread: Arc<ThreadInfo>,
        host_start: HostNs,
        host_dur_ns: u64,
    ) -> Self {
        Self {
            step,
            seq,
            trace_id,
            phase: None,
            request: None,
            path,
            thread,
            host_start,
            host_dur_ns,
            gpu: None,
            energy_mj: None,
            tokens: None,
            context_len: None,
            batch: None,
            flops: None,
            bytes: None,
            intervals: 1,
            intervals_lost: None,
            new_tokens: None,
            context_sum: None,
            sequences: None,
            flops_executed: None,
            io_bytes: None,
            serves: Vec::new(),
            unrecorded: None,
            cpu_ns: None,
            preempted_ns: None,
            blocked_ns: None,
            page_faults: None,
            ran: None,
        }
    }

    /// Whether the step is a span of the application, such as that of a handler: where phases are marked, it is in no
    /// figure. Of a step whose target is not known that is not said.
    pub fn is_application(&self) -> bool {
        let stated = self.phase.is_some() || self.flops.is_some() || self.bytes.is_some() || self.tokens.is_some();
        let target = &*self.path.target;
        !stated && self.path.module.is_none() && !target.is_empty() && !is_of_model(target)
    }

    /// The requests that the step works for: those that it states, or else the one that it was begun under.
    pub fn requests(&self) -> impl Iterator<Item = u64> {
        let under = self.request.filter(|_| self.serves.is_empty());
        self.serves.iter().map(|served| served.request).chain(under)
    }
}
