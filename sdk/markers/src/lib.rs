//! Markers for LLM inference: requests, steps with their phases and tokens, modules of a model.
//!
//! For libraries. Off, which is the default, they compile to nothing: types without bytes, functions without code, no
//! dependency. A program switches them on for all libraries in it, by linking
//! [candlescope](https://docs.rs/candlescope), or by the feature `enabled`. Then they are ordinary `tracing` spans with
//! OpenTelemetry's GenAI names, useful under any subscriber, and recorded by candlescope's layer: time to first token,
//! tokens a second, time of each module on host and device.
//!
//! In a library:
//!
//! ```toml
//! [dependencies]
//! candlescope-markers = "0.1"
//! ```
//!
//! ```
//! use candlescope_markers::{self as markers, Module, Outcome, Request, Tokens};
//!
//! /// A layer makes its marker when it loads, and enters it at each forward pass.
//! pub struct Attention {
//!     marker: Module,
//! }
//!
//! impl Attention {
//!     pub fn load(prefix: &str) -> Self {
//!         Self { marker: markers::module(prefix) } // "model.layers.7.self_attn"
//!     }
//!
//!     pub fn forward(&self) {
//!         let _in = self.marker.enter();
//!         // q, k, v, ...
//!     }
//! }
//!
//! /// An engine marks requests and passes through the model.
//! pub fn generate(attention: &Attention, prompt: &[u32], most_tokens: usize) {
//!     let request = Request::new("text_completion", "smollm2-135m").prompt_tokens(prompt.len());
//!     let _in_request = request.enter();
//!     for n in 0..most_tokens {
//!         let context = prompt.len() + n;
//!         let _step = match n {
//!             0 => markers::prefill(Tokens::new(context).context(context)),
//!             _ => markers::decode(Tokens::new(1).context(context)),
//!         };
//!         attention.forward();
//!         let _sampling = markers::sample();
//!         request.token(); // the token exists on the host
//!     }
//!     request.outcome(Outcome::Done);
//! }
//! # generate(&Attention::load("model.layers.0.self_attn"), &[1, 2, 3], 4);
//! ```
//!
//! - One step for many requests, as in engines that batch continuously: [`serves`].
//! - Async: a [`Request`] may be sent anywhere; [`Request::instrument`] for a future that works for it. Guards stay on
//!   their thread.
//! - Prompts and answers are never recorded.
//!
//! # Costs and rules
//! On without a subscriber, a marker is one comparison of `tracing`. Under candlescope a step costs what making a span
//! costs, and entering a module tens of nanoseconds, without an allocation or a lock.
//!
//! Nothing here panics, and no method has another effect than spans. What needs a span (`Request::span`,
//! `Module::span`, `Entered::exit`, `Request::output_tokens`) exists with `enabled` only: a library that calls it
//! asks for the feature in its `Cargo.toml`. Code that only feeds a marker can ask [`ENABLED`].
//!
//! Rust 1.65.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod entered;
mod module;
pub mod names;
mod outcome;
mod phases;
#[doc(hidden)]
pub mod recorder;
mod request;
mod switch;
mod tokens;
mod traceparent;

pub use entered::{Entered, Inside};
pub use module::{layer, module, module_of_layer, Module};
pub use outcome::Outcome;
pub use phases::{decode, encode, prefill, sample, step, vision};
pub use request::{serves, Request};
pub use tokens::Tokens;

/// Whether markers are switched on in this program: the feature `enabled`, which candlescope sets.
pub const ENABLED: bool = cfg!(feature = "enabled");

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
