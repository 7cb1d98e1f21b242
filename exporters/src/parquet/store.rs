//! The run's directory: checking that it can be used, its manifest, and the files of segments.

use super::dirs::{create_dirs_with, remove_dirs};
use super::file_system::Files;
use candlescope_core::RecordKind;
use candlescope_core::run::{MANIFEST_FILE, RunManifest};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A run directory could not be used or written. Every message names the path and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum RunDirError {
    /// A run, or something else, is in it.
    #[error(
        "run directory {} already holds files (first: {first}): name a directory that is empty or does not exist, \
         or remove it if no run is being written there",
        path.display()
    )]
    NotEmpty {
        /// The directory that was named.
        path: PathBuf,
        /// One of the files in it.
        first: String,
    },
    /// Another session took it at the same moment.
    #[error(
        "run directory {} has just been taken by another run: give each run a directory of its own",
        path.display()
    )]
    Taken {
        /// The directory that was named.
        path: PathBuf,
    },
    /// There is a file where the directory should be.
    #[error("run directory {} is a file: name a directory that is empty or does not exist", path.display())]
    IsAFile {
        /// The path that was named.
        path: PathBuf,
    },
    /// The operating system returned an error.
    #[error("cannot {what} {}: {source}: {}", path.display(), remedy(source))]
    Io {
        /// What was tried, as a verb: `create`, `write to`.
        what: &'static str,
        /// The file or directory with which it was tried.
        path: PathBuf,
        /// Why the operating system refused.
        source: io::Error,
    },
}

/// The remedy for an error of the file system.
pub(super) fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => "choose a directory you may write to",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free some space, set a disk budget, or choose a directory on another disk"
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => "a file is in the way: choose another directory",
        _ => "choose another directory",
    }
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RunDirError {
    move |source| RunDirError::Io { what, path: path.to_path_buf(), source }
}

/// The folder whose making claims a run's directory: of all that try at once, the system lets exactly one make it.
const CLAIM: RecordKind = RecordKind::Span;

/// How often the directory is made again if another session's failed start removes it meanwhile.
const ATTEMPTS: usize = 16;

/// A run's directory that was empty when it was opened, and that belongs to this session alone.
#[derive(Debug, Clone)]
pub(super) struct RunDir {
    path: PathBuf,
    /// The directory and those above it, as far as they were made here, innermost first.
    made: Vec<PathBuf>,
    files: Arc<dyn Files>,
}

impl RunDir {
    /// Makes the directory, claims it, and makes its tables' folders. A failure leaves nothing behind that was made
    /// here.
    pub(super) fn create(path: &Path, files: Arc<dyn Files>) -> Result<Self, RunDirError> {
        if path.is_file() {
            return Err(RunDirError::IsAFile { path: path.to_path_buf() });
        }
        let mut run = Self { path: path.to_path_buf(), made: Vec::new(), files };
        let claimed = run.claim().inspect_err(|_| remove_dirs(&run.made));
        claimed?;
        // From here on the contents of the directory are ours.
        for kind in RecordKind::ALL.into_iter().filter(|kind| *kind != CLAIM) {
            let table = run.table(kind);
            run.files.create_dir(&table).map_err(io_error("create folder", &table)).inspect_err(|_| run.remove())?;
        }
        Ok(run)
    }

    fn claim(&mut self) -> Result<(), RunDirError> {
        let path = self.path.clone();
        for attempt in 1.. {
            match create_dirs_with(self.files.as_ref(), &path, &mut self.made) {
                // A directory above, made by another session whose start failed, went before ours could be made in it.
                Err(error) if error.kind() == io::ErrorKind::NotFound && attempt < ATTEMPTS => continue,
                made => made.map_err(io_error("create run directory", &path))?,
            }
            let mut entries = match fs::read_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && attempt < ATTEMPTS => continue,
                entries => entries.map_err(io_error("read run directory", &path))?,
            };
            if let Some(entry) = entries.next() {
                let entry = entry.map_err(io_error("read run directory", &path))?;
                let first = entry.file_name().to_string_lossy().into_owned();
                return Err(RunDirError::NotEmpty { path, first });
            }
            let table = self.table(CLAIM);
            match self.files.create_dir(&table) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && attempt < ATTEMPTS => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(RunDirError::Taken { path }),
                made => return made.map_err(io_error("create folder", &table)),
            }
        }
        Ok(())
    }

    /// Removes what the start of a session made: the manifest, the folders as far as they are empty, and the
    /// directories above that were made here. Errors are ignored: the error that led here is the one to report.
    pub(super) fn remove(&self) {
        let _ = fs::remove_file(self.path.join(MANIFEST_FILE));
        // The claim is removed last: until then no other session takes the directory.
        for kind in RecordKind::ALL.into_iter().filter(|kind| *kind != CLAIM) {
            let _ = fs::remove_dir(self.table(kind));
        }
        let _ = fs::remove_dir(self.table(CLAIM));
        remove_dirs(&self.made);
    }

    /// Folder of a table.
    pub(super) fn table(&self, kind: RecordKind) -> PathBuf {
        self.path.join(kind.table())
    }

    /// Replaces the manifest. A reader sees the old one or the new one, never an incomplete one.
    pub(super) fn write_manifest(&self, manifest: &RunManifest) -> Result<(), RunDirError> {
        let path = self.path.join(MANIFEST_FILE);
        let temporary = self.path.join(format!("{MANIFEST_FILE}.tmp"));
        let write = || -> io::Result<()> {
            let mut text = serde_json::to_vec_pretty(manifest)?;
            text.push(b'\n');
            let mut file = self.files.create(&temporary)?;
            file.write_all(&text)?;
            file.sync()?;
            self.files.rename(&temporary, &path)
        };
        let written = write().map_err(|source| {
            // An incomplete temporary file is useless, and the disk may be full.
            let _ = fs::remove_file(&temporary);
            RunDirError::Io { what: "write", path, source }
        });
        written?;
        self.files.sync_dir(&self.path).map_err(io_error("sync run directory", &self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::super::file_system::{Disk, SegmentFile};
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    /// Another session beside this one: it made the directory above, and removes it again because its start failed,
    /// the given number of times just before this session makes its own in it.
    #[derive(Debug)]
    struct Failing {
        times: AtomicUsize,
        above: PathBuf,
    }

    impl Files for Failing {
        fn create(&self, path: &Path) -> io::Result<Box<dyn SegmentFile>> {
            Disk.create(path)
        }
        fn create_dir(&self, path: &Path) -> io::Result<()> {
            let removes = path.parent() == Some(&self.above)
                && self.times.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
            if removes {
                fs::remove_dir(&self.above)?;
            }
            Disk.create_dir(path)
        }
    }

    fn beside(times: usize) -> (tempfile::TempDir, Result<RunDir, RunDirError>) {
        let dir = tempfile::tempdir().expect("temporary directory");
        let above = dir.path().join("runs");
        fs::create_dir(&above).expect("made by the other session");
        let run = above.join("run");
        let files = Failing { times: AtomicUsize::new(times), above };
        (dir, RunDir::create(&run, Arc::new(files)))
    }

    #[test]
    fn a_start_that_fails_beside_ours_takes_nothing_from_under_us() {
        let (_dir, run) = beside(3);
        let run = run.expect("made again");
        assert!(run.table(CLAIM).is_dir());
        run.remove();
        assert!(!run.path.parent().expect("above").exists(), "what was made again is known to be ours");
    }

    #[test]
    fn trying_again_ends() {
        let (_dir, run) = beside(1_000);
        assert!(matches!(run, Err(RunDirError::Io { what: "create run directory", .. })), "{run:?}");
    }
}
