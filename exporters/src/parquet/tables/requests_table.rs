//! `RUN/requests`: one row per inference request.

use super::columns::{Columns, Ints, Keyed, Texts, Words};
use super::table;
use crate::parquet::encoding::chunk::signed;
use crate::parquet::encoding::dictionary::ValueDict;
use candlescope_core::{Outcome, RequestRecord, TraceId};

table! {
    /// Requests of the next row group.
    Requests: RequestRecord, Request {
        request: Ints,
        trace_id: Words<TraceId>,
        span_id: Ints,
        operation: Texts,
        model: Texts,
        host_start: Ints,
        host_dur: Ints,
        ttft: Ints,
        prompt_tokens: Ints,
        output_tokens: Ints,
        batch: Ints,
        last_token: Ints,
        queue: Ints,
        parent_span_id: Ints,
        caller_sampled: Keyed<ValueDict<i32>>,
        outcome: Words<Outcome>,
    }
}

impl Requests {
    fn add(&mut self, request: &RequestRecord) {
        self.request.push(signed(request.request));
        self.trace_id.push(0, Some(request.trace_id));
        self.span_id.push(request.span_id.0 as i64);
        self.operation.push(&request.operation);
        self.model.push(&request.model);
        self.host_start.push(request.host_start.0);
        self.host_dur.push(signed(request.host_dur_ns));
        self.ttft.push_opt(request.ttft_ns.map(signed));
        self.prompt_tokens.push_opt(request.prompt_tokens.map(signed));
        self.output_tokens.push_opt(request.output_tokens.map(signed));
        self.batch.push_opt(request.batch.map(i64::from));
        self.last_token.push_opt(request.last_token_ns.map(signed));
        self.queue.push_opt(request.queue_ns.map(signed));
        self.parent_span_id.push_opt(request.parent_span_id.map(|id| id.0 as i64));
        self.caller_sampled.push(0, request.caller_sampled.map(i32::from));
        self.outcome.push(0, request.outcome);
    }
}
