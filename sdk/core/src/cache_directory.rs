//! Where programs of one user keep what outlives them: measured peaks, promises put to the test, which processes are at work.

use std::path::PathBuf;

/// `$XDG_CACHE_HOME/candlescope`, else `~/.cache/candlescope`; `None` if neither variable names an absolute path.
pub fn cache_directory() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))?;
    Some(cache.join("candlescope"))
}
