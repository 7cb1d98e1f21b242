//! Which runs and studies are asked.

use candlescope_reader::limits::ReadLimits;
use candlescope_reader::{OpenError, Run, checked};
use candlescope_schema::run::{Finding, MANIFEST_FILE};
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

/// Runs and studies, opened.
#[derive(Debug, Default)]
pub struct Sources {
    pub(super) runs: Vec<Run>,
    /// Directories of studies.
    pub(super) studies: Vec<PathBuf>,
    /// Columns of the table of studies.
    columns: Vec<Field>,
    /// Studies that cannot be read, with why.
    damaged: Vec<(PathBuf, Finding)>,
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
            let before = (sources.runs.len(), sources.studies.len());
            match Run::open_within(path, limits.clone()) {
                Ok(run) => sources.runs.push(run),
                Err(OpenError::NotARun(_) | OpenError::DirectoryOfRuns { .. }) => {
                    sources.look(path, limits, DEEPEST)?
                }
                Err(error) => return Err(error.into()),
            }
            if before == (sources.runs.len(), sources.studies.len()) {
                return Err(SourceError::Nothing(path.to_path_buf()));
            }
        }
        // A run named twice would count twice.
        sources.runs.sort_by(|a, b| a.dir().cmp(b.dir()));
        sources.runs.dedup_by(|a, b| a.dir() == b.dir());
        sources.studies.sort();
        sources.studies.dedup();
        sources.name_columns(limits);
        Ok(sources)
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

    /// Studies that cannot be read.
    pub(super) fn findings_of_studies(&self) -> &[(PathBuf, Finding)] {
        &self.damaged
    }

    /// Every file of this machine that a query may read.
    pub(super) fn local_files(&self) -> impl Iterator<Item = &Path> {
        self.runs.iter().flat_map(Run::segments).map(|segment| segment.path.as_path())
    }

    fn name_columns(&mut self, limits: &ReadLimits) {
        let mut known: HashMap<String, usize> = HashMap::new();
        for study in &self.studies {
            let file = study.join(RESULTS);
            let schema = match checked::schema(&file, limits) {
                Ok(schema) => schema,
                Err(finding) => {
                    self.damaged.push((file, finding));
                    continue;
                }
            };
            for field in schema.fields().iter().filter(|field| !field.data_type().is_nested()) {
                let lower = field.name().to_ascii_lowercase();
                if lower == DIR {
                    continue;
                }
                let at = *known.entry(lower).or_insert_with(|| {
                    self.columns.push(Field::new(field.name(), plain(field.data_type()), true));
                    self.columns.len() - 1
                });
                let both = wider(self.columns[at].data_type(), &plain(field.data_type()));
                self.columns[at].set_data_type(both);
            }
        }
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
