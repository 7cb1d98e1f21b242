//! Limits on reading files, which the environment variable and `--limit` set.

use anyhow::{Context, Result};
use candlescope_reader::limits::VARIABLE;
use candlescope_reader::{Limit, ReadLimits};
use std::fmt::Write;

/// The defaults, overridden by the variable, overridden by `given`.
pub(crate) fn limits(given: &[String]) -> Result<ReadLimits> {
    let mut limits = ReadLimits::default();
    if let Some(text) = std::env::var_os(VARIABLE) {
        limits = limits.parse(&text.to_string_lossy()).with_context(|| format!("in the variable {VARIABLE}"))?;
    }
    given.iter().try_fold(limits, |limits, text| limits.parse(text).with_context(|| format!("in --limit {text}")))
}

/// For `--help`: every limit, what it counts, and its default.
pub(crate) fn help() -> String {
    let mut text = format!(
        "Raise or lower a limit on what is read, as NAME=VALUE; can be repeated. {VARIABLE} sets the same, joined by commas. \
         Limits keep a damaged or crafted file from filling memory; raise one only for files that you trust:\n"
    );
    for limit in Limit::ALL {
        let _ = write!(text, "\n{:<16} {:>9}  {}", limit.name(), limit.default_value(), limit.meaning());
    }
    text
}
