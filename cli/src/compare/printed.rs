//! How results are printed.

use super::compare_args::JudgingArgs;
use crate::output::say;
use anyhow::{Context, Result};
use candlescope_core::files::write_whole;
use candlescope_document::{Document, html};
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::path::Path;

/// Whether text may have colours.
pub(super) fn colour() -> bool {
    std::io::stdout().is_terminal()
}

/// The page, where somebody wants one; then the JSON that was asked for, or text.
pub(super) fn told(
    judging: &JudgingArgs,
    object: &impl Serialize,
    document: impl Fn() -> Document,
    text: impl FnOnce() -> String,
) -> Result<()> {
    if let Some(file) = &judging.html {
        write(file, html::page(&document()).as_bytes())?;
    }
    match judging.json.say(object, document)? {
        true => Ok(()),
        false => say(text().trim_end()),
    }
}

/// A whole file, or none.
pub(super) fn write(path: &Path, contents: &[u8]) -> Result<()> {
    write_whole(path, |file| file.write_all(contents))
        .with_context(|| format!("cannot write {}: free space, or name another file", path.display()))
}
