//! Watches candle load a model, so that its spans can be told apart: feature `candle`.
//!
//! Nothing of the model changes. What is loaded is passed through as it is; only its name, shape, element type and size
//! are told to [`modules::loaded`](candlescope_core::modules::loaded).

mod candle_build;
mod gguf;
mod threads;
mod var_builder;

pub use candle_build::candle_features;
pub use gguf::{ObservedGguf, observe_gguf};
pub use threads::check_threads;
pub use var_builder::observe;
