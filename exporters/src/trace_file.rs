//! One file for one trace, shared by the timeline formats. A format turns batches into bytes; the rest is here.

use candlescope_core::files::create_alone;
use candlescope_core::run::RunManifest;
use candlescope_core::{Batch, DropReason, ExportError, Exporter, Ledger};
use std::borrow::Borrow;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A file format that batches are appended to. Pure: bytes go to a buffer.
pub trait TraceFormat: Send + Sized + 'static {
    /// The end of the file.
    const FOOTER: &'static [u8];

    /// A conversion for one run.
    fn new(run: &RunManifest) -> Self;

    /// Appends the beginning of the file.
    fn header(&mut self, out: &mut Vec<u8>);

    /// Appends one batch.
    fn batch(&mut self, batch: &Batch, out: &mut Vec<u8>);

    /// Appends what is left and the end of the file.
    fn end(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(Self::FOOTER);
    }
}

/// A format that is written while the session runs. Its footer is written after every batch and overwritten by the next,
/// so that the file is always complete.
pub trait LiveFormat: TraceFormat {
    /// Name of the exporter.
    const NAME: &'static str;

    /// The bytes of the last batch did not reach the file: names that it defined have to be defined again.
    fn forget(&mut self);
}

/// A trace that is written batch by batch.
#[derive(Debug)]
pub struct GrowingTrace<F> {
    format: F,
    /// What was not written yet: the header, before the first batch.
    buffer: Vec<u8>,
}

impl<F: TraceFormat> GrowingTrace<F> {
    /// One of which nothing is written yet.
    pub fn new(run: &RunManifest) -> Self {
        let (mut format, mut buffer) = (F::new(run), Vec::new());
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

    /// Writes the end. The format, which is handed back, may know what was written.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn end(mut self, out: &mut impl Write) -> io::Result<F> {
        self.format.end(&mut self.buffer);
        out.write_all(&self.buffer)?;
        out.flush()?;
        Ok(self.format)
    }
}

/// Writes a whole trace, and hands its format back.
pub(crate) fn write<F: TraceFormat, B: Borrow<Batch>>(
    out: &mut impl Write,
    run: &RunManifest,
    batches: impl IntoIterator<Item = B>,
) -> io::Result<F> {
    let mut trace = GrowingTrace::<F>::new(run);
    for batch in batches {
        trace.batch(batch.borrow(), out)?;
    }
    trace.end(out)
}

/// An [`Exporter`] that appends to one file.
///
/// The file grows without bound while the session runs: a timeline is for minutes, a Parquet run for days.
#[derive(Debug)]
pub struct TraceFileExporter<F> {
    path: PathBuf,
    open: Option<OpenTrace<F>>,
    buffer: Vec<u8>,
    /// Whether this exporter made the file.
    made: bool,
}

#[derive(Debug)]
struct OpenTrace<F> {
    file: File,
    format: F,
    /// End of what was written, without the footer.
    end: u64,
}

impl<F: LiveFormat> TraceFileExporter<F> {
    /// An exporter that will write to `path`, replacing an existing file.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), open: None, buffer: Vec::new(), made: false }
    }

    /// The file that is written.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn error(&self, source: io::Error) -> String {
        let remedy = match source.kind() {
            io::ErrorKind::IsADirectory => "name a file, not a directory",
            io::ErrorKind::ResourceBusy => "wait for it, or name another file",
            io::ErrorKind::InvalidInput => "name an ordinary file",
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free some space or choose another disk",
            _ => "choose a file in a directory you may write to",
        };
        format!("cannot write {}: {source}: {remedy}", self.path.display())
    }

    /// Appends the buffer. After a failure the file ends where it ended before.
    fn append(&mut self) -> io::Result<()> {
        let Some(open) = &mut self.open else { return Err(io::Error::other("used before it was started")) };
        let written = self.buffer.len() as u64;
        self.buffer.extend_from_slice(F::FOOTER);
        let outcome = open.file.seek(SeekFrom::Start(open.end)).and_then(|_| open.file.write_all(&self.buffer));
        self.buffer.clear();
        match outcome {
            Ok(()) => {
                open.end += written;
                Ok(())
            }
            Err(error) => {
                open.format.forget();
                // Errors are ignored: the first error is the one to report.
                let _ = open.file.set_len(open.end);
                let _ = open.file.seek(SeekFrom::Start(open.end)).and_then(|_| open.file.write_all(F::FOOTER));
                Err(error)
            }
        }
    }
}

impl<F: LiveFormat> Exporter for TraceFileExporter<F> {
    fn name(&self) -> &'static str {
        F::NAME
    }

    fn start(&mut self, run: &RunManifest) -> Result<(), ExportError> {
        // Two sessions with the same file would write into each other's trace.
        let (file, made) = create_alone(&self.path).map_err(|e| ExportError::fatal(self.error(e)))?;
        self.made = made;
        let mut format = F::new(run);
        format.header(&mut self.buffer);
        self.open = Some(OpenTrace { file, format, end: 0 });
        self.append().map_err(|e| {
            self.abandon();
            ExportError::fatal(self.error(e))
        })
    }

    fn abandon(&mut self) {
        self.open = None;
        if std::mem::take(&mut self.made) {
            // Errors are ignored: the error that led here is the one to report.
            let _ = std::fs::remove_file(&self.path);
        }
    }

    fn export(&mut self, batch: &Batch, ledger: &Ledger) -> Result<(), ExportError> {
        if let Some(open) = &mut self.open {
            open.format.batch(batch, &mut self.buffer);
        }
        match self.append() {
            Ok(()) => {
                ledger.exported_batch(batch);
                Ok(())
            }
            Err(error) => {
                ledger.dropped_batch(batch, DropReason::Io);
                Err(ExportError::new(format!("{}; {} records dropped", self.error(error), batch.len())))
            }
        }
    }

    fn close(&mut self, _: &Ledger) -> Result<(), ExportError> {
        match &self.open {
            Some(open) => open.file.sync_all().map_err(|e| ExportError::new(self.error(e))),
            None => Ok(()),
        }
    }
}
