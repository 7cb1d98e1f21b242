//! Where this program is, for what runs in a process of its own.

use anyhow::{Context, Result};
use std::path::PathBuf;

/// The program's own file.
pub(crate) fn this_program() -> Result<PathBuf> {
    std::env::current_exe().context("cannot find this program to start it again")
}
