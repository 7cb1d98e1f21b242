//! Why a comparison could not be made.

use crate::study::StudyError;
use candlescope_compare::CompareError;
use candlescope_reader::OpenError;
use std::path::PathBuf;

/// Why a comparison could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "its messages say what the fields are")]
pub enum CompareFailed {
    /// There is nothing to compare at a path.
    #[error("nothing to compare at {path}: {what}. Name a run, a study, or a folder of runs or of studies", path = path.display())]
    NoTarget {
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// One side is runs, the other studies.
    #[error("A is {a} and B is {b}: compare runs with runs, and studies with studies")]
    Kinds { a: &'static str, b: &'static str },
    /// A run cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A study cannot be read.
    #[error(transparent)]
    Study(#[from] StudyError),
    /// The sides must not be compared.
    #[error(transparent)]
    Compare(#[from] CompareError),
    /// The output directory is in use.
    #[error("{path} is not empty: name another directory with --out", path = path.display())]
    NotEmpty { path: PathBuf },
    /// A command cannot be told of the output directory.
    #[error("the path {path} is no text in UTF-8, in which commands are told where to record: name another one with --out", path = path.display())]
    NotText { path: PathBuf },
    /// A file cannot be written.
    #[error("cannot write {path}: {cause}. Free space, remove what stands there, or name another directory", path = path.display())]
    Write { path: PathBuf, cause: std::io::Error },
    /// A command could not be started.
    #[error("cannot start `{command}`: {cause}")]
    Start { command: String, cause: std::io::Error },
    /// A command ended with another status than 0, or by a signal.
    #[error("`{command}` ended with {status}{said}. {kept}")]
    Command {
        command: String,
        status: String,
        /// The last lines that it printed.
        said: String,
        kept: String,
    },
    /// A command took too long.
    #[error("`{command}` had not ended after {seconds:.0} s and was stopped{said}. {kept}")]
    TooLong {
        command: String,
        seconds: f64,
        /// The last lines that it printed.
        said: String,
        kept: String,
    },
    /// A command wrote no run.
    #[error(
        "`{command}` wrote no run: it has to call candlescope::init() and record with the variable CANDLESCOPE, or to \
         write its run into the directory that stands for {{out}} in the command. {kept}"
    )]
    NoRun { command: String, kept: String },
    /// There is no baseline.
    #[error("no baseline in {path} ({reason}): save one with candlescope gate RUN --save {path}", path = path.display())]
    NoBaseline { path: PathBuf, reason: String },
    /// The baseline was saved by a newer release.
    #[error("the baseline in {path} has schema version {found}, and this candlescope reads versions up to {known}: update candlescope, or save it again", path = path.display())]
    NewerBaseline {
        path: PathBuf,
        found: u32,
        /// The newest version that is known here.
        known: u32,
    },
    /// The baseline is of another machine.
    #[error(
        "the baseline in {path} was measured on {saved}, and this run on {here}: times of two machines say nothing \
         about a change. Save a baseline on this machine: candlescope gate RUN --save {path}-2",
        path = path.display()
    )]
    OtherMachine { path: PathBuf, saved: String, here: String },
}
