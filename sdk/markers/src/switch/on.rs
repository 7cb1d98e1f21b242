//! Switched on: spans of `tracing`.

use crate::names::{
    BATCH_FIELD, CALLER_SAMPLED_FIELD, CONTEXT_LEN_FIELD, FIRST_TOKEN_FIELD, LAST_TOKEN_FIELD, MODULE_FIELD,
    MODULE_TARGET, NAME_FIELD, OPERATION_FIELD, OUTCOME_FIELD, OUTPUT_TOKENS_FIELD, PARENT_SPAN_ID_FIELD, PHASE_FIELD,
    PROMPT_TOKENS_FIELD, REQUEST_MODEL_FIELD, TARGET, TOKENS_FIELD, TRACE_ID_FIELD,
};
use crate::recorder::{self, RecordedRequest};
use crate::traceparent;
use crate::{Outcome, Tokens};
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tracing::field::{display, Empty};
use tracing::span::EnteredSpan;
use tracing::{info_span, trace_span, Instrument, Span};

pub(crate) use tracing::span::{Entered as Inside, EnteredSpan as Entered};

macro_rules! phase {
    ($word:ident) => {
        pub(crate) fn $word(Tokens { new, context, batch }: Tokens) -> EnteredSpan {
            info_span!(
                target: TARGET,
                stringify!($word),
                { PHASE_FIELD } = stringify!($word),
                { TOKENS_FIELD } = new,
                { CONTEXT_LEN_FIELD } = context,
                { BATCH_FIELD } = batch
            )
            .entered()
        }
    };
}

phase!(prefill);
phase!(decode);
phase!(encode);
phase!(vision);

pub(crate) fn sample() -> EnteredSpan {
    info_span!(target: TARGET, "sample", { PHASE_FIELD } = "sample").entered()
}

pub(crate) fn step(Tokens { new, context, batch }: Tokens) -> EnteredSpan {
    info_span!(
        target: TARGET,
        "step",
        { TOKENS_FIELD } = new,
        { CONTEXT_LEN_FIELD } = context,
        { BATCH_FIELD } = batch
    )
    .entered()
}

#[derive(Clone)]
pub(crate) struct Module {
    span: Span,
}

/// The span of a module. Without a parent, because what is open while a model loads is not the parent of what runs
/// later.
macro_rules! module_span {
    ($name:expr, $module:expr) => {
        trace_span!(target: MODULE_TARGET, parent: None, "module", { NAME_FIELD } = $name, { MODULE_FIELD } = $module)
    };
}

pub(crate) fn module(name: &str) -> Module {
    let last = name.rsplit('.').next().unwrap_or(name);
    Module { span: module_span!(last, name) }
}

pub(crate) fn layer(number: usize) -> Module {
    Module { span: module_span!("layer", display(format_args!("layers.{number}"))) }
}

pub(crate) fn module_of_layer(number: usize, name: &str) -> Module {
    let last = name.rsplit('.').next().unwrap_or(name);
    Module { span: module_span!(last, display(format_args!("layers.{number}.{name}"))) }
}

impl Module {
    #[inline]
    pub(crate) fn enter(&self) -> Inside<'_> {
        self.span.enter()
    }

    #[inline]
    pub(crate) fn entered(self) -> EnteredSpan {
        self.span.entered()
    }

    pub(crate) fn span(&self) -> &Span {
        &self.span
    }
}

pub(crate) struct Request {
    span: Span,
    /// `None` if nobody records the request.
    recorded: Option<Box<dyn RecordedRequest>>,
    started: Instant,
    tokens: AtomicU64,
    /// Nanoseconds from `started` to the latest token.
    last_token_ns: AtomicU64,
}

impl Request {
    pub(crate) fn new(operation: &str, model: &str) -> Self {
        let make_span = || {
            info_span!(
                target: TARGET,
                "request",
                { NAME_FIELD } = format_args!("{operation} {model}"),
                { OPERATION_FIELD } = operation,
                gen_ai.provider.name = "candle",
                { REQUEST_MODEL_FIELD } = model,
                { PROMPT_TOKENS_FIELD } = Empty,
                { OUTPUT_TOKENS_FIELD } = Empty,
                { FIRST_TOKEN_FIELD } = Empty,
                { LAST_TOKEN_FIELD } = Empty,
                { TRACE_ID_FIELD } = Empty,
                { PARENT_SPAN_ID_FIELD } = Empty,
                { CALLER_SAMPLED_FIELD } = Empty,
                { OUTCOME_FIELD } = Empty,
                { BATCH_FIELD } = Empty
            )
        };
        let (span, recorded) = recorder::of_span(make_span);
        Self { span, recorded, started: Instant::now(), tokens: AtomicU64::new(0), last_token_ns: AtomicU64::new(0) }
    }

    pub(crate) fn prompt_tokens(&self, tokens: usize) {
        self.span.record(PROMPT_TOKENS_FIELD, tokens as u64);
    }

    pub(crate) fn batch(&self, batch: usize) {
        self.span.record(BATCH_FIELD, batch as u64);
    }

    pub(crate) fn trace_id(&self, trace_id: &str) {
        self.span.record(TRACE_ID_FIELD, trace_id);
    }

    pub(crate) fn traceparent(&self, header: &str) {
        if let Some((trace, parent, sampled)) = traceparent::parts(header) {
            self.span.record(TRACE_ID_FIELD, display(format_args!("{trace:032x}")));
            self.span.record(PARENT_SPAN_ID_FIELD, display(format_args!("{parent:016x}")));
            self.span.record(CALLER_SAMPLED_FIELD, sampled);
        }
    }

    pub(crate) fn enter(&self) -> Inside<'_> {
        self.span.enter()
    }

    pub(crate) fn instrument<F: Future>(&self, future: F) -> impl Future<Output = F::Output> {
        future.instrument(self.span.clone())
    }

    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    pub(crate) fn record_tokens(&self, n: usize) {
        if n == 0 {
            return;
        }
        let elapsed = self.started.elapsed();
        self.last_token_ns.fetch_max(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        if self.tokens.fetch_add(n as u64, Ordering::Relaxed) == 0 {
            self.span.record(FIRST_TOKEN_FIELD, elapsed.as_secs_f64());
        }
    }

    pub(crate) fn outcome(&self, outcome: Outcome) {
        self.span.record(OUTCOME_FIELD, outcome.as_str());
    }

    pub(crate) fn output_tokens(&self) -> u64 {
        self.tokens.load(Ordering::Relaxed)
    }

    pub(crate) fn serve(&self, tokens: Tokens, output_tokens: usize) {
        let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        if let Some(recorded) = &self.recorded {
            let sequences = tokens.batch.max(1) as u64;
            let context = tokens.context.map(|context| (context as u64).saturating_mul(sequences));
            recorded.serve(small(tokens.new), small(output_tokens), context);
        }
        self.record_tokens(output_tokens);
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let tokens = self.tokens.load(Ordering::Relaxed);
        self.span.record(OUTPUT_TOKENS_FIELD, tokens);
        if tokens > 0 {
            let last = Duration::from_nanos(self.last_token_ns.load(Ordering::Relaxed));
            self.span.record(LAST_TOKEN_FIELD, last.as_secs_f64());
        }
        if std::thread::panicking() {
            self.outcome(Outcome::Failed);
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("span", &self.span).field("tokens", &self.tokens).finish_non_exhaustive()
    }
}
