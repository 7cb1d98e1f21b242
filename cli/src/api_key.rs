//! `--api-key-env`: keys come from variables, as arguments are for everybody to see.

use anyhow::{Context, Result};

/// The key in the variable of this name.
pub(crate) fn api_key(variable: &str) -> Result<String> {
    let key = std::env::var(variable).ok().map(|key| key.trim().to_string()).filter(|key| !key.is_empty());
    key.with_context(|| format!("--api-key-env {variable}: the variable is not set: export {variable}=KEY"))
}
