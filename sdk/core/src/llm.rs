//! Spans for LLM inference: requests and their phases, with OpenTelemetry GenAI names.
//!
//! They are ordinary `tracing` spans, useful with any subscriber; candlescope's layer recognises them by their fields.
//! Names and attributes follow the OpenTelemetry semantic conventions for generative AI, version [`SEMCONV_VERSION`]
//! (in development); our own fields have names under `candlescope.`.
//!
//! These are the markers of `candlescope-markers`, switched on. A library that others link depends on that crate, whose
//! markers compile to nothing in programs without candlescope.
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
//!
//! If sequences of a batch have ended, say how many a step still works for:
//!
//! ```
//! # use candlescope_core as candlescope;
//! use candlescope::llm::{self, Tokens};
//! use candlescope::{Annotation, annotate};
//! let _step = llm::decode(Tokens::new(4).context(128).batch(4)); // four sequences are passed, one of them goes on
//! annotate(Annotation::new().new_tokens(1).sequences(1).context_sum(128));
//! // model.forward(...)
//! ```

#[doc(hidden)]
pub use candlescope_markers::names::{
    CALLER_SAMPLED_FIELD, LAST_TOKEN_FIELD, MODULE_FIELD, MODULE_TARGET, OUTCOME_FIELD, PARENT_SPAN_ID_FIELD,
    PHASE_FIELD, REQUEST_MODEL_FIELD, SEMCONV_VERSION, TARGET, TRACE_ID_FIELD,
};
pub use candlescope_markers::{
    Entered, Inside, Module, Request, Tokens, decode, encode, layer, module, module_of_layer, prefill, sample, serves,
    step, vision,
};
