//! A change that is decided: written before any of it is done, and done again from the start by whoever finds it.

use super::ArchiveError;
use super::disk::{Disk, sync_directory};
use super::index::{self, Identity};
use super::layout::JOURNAL;
use candlescope_reader::ReadLimits;
use candlescope_schema::RecordKind;
use candlescope_schema::beside_run;
use candlescope_schema::files::read_limited;
use candlescope_schema::run::{IN_PROGRESS_SUFFIX, MANIFEST_FILE, RunManifest};
use candlescope_sql::ARCHIVE_ASIDE;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The largest journal that is read, and written.
const MOST: u64 = 256 << 20;

/// What is to be done. Each part may have been done already.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Journal {
    /// Files of the archive that others take the place of, below the root.
    pub(crate) removes: Vec<PathBuf>,
    /// Files and what they are called from then on, below the root.
    pub(crate) renames: Vec<(PathBuf, PathBuf)>,
    /// Runs that are in the archive then.
    pub(crate) sources: Vec<Source>,
}

/// A run's directory that is removed once its rows are in the archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Source {
    pub(crate) dir: PathBuf,
    /// Its files below it with their sizes. A directory that has others by then is left as it is.
    pub(crate) files: Vec<(PathBuf, u64)>,
    /// Its folders below it.
    pub(crate) folders: Vec<PathBuf>,
}

impl Source {
    /// The files of a directory now.
    pub(crate) fn of(dir: &Path) -> std::io::Result<Self> {
        // Through a link: the directory itself is what is removed.
        let mut source = Self { dir: dir.canonicalize()?, files: Vec::new(), folders: Vec::new() };
        let mut folders = vec![source.dir.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder)? {
                let (kind, path) = entry.map(|entry| (entry.file_type(), entry.path()))?;
                let below = path.strip_prefix(&source.dir).unwrap_or(&path).to_path_buf();
                if kind?.is_dir() {
                    source.folders.push(below);
                    folders.push(path);
                } else {
                    source.files.push((below, std::fs::symlink_metadata(&path)?.len()));
                }
            }
        }
        source.files.sort();
        Ok(source)
    }

    /// A file or folder that is no part of a run: it would be lost with the directory.
    pub(crate) fn somebodys(&self) -> Option<&Path> {
        let is_table = |path: &&PathBuf| {
            let mut folders = RecordKind::ALL.iter().map(|kind| kind.table()).chain([beside_run::KINETO_FOLDER]);
            folders.any(|folder| path.as_os_str() == folder)
        };
        let file = self.files.iter().map(|(path, _)| path).find(|path| !is_of_a_run(path));
        file.or_else(|| self.folders.iter().find(|path| !is_table(path))).map(PathBuf::as_path)
    }

    /// How many of its files commands made of the run.
    pub(crate) fn made(&self) -> u64 {
        self.files.iter().filter(|(path, _)| beside_run::is_made(path)).count() as u64
    }

    /// Whether it is what lies there, under its own name or under the one that it has while it is removed.
    pub(crate) fn is_at(&self, place: &Path) -> bool {
        self.dir == place || self.aside().is_some_and(|aside| aside == place)
    }

    /// What it is called while it is removed: a name that its contents have a part in, so that no other's directory has it.
    fn aside(&self) -> Option<PathBuf> {
        let mut name = std::ffi::OsString::from(".");
        name.push(self.dir.file_name()?);
        let mut hasher = DefaultHasher::new();
        (&self.dir, &self.files).hash(&mut hasher);
        name.push(format!(".{:016x}{ARCHIVE_ASIDE}", hasher.finish()));
        Some(self.dir.parent()?.join(name))
    }

    /// Whether a directory has nothing but what was archived: all of it, or what an attempt that was stopped left.
    fn has_nothing_but(dir: &Path, files: &[(PathBuf, u64)]) -> bool {
        Self::of(dir).is_ok_and(|now| now.files.iter().all(|file| files.contains(file)))
    }

    /// Removes it, if the archive has it by the index; whether it is gone.
    ///
    /// It gets another name first: whatever comes in between, nobody finds a run that lacks rows.
    fn remove(&self, known: &BTreeSet<Identity>, disk: &Disk) -> std::io::Result<bool> {
        let Some(aside) = self.aside() else { return Ok(false) };
        if aside.is_dir() {
            // Left by an attempt that was stopped, or somebody's.
            if !Self::has_nothing_but(&aside, &self.files) {
                return Ok(false);
            }
        } else {
            if !self.dir.is_dir() {
                return Ok(true);
            }
            if !Self::has_nothing_but(&self.dir, &self.files) || !self.is_known(known) {
                return Ok(false);
            }
            disk.rename(&self.dir, &aside)?;
        }
        // The description first: without it, it is no run.
        let (first, rest): (Vec<_>, Vec<_>) =
            self.files.iter().partition(|(path, _)| path.as_os_str() == MANIFEST_FILE);
        for (path, _) in first.into_iter().chain(rest) {
            disk.remove(&aside.join(path))?;
        }
        // The deepest first: below each other they are in order. Somebody may have put something there just now.
        let folders: BTreeSet<&Path> = self.folders.iter().map(PathBuf::as_path).chain([Path::new("")]).collect();
        for folder in folders.into_iter().rev() {
            match disk.remove_directory(&aside.join(folder)) {
                Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {
                    // Another run may have taken the name.
                    if !self.dir.exists() {
                        disk.rename(&aside, &self.dir)?;
                    }
                    return Ok(false);
                }
                done => done?,
            }
        }
        Ok(true)
    }

    /// Whether the index has the run that lies there.
    fn is_known(&self, known: &BTreeSet<Identity>) -> bool {
        let read = std::fs::read(self.dir.join(MANIFEST_FILE));
        let manifest = read.ok().and_then(|bytes| serde_json::from_slice::<RunManifest>(&bytes).ok());
        manifest.is_some_and(|manifest| known.contains(&Identity::of(&manifest)))
    }
}

/// Whether a file, below a run's directory, is one that a recording or a report of ours writes: the rest is somebody's.
pub(crate) fn is_of_a_run(path: &Path) -> bool {
    let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
    match parts[..] {
        [name] => [MANIFEST_FILE, beside_run::CRASH].contains(&name) || beside_run::is_made(path),
        [table, name] => {
            RecordKind::ALL.iter().any(|kind| kind.table() == table)
                && name.starts_with("part-")
                && (name.ends_with(".parquet") || name.ends_with(IN_PROGRESS_SUFFIX))
                || beside_run::is_made(path)
        }
        _ => false,
    }
}

impl Journal {
    /// The one that an archive has, if a change was not finished.
    pub(crate) fn read(root: &Path) -> Result<Option<Self>, ArchiveError> {
        let path = root.join(JOURNAL);
        let bytes = match read_limited(&path, MOST) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(ArchiveError::at(&path)(error)),
        };
        let journal: Self =
            serde_json::from_slice(&bytes).map_err(|error| ArchiveError::Journal(path.clone(), error.to_string()))?;
        let paths = journal.removes.iter().chain(journal.renames.iter().flat_map(|(from, to)| [from, to]));
        let is_below = |path: &Path| path.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        // Whoever wrote the journal may only name what lies in a run's directory, as a run has it.
        if let Some(odd) = journal.sources.iter().find_map(Source::somebodys) {
            return Err(ArchiveError::Journal(path, format!("`{}` is no part of a run", odd.display())));
        }
        if let Some(outside) = paths.into_iter().find(|path| !is_below(path)) {
            let why = format!("`{}` is outside of the archive", outside.display());
            return Err(ArchiveError::Journal(path, why));
        }
        Ok(Some(journal))
    }

    /// Decides: from here on the change will be done, whatever happens.
    pub(crate) fn write(&self, root: &Path, disk: &Disk) -> Result<(), ArchiveError> {
        let path = root.join(JOURNAL);
        let bytes = serde_json::to_vec(self).map_err(|error| ArchiveError::Journal(path.clone(), error.to_string()))?;
        if bytes.len() as u64 > MOST {
            return Err(ArchiveError::LargeJournal(bytes.len() as u64));
        }
        disk.write_whole(&path, &bytes).map_err(ArchiveError::at(&path))
    }

    /// Does it, and forgets it. Directories of runs that have other files by now, or cannot be removed, are left and
    /// returned.
    pub(crate) fn apply(&self, root: &Path, limits: &ReadLimits, disk: &Disk) -> Result<Vec<PathBuf>, ArchiveError> {
        let mut folders = BTreeSet::new();
        for path in &self.removes {
            let path = root.join(path);
            disk.remove(&path).map_err(ArchiveError::at(&path))?;
            folders.extend(path.parent().map(Path::to_path_buf));
        }
        for (from, to) in &self.renames {
            let (from, to) = (root.join(from), root.join(to));
            folders.extend(to.parent().map(Path::to_path_buf));
            // Done by an attempt that was stopped.
            if !from.exists() && to.exists() {
                continue;
            }
            disk.rename(&from, &to).map_err(ArchiveError::at(&to))?;
        }
        for folder in folders.iter().filter(|folder| folder.is_dir()) {
            sync_directory(folder).map_err(ArchiveError::at(folder))?;
            // A day that has no rows any more.
            if std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none()) && folder != root {
                let empty = folder.ancestors().take_while(|dir| *dir != root);
                empty.take(3).try_for_each(|dir| disk.remove_directory(dir)).ok();
            }
        }
        let mut kept = Vec::new();
        let index = if self.sources.is_empty() { None } else { index::read(root, limits)? };
        let known: BTreeSet<Identity> = index.iter().flat_map(Identity::all).collect();
        for source in &self.sources {
            // One that may not be removed must not keep the archive from being changed: the index says that it is
            // there, so that its rows will not be taken again.
            if !source.remove(&known, disk).unwrap_or(false) {
                kept.push(source.aside().filter(|aside| aside.is_dir()).unwrap_or_else(|| source.dir.clone()));
            }
        }
        let path = root.join(JOURNAL);
        disk.remove(&path).map_err(ArchiveError::at(&path))?;
        sync_directory(root).map_err(ArchiveError::at(root))?;
        Ok(kept)
    }
}
