//! The JSON of the PyTorch profiler (Kineto), of a run on disk: HolisticTraceAnalysis, TraceLens and other tools that
//! were made for PyTorch open it.
//!
//! As a profile of PyTorch has only the steps of its schedule, the file has the steps whose kernels were recorded, each
//! as `ProfilerStep#n`. Intervals are `cpu_op`, launches `cuda_runtime` under the runtime's names, which these tools
//! look for; the name of the call that was really made is in `args`. What a run does not have is not in the file: calls
//! that wait for the device (`cudaStreamSynchronize`, `cuda_sync`), shapes of inputs, occupancy.

mod kineto_events;

use candlescope_core::Batch;
use candlescope_core::run::RunManifest;
use kineto_events::Kineto;
pub use kineto_events::Written;
use std::borrow::Borrow;
use std::io::{self, Write};

/// Writes a whole run, whose batches have steps before kernels and kernels before intervals. Holds its steps, nothing
/// else.
///
/// # Errors
/// If `out` cannot be written.
pub fn write<B: Borrow<Batch>>(
    mut out: impl Write,
    run: &RunManifest,
    batches: impl IntoIterator<Item = B>,
) -> io::Result<Written> {
    let mut profile = KinetoProfile::new(run);
    for batch in batches {
        profile.batch(batch.borrow(), &mut out)?;
    }
    profile.end(&mut out)
}

/// A profile that is written batch by batch, with steps before kernels and kernels before intervals. Holds its steps, nothing
/// else.
#[derive(Debug)]
pub struct KinetoProfile {
    format: Kineto,
    /// What was not written yet: the header, before the first batch.
    buffer: Vec<u8>,
}

impl KinetoProfile {
    /// One of which nothing is written yet.
    pub fn new(run: &RunManifest) -> Self {
        let (mut format, mut buffer) = (Kineto::new(run), Vec::new());
        format.header(&mut buffer);
        Self { format, buffer }
    }

    /// Writes a batch.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn batch(&mut self, batch: &Batch, out: &mut impl Write) -> io::Result<()> {
        self.format.batch(batch, &mut self.buffer);
        out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// Writes the end, and says what was written.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn end(mut self, out: &mut impl Write) -> io::Result<Written> {
        self.format.end(&mut self.buffer);
        out.write_all(&self.buffer)?;
        out.flush()?;
        Ok(self.format.written())
    }
}
