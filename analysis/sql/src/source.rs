//! Which runs and studies are asked.

use candlescope_reader::limits::ReadLimits;
use candlescope_reader::{OpenError, RawTable, Run};
use candlescope_schema::run::MANIFEST_FILE;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Folders below a directory that are looked through for runs.
const DEEPEST: usize = 8;
/// Runs of one query.
const MOST: usize = 100_000;
/// Columns of a table in SQLite.
pub(super) const MOST_COLUMNS: usize = 2000;
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
    columns: Vec<String>,
    /// How many there are, if a table can have fewer.
    too_many: Option<usize>,
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

    /// Columns of the table of studies: the study's directory, then all that any of them has.
    pub(super) fn result_columns(&self) -> &[String] {
        &self.columns
    }

    /// How many columns studies have together, if that is more than a table can have.
    pub(super) fn too_many_columns(&self) -> Option<usize> {
        self.too_many
    }

    fn name_columns(&mut self, limits: &ReadLimits) {
        let mut known = HashSet::from([DIR.to_string()]);
        self.columns = vec![DIR.to_string()];
        for study in &self.studies {
            let names = RawTable::columns_of(&study.join(RESULTS), limits);
            self.columns.extend(names.into_iter().filter(|name| known.insert(name.to_ascii_lowercase())));
        }
        self.too_many = Some(self.columns.len()).filter(|found| *found > MOST_COLUMNS);
        self.columns.truncate(MOST_COLUMNS);
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
