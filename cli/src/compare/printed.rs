//! How results are printed.

use crate::output::say;
use anyhow::Result;
use serde::Serialize;
use std::io::IsTerminal;

/// Whether text may have colours.
pub(super) fn colour() -> bool {
    std::io::stdout().is_terminal()
}

/// One machine-readable object.
pub(super) fn print(object: &impl Serialize) -> Result<()> {
    say(&serde_json::to_string(object)?)
}
