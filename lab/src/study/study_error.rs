//! Why a study cannot be made, read or written.

use std::path::PathBuf;

/// Why a study cannot be made, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "its messages say what the fields are")]
pub enum StudyError {
    /// The directory has contents already.
    #[error("{path} is not empty: name another directory with --out{resume}", path = path.display())]
    NotEmpty {
        path: PathBuf,
        /// `, or go on with the study in it with --resume`, if there is one.
        resume: &'static str,
    },
    /// There is no study to go on with.
    #[error(
        "{path} holds no study ({reason}): leave --resume out, or name the directory of a study",
        path = path.display()
    )]
    NoStudy { path: PathBuf, reason: String },
    /// The study in the directory is of something else.
    #[error(
        "the study in {path} is of something else ({what}): go on with the options it was begun with, or name another \
         directory",
        path = path.display()
    )]
    Different { path: PathBuf, what: String },
    /// The study in the directory was measured on another machine or GPU, or with another build.
    #[error(
        "the study in {path} was begun elsewhere ({what}), and samples of two machines, GPUs or builds are not those of \
         one study: go on with it where it was begun, or measure anew in another directory (--out)",
        path = path.display()
    )]
    Elsewhere { path: PathBuf, what: String },
    /// A file cannot be written.
    #[error(
        "cannot write {path}: {cause}; samples so far are in the study's journal: {remedy}",
        path = path.display(),
        remedy = remedy(cause)
    )]
    Write { path: PathBuf, cause: std::io::Error },
    /// The study has results, and no journal that they could be made of again.
    #[error(
        "{path} {reason}, and the results, which are made of it, would lose what was measured. Nothing was written: \
         put the study's own journal back there, or measure anew in another directory (--out)",
        path = path.display()
    )]
    NoJournal { path: PathBuf, reason: &'static str },
    /// A file cannot be read.
    #[error("cannot read {path}: {cause}", path = path.display())]
    Read { path: PathBuf, cause: std::io::Error },
    /// Two columns of the table would have one name, or two cases one key.
    #[error("{0} twice: each case has a key of its own, and a parameter and a figure have different names")]
    Twice(String),
}

/// What helps where a file of a study cannot be written.
fn remedy(cause: &std::io::Error) -> &'static str {
    use std::io::ErrorKind;
    match cause.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "free space, and go on with --resume",
        // A link, a pipe or a directory in its place.
        ErrorKind::InvalidInput | ErrorKind::IsADirectory => {
            "take away what stands in its place, or name another directory"
        }
        _ => "name another directory",
    }
}
