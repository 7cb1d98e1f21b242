//! The same model in several forms: without and with KV cache, in 16 bits, quantised, and as ONNX, each with its speed,
//! its size and its quality.
//!
//! A [`VariantHost`] holds the model's weights in f32, of which all [`Variant`]s are made. The engine measures their
//! [`cases`]; [`close`] measures what is measured once: sizes, energy, and how far predictions are from those of the base
//! ([`quality`], [`divergence`]). [`write_variants`] makes the study's files.

mod closing;
pub mod divergence;
mod host;
mod layers;
#[cfg(feature = "candle-onnx")]
mod onnx_candle;
#[cfg(feature = "onnx")]
mod onnx_runtime;
pub mod quality;
mod recorded_requests;
mod report;
mod results;
mod row;
mod runner;
mod variant;
mod variant_case;
mod variant_options;

pub use crate::study::{Speedup, speedup};
pub use closing::{VariantFacts, VariantsSummary, close};
pub use divergence::DIVERGED;
pub use host::{DEFAULT_TEXT, VariantHost};
#[cfg(feature = "onnx")]
pub use onnx_runtime::onnx_library;
pub use quality::{Estimate, Quality};
pub use report::variant_lines;
pub use results::{CLOSING_FILE, object, read_closing, table, write_variants};
pub use row::{VariantRow, rows};
pub use runner::{Runner, TextActivations, TimedContinuation};
pub use variant::{Group, UnknownVariant, Variant};
pub use variant_case::cases;
pub use variant_options::{SUITE, VariantOptions};
