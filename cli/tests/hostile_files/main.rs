//! Files made to harm their reader: each is refused, or read within bounds, with an error that names the limit.
//!
//! Every attack is made here and given to the command as a process of its own, whose memory and time are watched. The
//! time and memory that the attacks took without limits are in `docs/measurements/hostile.md`.
#![cfg(target_os = "linux")]
#![allow(missing_docs, reason = "a test")]
#[path = "../common/bounded.rs"]
mod bounded;
#[path = "../common/mod.rs"]
mod common;

mod hostile_places;
mod hostile_profiles;
#[cfg(feature = "query")]
mod hostile_queries;
mod hostile_segments;
mod tables;

/// Longest time in seconds for a small file, on a busy machine.
const SECONDS: u64 = 20;

/// Most memory for a small file in megabytes, whatever it claims.
const SMALL_MB: u64 = 300;
