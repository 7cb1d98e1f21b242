//! Names of the fields by which spans are recognised as phases and requests, and the target of the helpers' spans.

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

/// Field that says how a request ended; its value is an [`Outcome`](crate::Outcome) word.
pub const OUTCOME_FIELD: &str = "candlescope.outcome";
