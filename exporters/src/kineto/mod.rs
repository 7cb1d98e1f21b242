//! The JSON of the PyTorch profiler (Kineto), of a run on disk: HolisticTraceAnalysis, TraceLens and other tools that
//! were made for PyTorch open it.
//!
//! As a profile of PyTorch has only the steps of its schedule, the file has the steps whose kernels were recorded, each
//! as `ProfilerStep#n`. Intervals are `cpu_op`, launches `cuda_runtime` under the runtime's names, which these tools
//! look for; the name of the call that was really made is in `args`. What a run does not have is not in the file: calls
//! that wait for the device (`cudaStreamSynchronize`, `cuda_sync`), shapes of inputs, occupancy.

mod kineto_events;

pub use kineto_events::{Kineto, TraceCounts};

use crate::trace_file::{self, GrowingTrace};
use candlescope_core::Batch;
use candlescope_core::run::RunManifest;
use std::borrow::Borrow;
use std::io::{self, Write};

/// A profile that is written batch by batch, with steps before kernels and kernels before intervals. Holds its steps,
/// nothing else.
pub type KinetoTrace = GrowingTrace<Kineto>;

/// Writes a whole run, whose batches have steps before kernels and kernels before intervals. Holds its steps, nothing
/// else.
///
/// # Errors
/// If `out` cannot be written.
pub fn write<B: Borrow<Batch>>(
    mut out: impl Write,
    run: &RunManifest,
    batches: impl IntoIterator<Item = B>,
) -> io::Result<TraceCounts> {
    trace_file::write::<Kineto, B>(&mut out, run, batches).map(|format| format.written())
}
