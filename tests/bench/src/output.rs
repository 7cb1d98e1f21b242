//! Where results go: `target/bench/NAME.json`, one file a program, so that any of them can be run again alone.

use anyhow::{Context, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The folder of results: `CANDLESCOPE_BENCH_DIR`, or else `target/bench` of the workspace.
pub fn directory() -> PathBuf {
    match std::env::var_os("CANDLESCOPE_BENCH_DIR") {
        Some(dir) => dir.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench"),
    }
}

/// Writes one program's result and returns the file's name.
///
/// # Errors
/// When the folder or the file cannot be written.
pub fn write(name: &str, value: &Value) -> Result<PathBuf> {
    let dir = directory();
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let path = dir.join(format!("{name}.json"));
    let text = serde_json::to_string_pretty(value)? + "\n";
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Reads a result written before; `None` if there is none.
///
/// # Errors
/// When there is one that is not JSON.
pub fn read(name: &str) -> Result<Option<Value>> {
    let path = directory().join(format!("{name}.json"));
    let Ok(text) = std::fs::read_to_string(&path) else {
        return Ok(None);
    };
    Ok(Some(serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))?))
}

/// A folder for runs that are measured and thrown away: beside the results, because the system's own folder for
/// temporary files may be memory.
///
/// # Errors
/// When it cannot be made.
pub fn scratch() -> Result<tempfile::TempDir> {
    let dir = directory();
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    tempfile::Builder::new().prefix("scratch-").tempdir_in(&dir).context("cannot make a scratch folder")
}
