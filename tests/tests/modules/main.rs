//! candle's own models, unmodified: which span is which module.
#![allow(missing_docs, reason = "a test")]

/// Whether candle-nn's layers have spans: `tests/without_spans` runs the models with those.
const TRACED: bool = false;

mod architectures;
mod bad_input;
mod callsites;
#[path = "../common/mod.rs"]
mod common;
mod costs;
mod names;
mod passed_through;
mod recognised;
