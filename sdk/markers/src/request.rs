//! Requests.

use crate::{switch, Inside, Outcome, Tokens};
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;

/// One inference request. It lasts as long as this value, and may be sent from thread to thread and from task to task:
/// [`enter`](Request::enter) it on every thread that works for the request. No bytes while markers are off.
///
/// ```
/// use candlescope_markers::{self as llm, Outcome, Request, Tokens};
///
/// async fn answer(prompt: Vec<u32>) {
///     let request = Request::new("chat", "smollm2-135m").prompt_tokens(prompt.len());
///     request.outcome(Outcome::Cancelled); // if the future is dropped from here on
///     let asked = request.instrument(async { /* asks a cache, waits for its turn */ });
///     asked.await;
///     // On a thread that computes: a guard does not live across an `.await`.
///     request.in_scope(|| {
///         let _step = llm::prefill(Tokens::new(prompt.len()).context(prompt.len()));
///         // model.forward(...)
///         request.token();
///     });
///     request.outcome(Outcome::Done);
/// }
/// # drop(answer(vec![1]));
/// ```
pub struct Request {
    inner: switch::Request,
    _like: switch::LikeASpan,
}

impl Request {
    /// A request for `operation` (`text_completion`, `chat`, `embeddings`, …) to `model`.
    pub fn new(operation: &str, model: &str) -> Self {
        Self { inner: switch::Request::new(operation, model), _like: PhantomData }
    }

    /// Tokens in the prompt.
    #[must_use]
    pub fn prompt_tokens(self, tokens: usize) -> Self {
        self.inner.prompt_tokens(tokens);
        self
    }

    /// Sequences in the batch.
    #[must_use]
    pub fn batch(self, batch: usize) -> Self {
        self.inner.batch(batch);
        self
    }

    /// Joins the trace of a caller: the trace id of a W3C `traceparent` header, 32 hex digits. Any other text is
    /// ignored.
    #[must_use]
    pub fn trace_id(self, trace_id: &str) -> Self {
        self.inner.trace_id(trace_id);
        self
    }

    /// Joins the trace of a caller, below the caller's span: a W3C `traceparent` header as it was received. Any other
    /// text is ignored, as the standard requires. If the caller's trace is not recorded, exporters of traces leave the
    /// request out by default.
    #[must_use]
    pub fn traceparent(self, header: &str) -> Self {
        self.inner.traceparent(header);
        self
    }

    /// Enters the request on this thread: steps that begin while the guard lives belong to it. Not across an `.await`:
    /// see [`instrument`](Request::instrument).
    #[must_use = "the request is left when the guard is dropped"]
    pub fn enter(&self) -> Inside<'_> {
        Inside::new(self.inner.enter())
    }

    /// Runs `f` for the request, on this thread.
    pub fn in_scope<T>(&self, f: impl FnOnce() -> T) -> T {
        let _in_request = self.enter();
        f()
    }

    /// The future, which enters the request whenever it is polled: for a task that works for it, on whatever threads.
    /// The request goes on until this value and all such futures are dropped.
    pub fn instrument<F: Future>(&self, future: F) -> impl Future<Output = F::Output> {
        self.inner.instrument(future)
    }

    /// Reports that one more output token exists on the host.
    pub fn token(&self) {
        self.record_tokens(1);
    }

    /// Reports that `n` more output tokens exist on the host, one for each sequence of a batch. Can be called from any
    /// thread; it reads the clock, and takes a lock only for the first token.
    pub fn record_tokens(&self, n: usize) {
        self.inner.record_tokens(n);
    }

    /// Says how the request ended, or how it ends if nothing else is said: the last word counts. Say `Cancelled` where
    /// the request begins and `Done` where its last token is out, and a request whose future is dropped in between, as
    /// that of a client who left, is recorded as cancelled.
    ///
    /// A request that is dropped without a word has no outcome, unless its thread panics: then it failed.
    pub fn outcome(&self, outcome: impl Into<Outcome>) {
        self.inner.outcome(outcome.into());
    }

    /// With the feature `enabled`: the request's span.
    #[cfg(feature = "enabled")]
    pub fn span(&self) -> &tracing::Span {
        self.inner.span()
    }

    /// With the feature `enabled`: output tokens so far.
    #[cfg(feature = "enabled")]
    pub fn output_tokens(&self) -> u64 {
        self.inner.output_tokens()
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
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
/// nothing and takes no lock but for a request's first token. At most 1,000 requests of a step are kept. Outside a step
/// only the output tokens are counted. Under a subscriber without candlescope's layer, too.
///
/// ```
/// use candlescope_markers::{self as llm, Request, Tokens};
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
    request.inner.serve(tokens, output_tokens);
}
