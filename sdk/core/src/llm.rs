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

use crate::traceparent::Traceparent;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tracing::field::Empty;
use tracing::span::{Entered, EnteredSpan};
use tracing::{Span, info_span};

/// Version of the OpenTelemetry semantic conventions whose GenAI names are used.
pub const SEMCONV_VERSION: &str = "1.42.0";

/// `tracing` target of the helpers' spans.
pub const TARGET: &str = "candlescope::llm";

/// Field that marks a span as a phase; its value is a [`Phase`](crate::Phase) word.
pub const PHASE_FIELD: &str = "candlescope.phase";

/// Field that marks a span as a request, together with the model's name.
pub const REQUEST_MODEL_FIELD: &str = "gen_ai.request.model";

/// Field that joins a request to its caller's trace: a W3C trace id of 32 hex digits.
pub const TRACE_ID_FIELD: &str = "candlescope.trace_id";

/// Field that names the caller's span: a W3C span id of 16 hex digits.
pub const PARENT_SPAN_ID_FIELD: &str = "candlescope.parent_span_id";

/// Field that says whether the caller's trace is recorded: a boolean.
pub const CALLER_SAMPLED_FIELD: &str = "candlescope.caller_sampled";

/// Field that states when a request's latest output token existed on the host: seconds since the request's start, as a
/// float.
pub const LAST_TOKEN_FIELD: &str = "candlescope.time_to_last_token";

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

/// One inference request. Its span lasts as long as this value and carries the request's context: enter it on every
/// thread that works for the request.
#[derive(Debug)]
pub struct Request {
    span: Span,
    started: Instant,
    tokens: AtomicU64,
    /// Nanoseconds from `started` to the latest token.
    last_token_ns: AtomicU64,
}

impl Request {
    /// A request for `operation` (`text_completion`, `chat`, `embeddings`, …) to `model`.
    pub fn new(operation: &str, model: &str) -> Self {
        let span = info_span!(
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
            batch = Empty,
        );
        Self { span, started: Instant::now(), tokens: AtomicU64::new(0), last_token_ns: AtomicU64::new(0) }
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
    }
}
