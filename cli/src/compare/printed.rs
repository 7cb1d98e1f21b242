//! How results are printed.

use super::compare_args::Judging;
use crate::output::say;
use anyhow::{Context, Result};
use candlescope_core::files::write_whole;
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::path::Path;

/// Whether text may have colours.
pub(super) fn colour() -> bool {
    std::io::stdout().is_terminal()
}

/// One machine-readable object.
pub(super) fn print(object: &impl Serialize) -> Result<()> {
    say(&serde_json::to_string(object)?)
}

/// The page, where somebody wants one.
pub(super) fn page(judging: &Judging, page: impl FnOnce() -> String) -> Result<()> {
    match &judging.html {
        Some(file) => write(file, page().as_bytes()),
        None => Ok(()),
    }
}

/// A whole file, or none.
pub(super) fn write(path: &Path, contents: &[u8]) -> Result<()> {
    write_whole(path, |file| file.write_all(contents))
        .with_context(|| format!("cannot write {}: free space, or name another file", path.display()))
}
