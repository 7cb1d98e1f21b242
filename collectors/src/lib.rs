//! Collectors for candlescope: sources of samples that are taken on a background thread.
//!
//! | module | feature | tells |
//! |---|---|---|
#![cfg_attr(
    feature = "host",
    doc = "| [`host`] | `host` | memory, CPU use, context switches of this process; the machine |"
)]
//!
//! What a machine cannot tell is left out, never reported as zero.

#[cfg(feature = "host")]
pub mod host;
