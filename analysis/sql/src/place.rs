//! Where runs, archives and their files are.

use super::left_out::LeftOut;
use candlescope_reader::{ARCHIVE_INDEX, OpenError};
use candlescope_schema::RecordKind;
use candlescope_schema::run::{Finding, IN_PROGRESS_SUFFIX, MANIFEST_FILE, RunManifest};
use candlescope_schema::study_files::RESULTS_FILE;
use datafusion::arrow::datatypes::Field;
use datafusion::execution::object_store::ObjectStoreUrl;
use object_store::ObjectMeta;
use object_store::path::Path as ObjectPath;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Runs of one query.
pub(super) const MOST: usize = 100_000;

/// There is nothing to ask.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "its messages say what the fields are")]
pub enum SourceError {
    /// A run cannot be opened.
    #[error(transparent)]
    Run(#[from] OpenError),
    /// A directory has neither.
    #[error(
        "`{}` holds neither a run nor a study: give the directory of a run (with {MANIFEST_FILE}), of a study (with \
         {RESULTS_FILE}), or a folder of these",
        .0.display()
    )]
    Nothing(PathBuf),
    /// A folder holds runs, and none of them can be read.
    #[error("`{}` holds no run that can be read ({count} cannot). Of the first: {first}", .place.display())]
    NoneReadable {
        place: PathBuf,
        /// How many runs, and folders, cannot be read.
        count: usize,
        /// Why the first of them cannot.
        first: String,
    },
    /// An object store does not answer, or not as it should.
    #[error(
        "`{url}` cannot be read: {why}. Credentials and endpoints are taken from the environment, as AWS_ACCESS_KEY_ID, \
         AWS_ENDPOINT_URL, GOOGLE_SERVICE_ACCOUNT, AZURE_STORAGE_ACCOUNT_NAME (docs/fleet.md)"
    )]
    Store {
        url: String,
        /// What the store says.
        why: String,
    },
    /// More than 100,000 runs are named; with the folder in which this came out.
    #[error("`{}` holds more than {MOST} runs: name a part of it", .0.display())]
    TooMany(PathBuf),
}

/// A change of an archive that is decided and not yet done.
pub const ARCHIVE_JOURNAL: &str = "journal.json";

/// What the name of a run's directory ends in while an archiver removes it: it is no run any more.
pub const ARCHIVE_ASIDE: &str = ".archived";

/// Whether an archiver is removing this directory.
pub fn is_aside(dir: &Path) -> bool {
    let name = dir.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with('.') && name.ends_with(ARCHIVE_ASIDE))
}

/// Whether a directory is meant as a run: it has `run.json`, or segments of a table where a run has them.
pub fn is_run(dir: &Path) -> bool {
    let has_segment = |kind: RecordKind| {
        let inside = std::fs::read_dir(dir.join(kind.table())).into_iter().flatten().flatten();
        inside.map(|entry| entry.file_name()).any(|name| name.to_str().is_some_and(|name| is_segment(name).is_some()))
    };
    dir.join(MANIFEST_FILE).is_file() || RecordKind::ALL.into_iter().any(has_segment)
}

/// Whether the file of this name is a segment that was finished, or not; `None` where it is none. Segments have
/// numbers: other programs call their files `part-00000-….parquet`.
pub(super) fn is_segment(name: &str) -> Option<bool> {
    let finished = name.strip_suffix(IN_PROGRESS_SUFFIX).unwrap_or(name);
    let number = finished.strip_prefix("part-")?.strip_suffix(".parquet")?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(finished == name)
}

/// Where files are: a place that the engine reads from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Store {
    pub(super) url: ObjectStoreUrl,
}

impl Store {
    /// This machine.
    pub(super) fn local() -> Self {
        Self { url: ObjectStoreUrl::local_filesystem() }
    }

    /// The URL of an object.
    pub(super) fn url_of(&self, object: &ObjectMeta) -> String {
        format!("{}{}", self.url.as_str(), object.location)
    }
}

/// An archive that is asked, here or in a store.
#[derive(Debug)]
pub(super) struct Archive {
    /// As it was named.
    pub(super) name: String,
    pub(super) place: ArchiveLocation,
    /// Columns of its index; none where that cannot be read.
    pub(super) columns: Vec<Field>,
}

/// Where an archive is.
#[derive(Debug)]
pub(super) enum ArchiveLocation {
    /// A directory of this machine.
    Local(PathBuf),
    /// A store, with all that it has below the archive's root.
    #[cfg_attr(not(feature = "object-stores"), allow(dead_code, reason = "nothing opens one then"))]
    Remote { store: Store, root: ObjectPath, objects: Vec<ObjectMeta> },
}

/// A run in an object store.
#[derive(Debug)]
pub(super) struct RemoteRun {
    /// URL of its directory, by which queries name it.
    pub(super) name: String,
    pub(super) store: Store,
    pub(super) manifest: Option<RunManifest>,
    pub(super) files: Vec<(RecordKind, ObjectMeta)>,
    /// What listing it and reading its description showed.
    pub(super) findings: Vec<Finding>,
}

/// What a URL named.
#[derive(Debug, Default)]
pub(super) struct RemotePlaces {
    pub(super) archives: Vec<Archive>,
    pub(super) runs: Vec<RemoteRun>,
    pub(super) left_out: Vec<LeftOut>,
}

impl RemoteRun {
    /// The URL of one of its files.
    pub(super) fn url(&self, object: &ObjectMeta) -> String {
        self.store.url_of(object)
    }
}

impl Archive {
    pub(super) fn local(root: PathBuf) -> Self {
        Self { name: root.display().to_string(), place: ArchiveLocation::Local(root), columns: Vec::new() }
    }

    /// Whether its index has this column, as far as that can be read: one of another version may lack it.
    pub(super) fn has_column(&self, name: &str) -> bool {
        self.columns.is_empty() || self.columns.iter().any(|column| column.name().eq_ignore_ascii_case(name))
    }

    pub(super) fn store(&self) -> Store {
        match &self.place {
            ArchiveLocation::Local(_) => Store::local(),
            ArchiveLocation::Remote { store, .. } => store.clone(),
        }
    }

    /// Files of the index: one, or none where the store lists none.
    pub(super) fn index(&self) -> Vec<LocatedFile> {
        match &self.place {
            ArchiveLocation::Local(root) => vec![LocatedFile::Local(root.join(ARCHIVE_INDEX))],
            ArchiveLocation::Remote { root, objects, .. } => {
                let index = root.clone().join(ARCHIVE_INDEX);
                objects.iter().filter(|object| object.location == index).cloned().map(LocatedFile::Remote).collect()
            }
        }
    }

    /// Its files of a table: `table/date=…/machine=…/….parquet`. What cannot be listed goes to `unlisted`.
    pub(super) fn files(&self, table: &str, unlisted: &mut dyn FnMut(&Path, io::Error)) -> Vec<LocatedFile> {
        match &self.place {
            ArchiveLocation::Local(root) => {
                let mut folders = vec![root.join(table)];
                // Its days, and their machines.
                for _ in 0..2 {
                    let mut below = Vec::new();
                    for folder in &folders {
                        below.extend(inside(folder, true, unlisted));
                    }
                    folders = below;
                }
                let mut files = Vec::new();
                for folder in &folders {
                    files.extend(inside(folder, false, unlisted));
                }
                files.retain(|path| is_parquet(path.extension()));
                files.into_iter().map(LocatedFile::Local).collect()
            }
            ArchiveLocation::Remote { root, objects, .. } => {
                let is_of_table = |object: &&ObjectMeta| {
                    let Some(parts) = object.location.prefix_match(root) else { return false };
                    let parts: Vec<_> = parts.collect();
                    let [of, _, _, name] = &parts[..] else { return false };
                    // What is being written begins with a dot.
                    of.as_ref() == table && name.as_ref().ends_with(".parquet") && !name.as_ref().starts_with('.')
                };
                objects.iter().filter(is_of_table).cloned().map(LocatedFile::Remote).collect()
            }
        }
    }

    /// What tells whether it was changed: every change replaces the index.
    pub(super) fn state(&self) -> ArchiveState {
        let index = match &self.place {
            ArchiveLocation::Local(root) => root.join(ARCHIVE_INDEX).metadata().ok(),
            // What a store has was listed once.
            ArchiveLocation::Remote { .. } => None,
        };
        let index = index.map(|found| (found.len(), found.modified().ok()));
        ArchiveState { index, is_changing: self.is_changing() }
    }

    /// Whether a change of it was stopped, or is being made.
    pub(super) fn is_changing(&self) -> bool {
        match &self.place {
            ArchiveLocation::Local(root) => root.join(ARCHIVE_JOURNAL).exists(),
            ArchiveLocation::Remote { root, objects, .. } => {
                let journal = root.clone().join(ARCHIVE_JOURNAL);
                objects.iter().any(|object| object.location == journal)
            }
        }
    }
}

/// An archive as it was at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ArchiveState {
    /// Bytes of its index, and when that was written.
    index: Option<(u64, Option<SystemTime>)>,
    /// Whether a change was stopped then, or was being made.
    pub(super) is_changing: bool,
}

/// What a folder holds, in order: its folders, or its files. One that is gone by now holds nothing; one that cannot be
/// listed, and a link that cannot be followed, go to `unlisted`.
fn inside(folder: &Path, of_folders: bool, unlisted: &mut dyn FnMut(&Path, io::Error)) -> Vec<PathBuf> {
    let entries = match std::fs::read_dir(folder).and_then(|entries| entries.collect::<io::Result<Vec<_>>>()) {
        Ok(entries) => entries,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(why) => {
            unlisted(folder, why);
            return Vec::new();
        }
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.path();
        let is_folder = match entry.file_type() {
            Ok(kind) if !kind.is_symlink() => Ok(kind.is_dir()),
            _ => path.metadata().map(|behind| behind.is_dir()),
        };
        match is_folder {
            Ok(is_folder) if is_folder == of_folders => found.push(path),
            Err(why) if why.kind() != io::ErrorKind::NotFound => unlisted(&path, why),
            _ => {}
        }
    }
    found.sort();
    found
}

fn is_parquet(extension: Option<&std::ffi::OsStr>) -> bool {
    extension.is_some_and(|of| of == "parquet")
}

/// A file.
#[derive(Debug, Clone)]
pub(super) enum LocatedFile {
    /// Path of a file on this machine.
    Local(PathBuf),
    /// An object in a store, as the store's listing describes it.
    Remote(ObjectMeta),
}
