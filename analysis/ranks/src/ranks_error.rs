//! Why there are no ranks.

use candlescope_reader::OpenError;
use std::path::PathBuf;

/// Runs are no ranks of one program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "its messages say what the fields are")]
pub enum RanksError {
    /// There are fewer than two.
    #[error("`{}` holds no runs of several ranks", .0.display())]
    None(PathBuf),
    /// The run that was to have threads as ranks cannot be read.
    #[error(transparent)]
    Unreadable(#[from] OpenError),
    /// Too few of a run's threads run marked phases, or too many.
    #[error(
        "`{}` has marked phases on {threads} thread{}: ranks are 2 to 64 threads that run phases each, such as decode",
        .run.display(), if *.threads == 1 { "" } else { "s" }
    )]
    Threads {
        /// Directory of the run.
        run: PathBuf,
        /// How many run phases.
        threads: usize,
    },
    /// Steps have no record.
    #[error(
        "{missing} of {of} steps of `{}` have no record, so which step of one thread belongs to which of another is not known: record every \
         step",
        .run.display()
    )]
    StepsMissing {
        /// Directory of the run.
        run: PathBuf,
        /// Steps without a record.
        missing: u64,
        /// All steps between the first and the last recorded one.
        of: u64,
    },
    /// One rank at most can be read.
    #[error("of the ranks in `{}` only one can be read; {reason}", .folder.display())]
    OneReadable {
        folder: PathBuf,
        /// Why the first of the others cannot.
        reason: String,
    },
    /// Two have the same rank.
    #[error(
        "`{}` and `{}` are both rank {rank}: name a folder with the runs of one start of the program",
        .one.display(), .other.display()
    )]
    Twice { rank: u32, one: PathBuf, other: PathBuf },
}
