//! Why the prompts of a data set cannot be had.

use std::io;
use std::path::{Path, PathBuf};

/// The prompts of a data set cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "its messages say what the fields are")]
pub enum DatasetError {
    /// It cannot be read.
    #[error("cannot read {}: {cause}", .path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        cause: io::Error,
    },
    /// A line or an entry is not what it should be.
    #[error("{}, {place}: {why}", .path.display())]
    Entry {
        path: PathBuf,
        /// Line or number of the entry.
        place: String,
        /// What is wrong, and what it should be.
        why: String,
    },
    /// There is nothing in it.
    #[error("{} has no prompts: {why}", .path.display())]
    Empty {
        /// The file or directory.
        path: PathBuf,
        /// What was looked for.
        why: String,
    },
    /// A variant has to be named, or does not exist.
    #[error("{} has the variants {}: {why}", .path.display(), .variants.join(", "))]
    Variant { path: PathBuf, variants: Vec<String>, why: String },
    /// It has texts and images.
    #[error(
        "{} mixes texts and images: {text} is a text, {image} an image; keep them in two data sets, or in two variants \
         of one",
        .path.display()
    )]
    Mixed {
        /// The file or directory.
        path: PathBuf,
        text: String,
        image: String,
    },
}

impl DatasetError {
    /// Nothing is in what lies at `path`.
    pub(crate) fn empty(path: &Path, why: impl Into<String>) -> Self {
        Self::Empty { path: path.to_path_buf(), why: why.into() }
    }
}
