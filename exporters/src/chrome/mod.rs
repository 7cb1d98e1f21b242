//! The Chrome JSON trace event format: read by chrome://tracing, Perfetto and speedscope, and by any script.
//!
//! Intervals, kernels and launch calls are complete (`X`) events, counters `C`, requests async `b`/`e` pairs, arrows from
//! launch calls to kernels `s`/`f` pairs. Times are microseconds with three
//! decimals since the start of the run, because a double cannot hold Unix time to the nanosecond; the origin is in
//! `otherData`. A file is several times the size of a Perfetto trace: prefer that for long runs.

mod chrome_events;

pub use chrome_events::Chrome;

use crate::trace_file::{self, TraceFileExporter};
use candlescope_core::Batch;
use candlescope_core::run::RunManifest;
use std::borrow::Borrow;
use std::io::{self, Write};

/// Writes a Chrome trace to a file while the session runs. The file is valid JSON after every batch.
pub type ChromeExporter = TraceFileExporter<Chrome>;

/// Writes a whole trace: a run's batches, in the order they were made.
///
/// # Errors
/// If `out` cannot be written.
pub fn write<B: Borrow<Batch>>(
    mut out: impl Write,
    run: &RunManifest,
    batches: impl IntoIterator<Item = B>,
) -> io::Result<()> {
    trace_file::write::<Chrome, B>(&mut out, run, batches).map(drop)
}
