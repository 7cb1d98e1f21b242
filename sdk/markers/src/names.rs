//! Names by which candlescope's layer recognises spans, whether they are made here or by hand.

/// `tracing` target of the spans of requests, steps and phases.
pub const TARGET: &str = "candlescope::llm";

/// `tracing` target of the spans of modules.
pub const MODULE_TARGET: &str = "candlescope::module";

/// Field that marks a span as a phase; its value is `prefill`, `decode`, `sample`, `encode` or `vision`.
pub const PHASE_FIELD: &str = "candlescope.phase";

/// Field that names the module that a span stands for, for example `model.layers.7.self_attn`. It counts where it is
/// given when the span is made.
pub const MODULE_FIELD: &str = "candlescope.module";

/// Field that names an interval, in place of its span's name. OpenTelemetry's layer for `tracing` takes it for the same.
pub const NAME_FIELD: &str = "otel.name";

/// Field with the new tokens that a step passes through the model, of all its sequences together.
pub const TOKENS_FIELD: &str = "tokens";

/// Field with the tokens that a sequence has after a step.
pub const CONTEXT_LEN_FIELD: &str = "context_len";

/// Field with the sequences of a step, or of a request.
pub const BATCH_FIELD: &str = "batch";

/// Field with what a request asks for: `chat`, `text_completion`, `embeddings`, ….
pub const OPERATION_FIELD: &str = "gen_ai.operation.name";

/// Field that marks a span as a request, together with the model's name.
pub const REQUEST_MODEL_FIELD: &str = "gen_ai.request.model";

/// Field with the tokens of a request's prompt.
pub const PROMPT_TOKENS_FIELD: &str = "gen_ai.usage.input_tokens";

/// Field with a request's output tokens.
pub const OUTPUT_TOKENS_FIELD: &str = "gen_ai.usage.output_tokens";

/// Field that states when a request's first output token existed on the host: seconds since the request's start, as a
/// float.
pub const FIRST_TOKEN_FIELD: &str = "gen_ai.response.time_to_first_chunk";

/// Field that states when a request's latest output token existed on the host: seconds since the request's start, as a
/// float.
pub const LAST_TOKEN_FIELD: &str = "candlescope.time_to_last_token";

/// Field that joins a request to its caller's trace: a W3C trace id of 32 hex digits.
pub const TRACE_ID_FIELD: &str = "candlescope.trace_id";

/// Field that names the caller's span: a W3C span id of 16 hex digits.
pub const PARENT_SPAN_ID_FIELD: &str = "candlescope.parent_span_id";

/// Field that says whether the caller's trace is recorded: a boolean.
pub const CALLER_SAMPLED_FIELD: &str = "candlescope.caller_sampled";

/// Field that says how a request ended; its value is a word of [`Outcome`](crate::Outcome).
pub const OUTCOME_FIELD: &str = "candlescope.outcome";

/// Version of the OpenTelemetry semantic conventions whose GenAI names are used.
pub const SEMCONV_VERSION: &str = "1.42.0";
