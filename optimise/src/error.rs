//! Why nothing can be optimised.

use candlescope_lab::compare::CompareFailed;
use candlescope_reader::OpenError;
use std::path::PathBuf;

/// Why nothing can be optimised.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "its messages say what the fields are")]
pub enum OptimiseError {
    /// The program cannot be run as it is.
    #[error(transparent)]
    Run(#[from] CompareFailed),
    /// What is promised of a change by hand cannot be told.
    #[error("--promise: {0}")]
    Promise(String),
    /// A station of a journey is nothing of the kind.
    #[error("{path} cannot be read as a study, a comparison or the results of a load: {why}", path = path.display())]
    Station {
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A run cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A file cannot be written.
    #[error("cannot write {path}: {cause}. Free space, or name another directory with --out", path = path.display())]
    Write { path: PathBuf, cause: std::io::Error },
    /// There is nothing to go on with.
    #[error("{path} holds no optimisation to go on with ({why}): leave --resume out, or name its directory", path = path.display())]
    Resume {
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Something that its gains rest on is another one now.
    #[error(
        "{path} was begun with another {what} ({then} then, {now} now), by which what it holds was measured: put that one back, or \
         begin anew with another --out", path = path.display()
    )]
    Changed {
        path: PathBuf,
        /// What has changed: `candlescope`, or a file.
        what: String,
        /// By which it was told then, or `none`.
        then: String,
        now: String,
    },
    /// What it holds is of another machine.
    #[error(
        "{path} was measured on {then}, and this is {now}: gains of two machines do not go together. Go on with it \
         there, or begin anew with another --out", path = path.display()
    )]
    OtherMachine {
        path: PathBuf,
        /// The processor or the GPU that the runs before were of.
        then: String,
        /// That of the run which was to go on with them.
        now: String,
    },
    /// It was begun with another command.
    #[error("{path} was begun with other options (as {begun}): give the same ones, or another --out", path = path.display())]
    Other { path: PathBuf, begun: String },
}
