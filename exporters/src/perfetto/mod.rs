//! Native Perfetto traces: open them at <https://ui.perfetto.dev> or query them with `trace_processor`.
//!
//! One process track with a track per thread, a track for the device beside each thread whose intervals have device
//! time, one counter track per metric and a track for requests; where kernels were recorded, a track for each stream of
//! each device, and their launch calls below the thread's track, with an arrow from each call to its kernels; where stacks
//! were sampled, their samples, and below the thread's track one that says when it ran, waited or had no CPU. Slices have
//! path, FLOPs, bytes, tokens, dtype and shape as arguments; their name is the interval's name without ordinal, so that the
//! viewer's tables group them.

mod arrows;
mod interned_stacks;
mod interner;
mod perfetto_packets;
mod proto;
#[cfg(test)]
mod tests;
mod thread_states;

pub use perfetto_packets::Perfetto;

use crate::trace_file::{self, GrowingTrace, TraceFileExporter};
use candlescope_core::Batch;
use candlescope_core::run::RunManifest;
use std::borrow::Borrow;
use std::io::{self, Write};

/// Writes a Perfetto trace to a file while the session runs.
pub type PerfettoExporter = TraceFileExporter<Perfetto>;

/// A Perfetto trace that is written batch by batch. Those of several ranks may take turns in one file.
pub type PerfettoTrace = GrowingTrace<Perfetto>;

/// Writes a whole trace: a run's batches, in the order they were made.
///
/// # Errors
/// If `out` cannot be written.
pub fn write<B: Borrow<Batch>>(
    mut out: impl Write,
    run: &RunManifest,
    batches: impl IntoIterator<Item = B>,
) -> io::Result<()> {
    trace_file::write::<Perfetto, B>(&mut out, run, batches).map(drop)
}
