//! Where a profiler's files go, and what the program under it is told.

use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Where a profile goes.
#[derive(Debug)]
pub(crate) struct Output {
    /// The files' path without extension, absolute: the program may change its directory.
    pub(crate) stem: PathBuf,
}

impl Output {
    /// What `--out` names, or `PROGRAM-TIME`, without the extension of a `report`.
    pub(crate) fn new(out: Option<&Path>, program: &str, report: &str) -> Result<Self> {
        let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let out = out.map_or_else(|| PathBuf::from(format!("{program}-{seconds}")), Path::to_path_buf);
        let out = if out.extension().is_some_and(|e| e == report) { out.with_extension("") } else { out };
        if out.file_name().is_none() || out.to_string_lossy().contains('%') {
            // The program would substitute it: %p is the process id.
            bail!("--out {}: give a file's name without %", out.display());
        }
        let stem = std::path::absolute(&out).with_context(|| format!("--out {}", out.display()))?;
        if let Some(parent) = stem.parent() {
            std::fs::create_dir_all(parent)
                .with_context(|| format!("cannot make {}: choose another place with --out", parent.display()))?;
        }
        Ok(Self { stem })
    }

    /// The file with this extension.
    pub(crate) fn file(&self, extension: &str) -> PathBuf {
        let mut name = self.stem.clone().into_os_string();
        name.push(".");
        name.push(extension);
        name.into()
    }

    /// Where runs recorded beside it go, if the variable can hold it.
    pub(crate) fn runs(&self) -> Option<String> {
        self.file("runs").to_str().filter(|dir| !dir.contains([',', '='])).map(str::to_string)
    }

    /// When that file was last written, if it is there.
    pub(crate) fn changed(&self, extension: &str) -> Option<SystemTime> {
        self.file(extension).metadata().and_then(|m| m.modified()).ok()
    }
}

/// The entries of `CANDLESCOPE`.
pub(crate) fn entries(given: Option<&str>) -> impl Iterator<Item = &str> {
    given.unwrap_or_default().split(',').map(str::trim).filter(|part| !part.is_empty())
}

/// What stands before `=`.
pub(crate) fn key_of(entry: &str) -> &str {
    entry.split('=').next().unwrap_or_default().trim()
}

/// `CANDLESCOPE` for the program: its own value, with ranges added, and with a run in `runs` if it names none.
pub(crate) fn merged(given: Option<&str>, runs: Option<&str>) -> String {
    let mut parts: Vec<String> = entries(given).map(str::to_string).collect();
    let has = |parts: &[String], key: &str| parts.iter().any(|part| key_of(part) == key);
    if !has(&parts, "nvtx") {
        parts.push("nvtx".to_string());
    }
    if let Some(runs) = runs.filter(|_| !has(&parts, "parquet")) {
        parts.push(format!("parquet={runs}"));
    }
    parts.join(",")
}

/// Runs in `dir`, newest first.
pub(crate) fn newest_first(dir: &str) -> Vec<PathBuf> {
    let mut runs: Vec<(OsString, PathBuf)> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().is_dir())
        .map(|entry| (entry.file_name(), entry.path()))
        .collect();
    runs.sort();
    runs.into_iter().rev().map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_keeps_what_it_says() {
        assert_eq!(merged(None, None), "nvtx");
        assert_eq!(merged(Some(""), Some("/r")), "nvtx,parquet=/r");
        assert_eq!(merged(Some(" host=off , parquet = mine"), Some("/r")), "host=off,parquet = mine,nvtx");
        assert_eq!(merged(Some("nvtx=off"), None), "nvtx=off", "off is off");
    }

    #[test]
    fn names_of_outputs() {
        let dir = tempfile::tempdir().unwrap();
        let out = |name: &str| Output::new(Some(&dir.path().join(name)), "nsys", "nsys-rep");
        assert_eq!(out("a/b.c").unwrap().file("nsys-rep"), dir.path().join("a/b.c.nsys-rep"));
        assert_eq!(out("x.nsys-rep").unwrap().file("sqlite"), dir.path().join("x.sqlite"));
        assert!(out("p%p").unwrap_err().to_string().contains("without %"));
        assert!(out("a,b").unwrap().runs().is_none(), "the variable's own separator");
        assert!(Output::new(None, "nsys", "nsys-rep").unwrap().stem.is_absolute());
    }
}
