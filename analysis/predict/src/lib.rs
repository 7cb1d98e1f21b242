//! What a step would take: replayed with changes from what was recorded of it ([`simulation`]), or predicted from a model's
//! dimensions and a device's peaks, and held against runs ([`roofline`]). A part of candlescope, which may change
//! with every release.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod roofline;
pub mod simulation;
