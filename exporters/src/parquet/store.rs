//! The run's directory: that it can be used, its manifest, and the files segments go to.

use candlescope_core::RecordKind;
use candlescope_core::run::{MANIFEST_FILE, RunManifest};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A run directory could not be used or written. Every message names the path and what to do.
#[derive(Debug, thiserror::Error)]
pub enum RunDirError {
    /// A previous run, or something else, is in it.
    #[error(
        "run directory {} already holds files (first: {first}): name a directory that is empty or does not exist, or remove it",
        path.display()
    )]
    NotEmpty {
        /// The directory.
        path: PathBuf,
        /// One of the files in it.
        first: String,
    },
    /// A file stands where the directory should be.
    #[error("run directory {} is a file: name a directory that is empty or does not exist", path.display())]
    IsAFile {
        /// The file.
        path: PathBuf,
    },
    /// The system said no.
    #[error("cannot {what} {}: {source}: {}", path.display(), remedy(source))]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which path.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

/// What helps against an error of the file system.
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

/// A run's directory that was empty when it was opened.
#[derive(Debug)]
pub(super) struct RunDir {
    path: PathBuf,
}

impl RunDir {
    /// Makes the directory and its tables' folders.
    pub(super) fn create(path: &Path) -> Result<Self, RunDirError> {
        if path.is_file() {
            return Err(RunDirError::IsAFile { path: path.to_path_buf() });
        }
        fs::create_dir_all(path).map_err(io_error("create run directory", path))?;
        let mut entries = fs::read_dir(path).map_err(io_error("read run directory", path))?;
        if let Some(entry) = entries.next() {
            let first = entry.map_err(io_error("read run directory", path))?.file_name().to_string_lossy().into_owned();
            return Err(RunDirError::NotEmpty { path: path.to_path_buf(), first });
        }
        let run = Self { path: path.to_path_buf() };
        for kind in RecordKind::ALL {
            let table = run.table(kind);
            fs::create_dir(&table).map_err(io_error("create folder", &table))?;
        }
        Ok(run)
    }

    /// Folder of a table.
    pub(super) fn table(&self, kind: RecordKind) -> PathBuf {
        self.path.join(kind.table())
    }

    /// Replaces the manifest. A reader sees the old one or the new one, never a part.
    pub(super) fn write_manifest(&self, manifest: &RunManifest) -> Result<(), RunDirError> {
        let path = self.path.join(MANIFEST_FILE);
        let temporary = self.path.join(format!("{MANIFEST_FILE}.tmp"));
        let write = || -> io::Result<()> {
            let mut text = serde_json::to_vec_pretty(manifest)?;
            text.push(b'\n');
            let mut file = File::create(&temporary)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&temporary, &path)?;
            sync_dir(&self.path)
        };
        write().map_err(|source| {
            // A torn temporary file is of no use, and the disk may be full.
            let _ = fs::remove_file(&temporary);
            RunDirError::Io { what: "write", path, source }
        })
    }
}

/// Makes a rename in `dir` durable.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    // Only Unix lets a directory be opened and synced; elsewhere the rename itself has to do.
    if cfg!(unix) { File::open(dir)?.sync_all() } else { Ok(()) }
}

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

/// Makes the files segments are written to: a test puts a full disk here.
pub(super) trait Files: Send {
    /// Creates or truncates a file.
    fn create(&self, path: &Path) -> io::Result<Box<dyn SegmentFile>>;
}

/// The file system.
#[derive(Debug)]
pub(super) struct Disk;

impl Files for Disk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn SegmentFile>> {
        Ok(Box::new(File::create(path)?))
    }
}
