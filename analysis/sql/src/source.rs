//! Which runs and studies are asked.

use candlescope_reader::limits::ReadLimits;
use candlescope_reader::{OpenError, Run, checked};
use candlescope_schema::RecordKind;
use candlescope_schema::run::MANIFEST_FILE;
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::execution::object_store::ObjectStoreUrl;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Folders below a directory that are looked through for runs.
const DEEPEST: usize = 8;
/// Runs of one query.
const MOST: usize = 100_000;
/// Name of the file with a study's samples.
pub(super) const RESULTS: &str = "results.parquet";
/// The column of a study's directory.
pub(super) const DIR: &str = "dir";

/// There is nothing to ask.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// A run cannot be opened.
    #[error(transparent)]
    Run(#[from] OpenError),
    /// A directory has neither.
    #[error(
        "`{}` holds neither a run nor a study: give the directory of a run (with {MANIFEST_FILE}), of a study (with \
         {RESULTS}), or a folder of these",
        .0.display()
    )]
    Nothing(PathBuf),
    /// Too many.
    #[error("`{}` holds more than {MOST} runs: name a part of it", .0.display())]
    TooMany(PathBuf),
}

/// The index of an archive: one row a run. Where it lies, its folder is an archive.
pub const ARCHIVE_INDEX: &str = "runs.parquet";

/// A change of an archive that is decided and not yet done.
pub const ARCHIVE_JOURNAL: &str = "journal.json";

/// Runs, studies and archives, opened.
#[derive(Debug, Default)]
pub struct Sources {
    /// Roots of archives.
    pub(super) archives: Vec<PathBuf>,
    pub(super) runs: Vec<Run>,
    /// Directories of studies.
    pub(super) studies: Vec<PathBuf>,
    /// Columns of the table of studies.
    columns: Vec<Field>,
    /// Columns of the indexes of archives.
    index_columns: Vec<Field>,
}

/// Where files are: a place that the engine reads from.
#[derive(Debug, Clone)]
pub(super) struct Store {
    pub(super) url: ObjectStoreUrl,
}

impl Store {
    /// This machine.
    pub(super) fn local() -> Self {
        Self { url: ObjectStoreUrl::local_filesystem() }
    }
}

impl Sources {
    /// Opens what `paths` name: runs, studies with the runs in them, and folders of these at any depth.
    ///
    /// # Errors
    /// When one of them is neither, or a run that was named cannot be opened. Inside a folder, what cannot be opened is
    /// left out.
    pub fn open<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>, limits: &ReadLimits) -> Result<Self, SourceError> {
        let mut sources = Self::default();
        for path in paths {
            let path = path.as_ref();
            if path.join(ARCHIVE_INDEX).is_file() {
                sources.archives.push(path.to_path_buf());
                continue;
            }
            let found = |sources: &Self| (sources.runs.len(), sources.studies.len(), sources.archives.len());
            let before = found(&sources);
            match Run::open_within(path, limits.clone()) {
                Ok(run) => sources.runs.push(run),
                Err(OpenError::NotARun(_) | OpenError::DirectoryOfRuns { .. }) => {
                    sources.look(path, limits, DEEPEST)?
                }
                Err(error) => return Err(error.into()),
            }
            if before == found(&sources) {
                return Err(SourceError::Nothing(path.to_path_buf()));
            }
        }
        // A run named twice would count twice.
        sources.runs.sort_by(|a, b| a.dir().cmp(b.dir()));
        sources.runs.dedup_by(|a, b| a.dir() == b.dir());
        sources.studies.sort();
        sources.studies.dedup();
        sources.archives.sort();
        sources.archives.dedup();
        sources.name_columns(limits);
        Ok(sources)
    }

    /// A run that is open already, alone.
    pub fn of(run: Run) -> Self {
        Self { runs: vec![run], ..Self::default() }
    }

    /// The roots of the archives.
    pub fn archives(&self) -> &[PathBuf] {
        &self.archives
    }

    /// Files of a table in archives.
    pub(super) fn archived(&self, table: &str) -> Vec<PathBuf> {
        let inside = |dir: PathBuf| {
            let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
            let mut paths: Vec<PathBuf> = entries.collect();
            paths.sort();
            paths
        };
        let days = self.archives.iter().flat_map(|root| inside(root.join(table)));
        let files = days.flat_map(inside).flat_map(inside);
        files.filter(|path| path.extension().is_some_and(|of| of == "parquet")).collect()
    }

    /// The runs.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The directories of the studies.
    pub fn studies(&self) -> &[PathBuf] {
        &self.studies
    }

    /// Columns of the table of studies: all that any of them has. A column that is a whole number in one study and none in
    /// another is a number, and one that is text in some is text.
    pub(super) fn result_columns(&self) -> &[Field] {
        &self.columns
    }

    /// Columns of the indexes of archives, in the same way.
    pub(super) fn index_columns(&self) -> &[Field] {
        &self.index_columns
    }

    /// Every file of this machine that a query may read, but for those of studies.
    pub(super) fn local_files(&self) -> impl Iterator<Item = PathBuf> {
        let segments = self.runs.iter().flat_map(Run::segments).map(|segment| segment.path.clone());
        let indexes = self.archives.iter().map(|root| root.join(ARCHIVE_INDEX));
        segments.chain(indexes).chain(RecordKind::ALL.iter().flat_map(|kind| self.archived(kind.table())))
    }

    fn name_columns(&mut self, limits: &ReadLimits) {
        let studies: Vec<PathBuf> = self.studies.iter().map(|study| study.join(RESULTS)).collect();
        let indexes: Vec<PathBuf> = self.archives.iter().map(|root| root.join(ARCHIVE_INDEX)).collect();
        self.columns = all_columns(&studies, Some(DIR), limits);
        self.index_columns = all_columns(&indexes, None, limits);
    }

    fn look(&mut self, dir: &Path, limits: &ReadLimits, depth: usize) -> Result<(), SourceError> {
        if dir.join(RESULTS).is_file() {
            self.studies.push(dir.to_path_buf());
        }
        let mut inside: Vec<PathBuf> = std::fs::read_dir(dir)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path())
            .collect();
        inside.sort();
        for path in inside {
            if path.join(ARCHIVE_INDEX).is_file() {
                self.archives.push(path);
                continue;
            }
            if self.runs.len() >= MOST {
                return Err(SourceError::TooMany(dir.to_path_buf()));
            }
            match path.join(MANIFEST_FILE).is_file() {
                true => self.runs.extend(Run::open_within(&path, limits.clone()).ok()),
                false if depth > 0 => self.look(&path, limits, depth - 1)?,
                false => {}
            }
        }
        Ok(())
    }
}

/// Columns that any of these files has, but for one that means something else. What cannot be read has none: that is told
/// when its rows are asked for.
fn all_columns(files: &[PathBuf], but: Option<&str>, limits: &ReadLimits) -> Vec<Field> {
    let (mut columns, mut known): (Vec<Field>, HashMap<String, usize>) = Default::default();
    for schema in files.iter().filter_map(|file| checked::schema(file, limits).ok()) {
        for field in schema.fields().iter().filter(|field| !field.data_type().is_nested()) {
            let lower = field.name().to_ascii_lowercase();
            if but == Some(lower.as_str()) {
                continue;
            }
            let at = *known.entry(lower).or_insert_with(|| {
                columns.push(Field::new(field.name(), plain(field.data_type()), true));
                columns.len() - 1
            });
            let both = wider(columns[at].data_type(), &plain(field.data_type()));
            columns[at].set_data_type(both);
        }
    }
    columns
}

/// The type that a column of a study has in a table.
fn plain(kind: &DataType) -> DataType {
    match kind {
        DataType::Boolean => DataType::Boolean,
        kind if kind.is_integer() => DataType::Int64,
        kind if kind.is_floating() => DataType::Float64,
        _ => DataType::Utf8View,
    }
}

fn wider(a: &DataType, b: &DataType) -> DataType {
    match (a, b) {
        (a, b) if a == b => a.clone(),
        (a, b) if a.is_numeric() && b.is_numeric() => DataType::Float64,
        _ => DataType::Utf8View,
    }
}
