//! Why an archive could not be changed.

use candlescope_reader::checked::ReadError;
use candlescope_sql::EachError;
use std::io;
use std::path::{Path, PathBuf};

/// An archive could not be changed. What it had, and the runs that were to go into it, are as before; of many runs some
/// may have gone into it already.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "its messages say what the fields are")]
pub enum ArchiveError {
    /// A file or a directory cannot be read or written.
    #[error("`{}` cannot be read or written: {}", .0.display(), .1)]
    Disk(PathBuf, io::Error),
    /// Parquet cannot be written.
    #[error("Parquet cannot be written: {0}")]
    Parquet(String),
    /// A file is damaged.
    #[error("{0}. Nothing was changed: mend or remove it first")]
    Damaged(String),
    /// A column has a type that no table of a run has.
    #[error("a column has a type that no table of a run has: {0}")]
    Kind(String),
    /// A run cannot be asked.
    #[error("a run cannot be read: {0}")]
    Query(String),
    /// The journal is damaged.
    #[error("`{}` cannot be understood: {}. It says what a change that was stopped had decided: mend it, or ask for help", .0.display(), .1)]
    Journal(PathBuf, String),
    /// A change is too large.
    #[error(
        "the change has so many files that its description takes {0} bytes, more than is read again. Nothing was changed: \
         archive the runs with most files by themselves, with --keep-source"
    )]
    LargeJournal(u64),
    /// What was written differs from what it was made of.
    #[error(
        "the rows of `{table}` that were written for the run `{run}` differ from those that they were made of ({why}). Nothing \
         was changed; check the disk"
    )]
    Differs { table: &'static str, run: String, why: String },
    /// `--keep` makes no sense.
    #[error("`{0}` is neither a time nor a size: write 30d, 12h, 20GB or 500MB")]
    Keep(String),
    /// The archive would be removed with a run.
    #[error("`{}` is within the run `{}`: name a directory of its own", .0.display(), .1.display())]
    InsideRun(PathBuf, PathBuf),
    /// The index is gone, and rows are not.
    #[error(
        "`{}` has rows (`{}`) and no index: nothing says which runs they are of. Put its {} back from a copy, or name another \
         directory",
        .0.display(), .1.display(), super::layout::INDEX
    )]
    NoIndex(PathBuf, PathBuf),
    /// The index cannot be read.
    #[error(
        "{0}. It is the index of the archive: put it back from a copy; without it, nothing says which runs the archive has"
    )]
    Index(String),
    /// The archive has no such run.
    #[error(
        "the archive `{}` has no run `{}`: `candlescope query 'SELECT run, run_id FROM runs' {}` lists those that it has",
        .1.display(), .0, .1.display()
    )]
    NoRun(String, PathBuf),
    /// Several runs of the archive have this `run_id`.
    #[error("the archive has several runs with the run_id `{0}`: name one of {1}")]
    SeveralRuns(String, String),
    /// A run is to be written where something is.
    #[error("`{}` exists: name a directory that does not", .0.display())]
    Exists(PathBuf),
    /// There is no archive.
    #[error("`{}` is no archive: it has no {}", .0.display(), super::layout::INDEX)]
    NoArchive(PathBuf),
}

impl From<ReadError<ArchiveError>> for ArchiveError {
    fn from(error: ReadError<ArchiveError>) -> Self {
        match error {
            ReadError::File(finding) => Self::Damaged(finding.message()),
            ReadError::Other(error) => error,
        }
    }
}

impl From<EachError<ArchiveError>> for ArchiveError {
    fn from(error: EachError<ArchiveError>) -> Self {
        match error {
            EachError::Query(error) => Self::Query(error.to_string()),
            EachError::Taken(error) => error,
        }
    }
}

impl ArchiveError {
    pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |error| Self::Disk(path, error)
    }

    /// As [`at`](Self::at), of what writes Parquet there.
    pub(crate) fn writing(path: &Path) -> impl FnOnce(parquet::errors::ParquetError) -> Self {
        let at = Self::at(path);
        move |error| match error {
            parquet::errors::ParquetError::External(cause) => at(io::Error::other(cause)),
            other => at(io::Error::other(other)),
        }
    }

    /// What is wrong with a run that is left where it is.
    pub(crate) fn of_a_run(self) -> String {
        match self {
            Self::Damaged(why) => why,
            other => other.to_string(),
        }
    }

    pub(crate) fn arrow(error: arrow_schema::ArrowError) -> Self {
        Self::Parquet(error.to_string())
    }
}
