//! Why a study cannot be made, read or written.

use std::path::PathBuf;

/// Why a study cannot be made, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StudyError {
    /// The directory has contents already.
    #[error("{path} is not empty: name another directory with --out{resume}", path = path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
        /// `, or go on with the study in it with --resume`, if there is one.
        resume: &'static str,
    },
    /// There is no study to go on with.
    #[error(
        "{path} holds no study ({reason}): leave --resume out, or name the directory of a study",
        path = path.display()
    )]
    NoStudy {
        /// The directory.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The study in the directory is of something else.
    #[error(
        "the study in {path} is of something else ({what}): go on with the options it was begun with, or name another \
         directory",
        path = path.display()
    )]
    Different {
        /// The directory.
        path: PathBuf,
        /// What differs.
        what: String,
    },
    /// A file cannot be written.
    #[error(
        "cannot write {path}: {cause}; samples so far are in the study's journal: free space or name another directory",
        path = path.display()
    )]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// A file cannot be read.
    #[error("cannot read {path}: {cause}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// Two columns of the table would have one name, or two cases one key.
    #[error("{0} twice: each case has a key of its own, and a parameter and a figure have different names")]
    Twice(String),
}
