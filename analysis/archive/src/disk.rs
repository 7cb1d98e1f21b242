//! Every change that an archiver makes to a disk, one function each.
//!
//! They can be told to fail from the n-th change on, as if the machine had stopped there: tests take every n.

use candlescope_schema::files::write_whole;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// The disk, as far as an archiver changes it.
#[derive(Debug, Default)]
pub struct Disk {
    /// Changes that it makes, if it is to fail.
    most: Option<u64>,
    made: AtomicU64,
}

impl Disk {
    /// One that fails from the change after `n` changes on, whatever is asked of it.
    pub fn stops_after(n: u64) -> Self {
        Self { most: Some(n), made: AtomicU64::new(0) }
    }

    /// Changes that were made.
    pub fn changes(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    fn change<T>(&self, what: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if self.most.is_some_and(|most| self.changes() >= most) {
            return Err(io::Error::other("stopped for a test"));
        }
        self.made.fetch_add(1, Ordering::Relaxed);
        what()
    }

    pub(crate) fn make_directory(&self, dir: &Path) -> io::Result<()> {
        if dir.is_dir() {
            return Ok(());
        }
        // Each folder is made durable in the one above: rows are of no use in a folder that is gone after a power cut.
        self.change(|| {
            let there = dir.ancestors().find(|above| above.is_dir()).map(Path::to_path_buf);
            fs::create_dir_all(dir)?;
            let new = dir.ancestors().take_while(|above| Some(*above) != there.as_deref());
            new.filter_map(Path::parent).filter(|above| !above.as_os_str().is_empty()).try_for_each(sync_directory)
        })
    }

    /// A file that did not exist, or that an attempt left which had not come to its end.
    pub(crate) fn create(&self, path: &Path) -> io::Result<File> {
        self.change(|| File::create(path))
    }

    /// All of a file or nothing, durable.
    pub(crate) fn write_whole(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.change(|| write_whole(path, |out| out.write_all(bytes)))
    }

    /// Durable, but for the directory.
    pub(crate) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(|| fs::rename(from, to))
    }

    pub(crate) fn remove(&self, path: &Path) -> io::Result<()> {
        self.change(|| gone(fs::remove_file(path)))
    }

    pub(crate) fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.change(|| gone(fs::remove_dir(path)))
    }
}

/// What is not there need not be removed.
fn gone(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Makes what was renamed and removed in a directory durable, where that can be asked for.
pub(crate) fn sync_directory(dir: &Path) -> io::Result<()> {
    match File::open(dir) {
        Ok(open) if cfg!(unix) => open.sync_all(),
        _ => Ok(()),
    }
}
