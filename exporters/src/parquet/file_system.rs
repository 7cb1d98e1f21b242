//! The file system operations for writing a run.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// A file that a segment is written to.
pub(super) trait SegmentFile: Write + Send {
    /// Returns once everything written has reached the disk.
    fn sync(&self) -> io::Result<()>;
}

impl SegmentFile for File {
    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }
}

/// The file system operations for writing a run; tests use a full or failing disk instead. Removing files is not
/// included, because nothing depends on its failure.
pub(super) trait Files: std::fmt::Debug + Send + Sync {
    /// Creates or truncates a file.
    fn create(&self, path: &Path) -> io::Result<Box<dyn SegmentFile>>;

    /// Makes a directory.
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    /// Gives a file its final name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    /// Makes the entries of a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        // Only Unix lets a directory be opened and synced; elsewhere the rename itself has to be enough.
        if cfg!(unix) { File::open(dir)?.sync_all() } else { Ok(()) }
    }
}

/// The file system.
#[derive(Debug)]
pub(super) struct Disk;

impl Files for Disk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn SegmentFile>> {
        Ok(Box::new(File::create(path)?))
    }
}
