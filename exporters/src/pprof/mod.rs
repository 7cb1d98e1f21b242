//! pprof's format, of the call stacks of a run on disk: `go tool pprof` and the many viewers that read its files.
//!
//! Time is added up: by stack, and by what stands in the labels `phase`, `path`, `module`, `thread` and `state`. Functions
//! have their file, and lines, where the binary had debug information.

mod pprof_messages;
mod pprof_profile;

use crate::gzip::compressed;
use candlescope_core::Batch;
use candlescope_core::run::RunManifest;
use pprof_profile::Pprof;
pub use pprof_profile::ProfileCounts;
use prost::Message;
use std::borrow::Borrow;
use std::io::{self, Write};

/// Writes a whole run, whose batches have stacks before their samples, compressed with gzip, as pprof does.
///
/// # Errors
/// If `out` cannot be written.
pub fn write<B: Borrow<Batch>>(
    out: impl Write,
    run: &RunManifest,
    batches: impl IntoIterator<Item = B>,
) -> io::Result<ProfileCounts> {
    let mut format = Pprof::new(run);
    batches.into_iter().for_each(|batch| format.batch(batch.borrow()));
    let (profile, written) = format.end();
    compressed(out, |out| out.write_all(&profile.encode_to_vec()))?;
    Ok(written)
}
