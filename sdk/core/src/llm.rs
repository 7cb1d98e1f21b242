//! Spans for LLM inference: requests and their phases, with OpenTelemetry GenAI names.
//!
//! They are ordinary `tracing` spans, useful with any subscriber; candlescope's layer recognises them by their fields.
//! Names and attributes follow the OpenTelemetry semantic conventions for generative AI, version [`SEMCONV_VERSION`]
//! (in development); our own fields have names under `candlescope.`.
//!
//! ```
//! # use candlescope_core as candlescope;
//! use candlescope::llm::{self, Request, Tokens};
//! let request = Request::new("text_completion", "smollm2-135m").prompt_tokens(5);
//! let _in_request = request.enter();
//! {
//!     let _step = llm::prefill(Tokens::new(5).context(5)); // 5 new tokens, which are all there are
//!     // model.forward(...)
//!     let _sampling = llm::sample();
//!     request.token(); // the first output token exists: this is what time to first token means
//! }
//! for position in 6..8 {
//!     let _step = llm::decode(Tokens::new(1).context(position));
//!     // model.forward(...)
//!     request.token();
//! }
//! ```

pub use crate::field_names::{
    CALLER_SAMPLED_FIELD, LAST_TOKEN_FIELD, OUTCOME_FIELD, PARENT_SPAN_ID_FIELD, PHASE_FIELD, REQUEST_MODEL_FIELD,
    TARGET, TRACE_ID_FIELD,
};
use crate::layer::thread;
use crate::request_handle::{self, RequestHandle};
use crate::traceparent::Traceparent;
use crate::vocabulary::Outcome;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tracing::field::Empty;
use tracing::span::{Entered, EnteredSpan};
use tracing::{Span, info_span};

/// Version of the OpenTelemetry semantic conventions whose GenAI names are used.
pub const SEMCONV_VERSION: &str = "1.42.0";

/// The tokens that a step passes through the model.
///
/// ```
/// # use candlescope_core as candlescope;
/// use candlescope::llm::Tokens;
/// let one_sequence = Tokens::new(1).context(128); // one new token, which is the 128th
/// let four = Tokens::new(4).context(128).batch(4); // one for each of four sequences
/// # let _ = (one_sequence, four);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Tokens {
    new: usize,
    context: Option<usize>,
    batch: usize,
}

impl Tokens {
    /// `tokens` new tokens, over all sequences together; one sequence, unless [`batch`](Tokens::batch) says otherwise.
    pub const fn new(tokens: usize) -> Self {
        Self { new: tokens, context: None, batch: 1 }
    }

    /// Tokens that a sequence has after the step, including the new ones. Unknown by default.
    pub const fn context(self, tokens: usize) -> Self {
        Self { context: Some(tokens), ..self }
    }

    /// Sequences that the step processes at once; default 1.
    pub const fn batch(self, sequences: usize) -> Self {
        Self { batch: sequences, ..self }
    }
}

/// The prompt's phase.
///
/// A phase is a *step* of the run unless it stands inside another phase. It lasts as long as the guard. If prompts are
/// padded to one length, state how many tokens are real ones right after this, as shown in [`decode`].
#[must_use = "the phase ends when the guard is dropped"]
pub fn prefill(Tokens { new, context, batch }: Tokens) -> EnteredSpan {
    info_span!(target: TARGET, "prefill", candlescope.phase = "prefill", tokens = new, context_len = context, batch)
        .entered()
}

/// One decoding step: one new token for each sequence.
///
/// The tokens are what the step passes through the model. If sequences of the batch have ended, state right after this
/// how many it still works for, because figures such as tokens a second count only those.
///
/// ```
/// # use candlescope_core as candlescope;
/// use candlescope::llm::{self, Tokens};
/// use candlescope::{Annotation, annotate};
/// let _step = llm::decode(Tokens::new(4).context(128).batch(4)); // four sequences are passed, one of them goes on
/// annotate(Annotation::new().new_tokens(1).sequences(1).context_sum(128));
/// // model.forward(...)
/// ```
#[must_use = "the phase ends when the guard is dropped"]
pub fn decode(Tokens { new, context, batch }: Tokens) -> EnteredSpan {
    info_span!(target: TARGET, "decode", candlescope.phase = "decode", tokens = new, context_len = context, batch)
        .entered()
}

/// Choosing the next token. Best placed inside the `prefill` or `decode` that it belongs to, so that one step is one
/// token.
#[must_use = "the phase ends when the guard is dropped"]
pub fn sample() -> EnteredSpan {
    info_span!(target: TARGET, "sample", candlescope.phase = "sample").entered()
}

/// A forward pass that generates nothing: of an embedding model, or of the encoder that a decoder reads.
#[must_use = "the phase ends when the guard is dropped"]
pub fn encode(Tokens { new, context, batch }: Tokens) -> EnteredSpan {
    info_span!(target: TARGET, "encode", candlescope.phase = "encode", tokens = new, context_len = context, batch)
        .entered()
}

/// A pass of images through a model's vision tower, before the prompt that they are part of. Tokens are patches.
///
/// ```
/// # use candlescope_core as candlescope;
/// use candlescope::llm::{self, Tokens};
/// {
///     let _step = llm::vision(Tokens::new(14 * 14));
///     // let image = model.encode_image(&pixels)?;
/// }
/// let _step = llm::prefill(Tokens::new(49 + 12).context(49 + 12)); // four patches become one token
/// // model.forward(...)
/// ```
#[must_use = "the phase ends when the guard is dropped"]
pub fn vision(Tokens { new, context, batch }: Tokens) -> EnteredSpan {
    info_span!(target: TARGET, "vision", candlescope.phase = "vision", tokens = new, context_len = context, batch)
        .entered()
}

/// Says that the step that is open on this thread serves `request`: it passes `tokens` of it through the model, and
/// `output_tokens` of it exist on the host when this is called. Call it once for each request of the step, before the
/// step's guard is dropped.
///
/// This is for engines that batch continuously, where one step works for many requests. Such a step is not begun under a
/// request's [`enter`](Request::enter). The output tokens are counted here, so [`token`](Request::token) is not called
/// for them: none for a chunk of a prompt that is not its last, usually one otherwise, several with speculative
/// decoding. [`Tokens::context`] is the request's own context after the step.
///
/// From this each request has its queue time, TTFT, inter-token latency and share of the steps' time. It allocates
/// nothing and takes no lock but for a request's first token. At most [`MOST_SERVED`](crate::MOST_SERVED) requests of a
/// step are kept. Outside a step only the output tokens are counted.
///
/// ```
/// use candlescope_core::llm::{self, Request, Tokens};
/// let (old, new) = (Request::new("chat", "m").prompt_tokens(9), Request::new("chat", "m").prompt_tokens(5));
/// {
///     // One token of a request that generates, and the prompt of one that has just come.
///     let _step = llm::decode(Tokens::new(1 + 5).batch(2));
///     // model.forward(...), then the next tokens are chosen
///     llm::serves(&old, Tokens::new(1).context(12), 1);
///     llm::serves(&new, Tokens::new(5).context(5), 1);
/// }
/// ```
pub fn serves(request: &Request, tokens: Tokens, output_tokens: usize) {
    let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    if let Some(handle) = &request.handle {
        let sequences = tokens.batch.max(1) as u64;
        let context = tokens.context.map(|context| (context as u64).saturating_mul(sequences));
        thread::serve(handle, small(tokens.new), small(output_tokens), context);
    }
    request.record_tokens(output_tokens);
}

/// One inference request. Its span lasts as long as this value and carries the request's context: enter it on every
/// thread that works for the request.
pub struct Request {
    span: Span,
    /// `None` if nobody records the request.
    handle: Option<RequestHandle>,
    started: Instant,
    tokens: AtomicU64,
    /// Nanoseconds from `started` to the latest token.
    last_token_ns: AtomicU64,
}

impl Request {
    /// A request for `operation` (`text_completion`, `chat`, `embeddings`, …) to `model`.
    pub fn new(operation: &str, model: &str) -> Self {
        let make_span = || {
            info_span!(
                target: TARGET,
                "request",
                otel.name = format_args!("{operation} {model}"),
                gen_ai.operation.name = operation,
                gen_ai.provider.name = "candle",
                gen_ai.request.model = model,
                gen_ai.usage.input_tokens = Empty,
                gen_ai.usage.output_tokens = Empty,
                gen_ai.response.time_to_first_chunk = Empty,
                candlescope.time_to_last_token = Empty,
                candlescope.trace_id = Empty,
                candlescope.parent_span_id = Empty,
                candlescope.caller_sampled = Empty,
                candlescope.outcome = Empty,
                batch = Empty,
            )
        };
        let (span, handle) = request_handle::of_span(make_span);
        Self { span, handle, started: Instant::now(), tokens: AtomicU64::new(0), last_token_ns: AtomicU64::new(0) }
    }

    /// Tokens in the prompt.
    #[must_use]
    pub fn prompt_tokens(self, tokens: usize) -> Self {
        self.span.record("gen_ai.usage.input_tokens", tokens as u64);
        self
    }

    /// Sequences in the batch.
    #[must_use]
    pub fn batch(self, batch: usize) -> Self {
        self.span.record("batch", batch as u64);
        self
    }

    /// Joins the trace of a caller: the trace id of a W3C `traceparent` header, 32 hex digits. Any other text is
    /// ignored.
    #[must_use]
    pub fn trace_id(self, trace_id: &str) -> Self {
        self.span.record("candlescope.trace_id", trace_id);
        self
    }

    /// Joins the trace of a caller, below the caller's span: a W3C `traceparent` header as it was received. Any other
    /// text is ignored, as the standard requires. If the caller's trace is not recorded, exporters of traces leave the
    /// request out by default.
    #[must_use]
    pub fn traceparent(self, header: &str) -> Self {
        if let Ok(caller) = header.parse::<Traceparent>() {
            self.span.record("candlescope.trace_id", tracing::field::display(caller.trace_id));
            self.span.record("candlescope.parent_span_id", tracing::field::display(caller.parent_id));
            self.span.record("candlescope.caller_sampled", caller.sampled);
        }
        self
    }

    /// Enters the request on this thread: steps that begin while the guard lives belong to it.
    #[must_use = "the request is left when the guard is dropped"]
    pub fn enter(&self) -> Entered<'_> {
        self.span.enter()
    }

    /// The request's span, to instrument a future or to enter it on another thread.
    pub fn span(&self) -> &Span {
        &self.span
    }

    /// Reports that one more output token exists on the host.
    pub fn token(&self) {
        self.record_tokens(1);
    }

    /// Reports that `n` more output tokens exist on the host, one for each sequence of a batch. Can be called from any
    /// thread; it reads the clock, and takes a lock only for the first token.
    pub fn record_tokens(&self, n: usize) {
        if n == 0 {
            return;
        }
        let elapsed = self.started.elapsed();
        self.last_token_ns.fetch_max(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        if self.tokens.fetch_add(n as u64, Ordering::Relaxed) == 0 {
            self.span.record("gen_ai.response.time_to_first_chunk", elapsed.as_secs_f64());
        }
    }

    /// Says how the request ended, or how it ends if nothing else is said: the last word counts. Say `Cancelled` where
    /// the request begins and `Done` where its last token is out, and a request whose future is dropped in between, as
    /// that of a client who left, is recorded as cancelled.
    ///
    /// A request that is dropped without a word has no outcome, unless its thread panics: then it failed.
    pub fn outcome(&self, outcome: Outcome) {
        self.span.record(OUTCOME_FIELD, outcome.as_str());
    }

    /// Output tokens so far.
    pub fn output_tokens(&self) -> u64 {
        self.tokens.load(Ordering::Relaxed)
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let tokens = self.tokens.load(Ordering::Relaxed);
        self.span.record("gen_ai.usage.output_tokens", tokens);
        if tokens > 0 {
            let last = Duration::from_nanos(self.last_token_ns.load(Ordering::Relaxed));
            self.span.record("candlescope.time_to_last_token", last.as_secs_f64());
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
