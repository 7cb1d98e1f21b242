//! candle's own models, unmodified: which span is which module.
#![allow(missing_docs, reason = "a test")]

mod architectures;
mod bad_input;
mod callsites;
#[path = "../common/mod.rs"]
mod common;
mod costs;
mod names;
mod passed_through;
