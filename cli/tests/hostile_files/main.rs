//! Files made to harm whoever reads them: each is refused, or read within bounds, with an error that names the limit.
//!
//! Every attack is made here and given to the command as a process of its own, whose memory and time are watched. What the
//! attacks took without limits stands in `docs/measurements/hostile.md`.
#![cfg(target_os = "linux")]
#![allow(missing_docs, reason = "a test")]
#[path = "../common/bounded.rs"]
mod bounded;
#[path = "../common/mod.rs"]
mod common;

mod hostile_places;
mod hostile_profiles;
mod hostile_segments;
mod tables;

/// Seconds within which a small file must be done with, on a busy machine.
const SECONDS: u64 = 20;

/// Megabytes that a small file may take, whatever it claims.
const SMALL_MB: u64 = 300;
