//! What is asked of the file system for a run to be written.

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

/// What is asked of the file system for a run to be written; a test puts a full or failing disk here. What is removed
/// is not: a failure to remove has nothing to follow it.
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

    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        // Only Unix lets a directory be opened and synced; elsewhere the rename itself has to do.
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
