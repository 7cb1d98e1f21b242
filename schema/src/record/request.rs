//! A request, from the creation of its span to its close.

use crate::record::{SpanId, TraceId};
use crate::vocabulary::Outcome;
use crate::{HostNs, table::record};
use std::sync::Arc;

record! {
    [$] each_request
    /// One inference request, from the creation of its span to its close.
    RequestRecord, Request, Requests {
        /// Number of the request, from 1.
        request: u64 => Int,
        /// W3C trace id of the request and of all its steps, 32 hex digits; the one OTLP exports.
        trace_id: TraceId => Word,
        /// W3C span id as a signed 64-bit integer; the one OTLP and NVTX carry.
        span_id: SpanId => Int,
        /// gen_ai.operation.name, for example text_completion or chat.
        operation: Arc<str> => Label,
        /// gen_ai.request.model.
        model: Arc<str> => Label,
        /// Start on the host, nanoseconds since the Unix epoch.
        host_start: HostNs => Int "host_start_ns",
        /// Duration on the host, nanoseconds.
        host_dur_ns: u64 => Int,
        /// Request start to first output token on the host, nanoseconds.
        ttft_ns: Option<u64> => Int,
        /// Prompt tokens of one sequence.
        prompt_tokens: Option<u64> => Int,
        /// Output tokens, all sequences of the batch together.
        output_tokens: Option<u64> => Int,
        /// Sequences in the batch.
        batch: Option<u32> => Int,
        /// Request start to last output token on the host, nanoseconds.
        last_token_ns: Option<u64> => Int,
        /// Request start to the start of its first phase, recorded or not (of its first step if it has no phase),
        /// nanoseconds.
        queue_ns: Option<u64> => Int,
        /// Span id of the caller, in another process, as a signed 64-bit integer.
        parent_span_id: Option<SpanId> => Int,
        /// 1 if the caller's trace is recorded, 0 if not; null if the caller did not say.
        caller_sampled: Option<bool> => Narrow,
        /// done, cancelled or failed; null if the program does not say how the request ended.
        outcome: Option<Outcome> => Word,
        /// 1 if steps of it were part of an experiment, which made some of them slower: its times are no sample of the
        /// program's. Null where no experiment is known of.
        perturbed: Option<bool> => Narrow,
        /// Recorded steps that worked for it, alone or with others; null in runs that do not count them.
        step_count: Option<u64> => Int,
        /// Its share of the time of its recorded steps on the host, nanoseconds: of a step for several requests by the work
        /// that each causes.
        step_share_ns: Option<u64> => Int,
        /// Recorded steps that worked for it whose time on the device is known.
        device_step_count: Option<u64> => Int,
        /// Its share of the time of these steps on the device, nanoseconds; null if it is known of none.
        device_share_ns: Option<u64> => Int,
        /// Its share of the energy of its steps, millijoules; null without an energy counter, and where it is not known
        /// which steps ran.
        energy_mj: Option<f64> => Real,
        /// Least that its energy may be, by the sensors' period and accuracy; null where power was not sampled.
        energy_low_mj: Option<f64> => Real,
        /// Most that its energy may be, likewise.
        energy_high_mj: Option<f64> => Real,
    }
}

impl RequestRecord {
    /// A request of which only its begin and end are known.
    pub fn new(
        request: u64,
        trace_id: TraceId,
        span_id: SpanId,
        operation: impl Into<Arc<str>>,
        model: impl Into<Arc<str>>,
        host_start: HostNs,
        host_dur_ns: u64,
    ) -> Self {
        Self {
            request,
            trace_id,
            span_id,
            operation: operation.into(),
            model: model.into(),
            host_start,
            host_dur_ns,
            ttft_ns: None,
            prompt_tokens: None,
            output_tokens: None,
            batch: None,
            last_token_ns: None,
            queue_ns: None,
            parent_span_id: None,
            caller_sampled: None,
            outcome: None,
            perturbed: None,
            step_count: None,
            step_share_ns: None,
            device_step_count: None,
            device_share_ns: None,
            energy_mj: None,
            energy_low_mj: None,
            energy_high_mj: None,
        }
    }

    /// Prompt tokens of all sequences of the batch together, to match how output tokens are counted.
    pub fn input_tokens(&self) -> Option<u64> {
        self.prompt_tokens.map(|tokens| tokens.saturating_mul(u64::from(self.batch.unwrap_or(1).max(1))))
    }
}
