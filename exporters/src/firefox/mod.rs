//! Firefox Profiler's processed format, of a run on disk: open it at <https://profiler.firefox.com>, or with `samply load`.
//!
//! A thread for each thread of the program, with its samples: their weight is CPU time. Categories are by crate. Intervals,
//! and times off the CPU, are markers of the thread that entered them or that waited. The format wants all of a profile at
//! once, so it is held in memory: a profile is for minutes.

mod category;
mod firefox_profile;
mod milliseconds;

use candlescope_core::Batch;
use candlescope_core::run::RunManifest;
use firefox_profile::Firefox;
pub use firefox_profile::ProfileCounts;
use milliseconds::Milliseconds;
use serde::Serialize;
use std::borrow::Borrow;
use std::io::{self, Write};

/// Writes a whole run, whose batches have stacks before their samples and these before intervals.
///
/// # Errors
/// If `out` cannot be written.
pub fn write<B: Borrow<Batch>>(
    mut out: impl Write,
    run: &RunManifest,
    batches: impl IntoIterator<Item = B>,
) -> io::Result<ProfileCounts> {
    let mut format = Firefox::new(run);
    batches.into_iter().for_each(|batch| format.batch(batch.borrow()));
    let (profile, written) = format.end();
    profile.serialize(&mut serde_json::Serializer::with_formatter(&mut out, Milliseconds::default()))?;
    out.flush()?;
    Ok(written)
}
