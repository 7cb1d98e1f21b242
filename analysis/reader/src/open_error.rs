//! Why a run could not be opened.

use candlescope_schema::run::{self, Code, Finding, SCHEMA_VERSION};
use std::path::PathBuf;

/// Reasons that an error names.
const MOST_REASONS: usize = 4;

/// A run could not be opened at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "its messages say what the fields are")]
pub enum OpenError {
    /// The directory does not exist.
    #[error("no run at `{}`: there is no such directory. Give the directory that `candlescope profile --out` or the Parquet exporter wrote", .0.display())]
    NotFound(PathBuf),
    /// The path is not a directory.
    #[error("`{}` is a file, not a run. Give the run's directory, the one that holds {manifest}", .0.display(), manifest = run::MANIFEST_FILE)]
    NotADirectory(PathBuf),
    /// The directory holds runs but is not one itself.
    #[error("`{}` is not a run but holds {count}: name one of them, for example `{}`", dir.display(), first.display())]
    DirectoryOfRuns {
        /// The directory asked for.
        dir: PathBuf,
        /// Number of runs in it.
        count: usize,
        /// The newest of them by name.
        first: PathBuf,
    },
    /// The directory contains nothing of a run.
    #[error("`{}` holds no run: neither {manifest} nor a Parquet file under spans/, steps/, requests/ or samples/. Give the directory that `candlescope profile --out` or the Parquet exporter wrote", .0.display(), manifest = run::MANIFEST_FILE)]
    NotARun(PathBuf),
    /// The directory is an archive of runs.
    #[error(
        "`{dir}` is an archive of runs, not a run. `candlescope archive {dir} --restore NAME --to DIR` writes one of them back, for \
         report, analyze and export; `candlescope query 'SELECT run FROM archived' {dir}` has their names, and `candlescope \
         summary {dir}` says what changed over time",
        dir = .0.display()
    )]
    Archive(PathBuf),
    /// There are files of a run, but none of them can be read.
    #[error("nothing in `{}` can be read: {reasons}. Copy the run again from where it was made, or record it again", dir.display())]
    NothingReadable {
        dir: PathBuf,
        /// What is wrong with each file.
        reasons: String,
    },
    /// The run was written by a newer release.
    #[error("`{}` has schema version {found}, and this candlescope reads versions up to {SCHEMA_VERSION}. Update candlescope (`cargo install candlescope-cli`)", .dir.join(run::MANIFEST_FILE).display())]
    NewerSchema { dir: PathBuf, found: u32 },
    /// The directory could not be listed.
    #[error("cannot list `{}`: {cause}. Check its permissions", dir.display())]
    List { dir: PathBuf, cause: std::io::Error },
}

impl OpenError {
    /// There is nothing to read in the directory or below the URL `dir`, for the reasons that these findings are.
    pub fn nothing_readable(dir: impl Into<PathBuf>, findings: &[Finding]) -> Self {
        let said = |finding: &Finding| match finding.code {
            Code::LimitReached => format!("{}. {}", finding.message(), finding.remedy()),
            _ => finding.message(),
        };
        let reasons: Vec<_> = findings.iter().take(MOST_REASONS).map(said).collect();
        Self::NothingReadable { dir: dir.into(), reasons: reasons.join("; ") }
    }
}
