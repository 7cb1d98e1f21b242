//! Compression of files that tools open as `.gz` as they are.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::{self, Write};
use std::path::Path;

/// Calls `write` with `out`, or, if the file's name ends with `.gz`, with what compresses into it.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_as_named<T>(
    file: &Path,
    mut out: impl Write,
    write: impl FnOnce(&mut dyn Write) -> io::Result<T>,
) -> io::Result<T> {
    match file.extension().is_some_and(|extension| extension == "gz") {
        true => compressed(out, write),
        false => write(&mut out),
    }
}

/// Calls `write` with what compresses into `out`.
pub(crate) fn compressed<T>(out: impl Write, write: impl FnOnce(&mut dyn Write) -> io::Result<T>) -> io::Result<T> {
    let mut out = GzEncoder::new(out, Compression::fast());
    let written = write(&mut out)?;
    out.finish()?.flush()?;
    Ok(written)
}
