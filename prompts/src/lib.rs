//! Prompts from files: JSONL, ShareGPT's JSON, plain text, images, and directories of them. A part of candlescope,
//! which may change with every release.
//!
//! `docs/configuration.md` describes the forms.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod dataset_error;
mod directory;
mod forms;
mod paths;
mod prompt;

use std::path::Path;

pub use dataset_error::DatasetError;
pub use forms::jsonl;
pub use prompt::{Content, Prompt, sha256};

/// The prompts of the file or directory at `path`, in order. `variant` chooses among those of a directory.
///
/// # Errors
/// If it cannot be read, has no prompts, has an entry that is none (named by its line), or mixes texts and images; or
/// if a variant has to be named.
pub fn read(path: &Path, variant: Option<&str>) -> Result<Vec<Prompt>, DatasetError> {
    if path.is_dir() {
        return directory::read(path, variant);
    }
    if let Some(variant) = variant {
        return Err(DatasetError::empty(path, format!("it is a file, which has no variant {variant}")));
    }
    forms::file(path, None)
}
