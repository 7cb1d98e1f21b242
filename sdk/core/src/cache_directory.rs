//! Where programs of one user keep what outlives them: measured peaks, promises put to the test, which processes are at
//! work.

use std::ffi::OsString;
use std::path::PathBuf;

/// `$XDG_CACHE_HOME/candlescope`, else `~/.cache/candlescope`, else `%LOCALAPPDATA%\candlescope`, which Windows sets;
/// `None` if no variable names an absolute path.
pub fn cache_directory() -> Option<PathBuf> {
    directory_of(|name| std::env::var_os(name))
}

fn directory_of(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || absolute("HOME").map(|home| home.join(".cache"));
    let cache = absolute("XDG_CACHE_HOME").or_else(home).or_else(|| absolute("LOCALAPPDATA"))?;
    Some(cache.join("candlescope"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_variable_that_names_an_absolute_path_decides() {
        let root = if cfg!(windows) { "C:/" } else { "/" };
        let found = |set: &[(&str, &str)]| {
            let variable = |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
            directory_of(variable)
        };
        let [cache, home, local] = ["c", "h", "l"].map(|name| format!("{root}{name}"));
        let all = [("LOCALAPPDATA", local.as_str()), ("HOME", &home), ("XDG_CACHE_HOME", &cache)];
        let at = |path: &str| Some(PathBuf::from(format!("{root}{path}")));
        assert_eq!(found(&all), at("c/candlescope"));
        assert_eq!(found(&all[..2]), at("h/.cache/candlescope"));
        // As on Windows.
        assert_eq!(found(&all[..1]), at("l/candlescope"));
        assert_eq!(found(&[("XDG_CACHE_HOME", "relative"), all[1]]), at("h/.cache/candlescope"));
        assert_eq!(found(&[("HOME", "relative")]), None);
    }
}
