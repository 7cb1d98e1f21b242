//! The directory of captured runs, and its limits.
//!
//! Overload policy: everything in the directory counts, whoever wrote it, and when it is full a further capture is
//! refused. No run is removed to make room: somebody asked for each of them, and this process cannot know who still
//! needs it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Least free space for beginning a capture, in bytes.
const LEAST: u64 = 1_000_000;

/// Where captures go, how many there may be, and their total size.
#[derive(Debug, Clone)]
pub(crate) struct Shelf {
    pub(crate) dir: PathBuf,
    pub(crate) bytes: u64,
    pub(crate) runs: u32,
}

impl Shelf {
    /// Bytes that one more capture may take, or why there can be none.
    pub(crate) fn room(&self) -> Result<u64, String> {
        let (runs, bytes) = contents(&self.dir).map_err(|e| {
            let dir = self.dir.display();
            format!("cannot see how full {dir} is ({e}): make it readable, or name another directory with --captures")
        })?;
        let full = |has: String, option: &str| {
            let dir = self.dir.display();
            Err(format!(
                "{dir} is full, it has {has}: move runs away or remove them, or start the server with more {option}"
            ))
        };
        if runs >= u64::from(self.runs) {
            return full(format!("{runs} runs of {}", self.runs), "--captures-most");
        }
        let left = self.bytes.saturating_sub(bytes);
        if left < LEAST.min(self.bytes) {
            return full(format!("{:.1} MB of {:.1}", bytes as f64 / 1e6, self.bytes as f64 / 1e6), "--captures-mb");
        }
        Ok(left)
    }
}

/// Runs in `dir` and the bytes of all files in it. A directory that does not exist yet counts as empty.
fn contents(dir: &Path) -> std::io::Result<(u64, u64)> {
    let entries = match dir.read_dir() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((0, 0)),
        entries => entries?,
    };
    let (mut runs, mut bytes) = (0, 0);
    for entry in entries {
        let entry = entry?;
        let is_dir = entry.file_type()?.is_dir();
        runs += u64::from(is_dir && entry.file_name() != OsStr::new("lost+found"));
        bytes += if is_dir { size(&entry.path()) } else { entry.metadata().map_or(0, |m| m.len()) };
    }
    Ok((runs, bytes))
}

/// Bytes of a directory's files. Files that are removed meanwhile, or cannot be read, do not count; links are not
/// followed.
fn size(dir: &Path) -> u64 {
    let Ok(entries) = dir.read_dir() else { return 0 };
    let of = |entry: std::fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => size(&entry.path()),
        Ok(_) => entry.metadata().map_or(0, |m| m.len()),
        Err(_) => 0,
    };
    entries.filter_map(Result::ok).map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_bytes_are_counted_whoever_wrote_them() {
        let dir = tempfile::tempdir().expect("a directory");
        let shelf = Shelf { dir: dir.path().join("captures"), bytes: 3_000_000, runs: 2 };
        assert_eq!(shelf.room(), Ok(3_000_000), "not there yet");
        let run = |name: &str, bytes: usize| {
            let tables = shelf.dir.join(name).join("spans");
            std::fs::create_dir_all(&tables).expect("made");
            std::fs::write(tables.join("part-0.parquet"), vec![0; bytes]).expect("written");
        };
        run("somebody's", 500_000);
        assert_eq!(shelf.room(), Ok(2_500_000));
        run("second", 1);
        let full = shelf.room().expect_err("two runs");
        assert!(full.contains("2 runs of 2") && full.contains("--captures-most"), "{full}");

        let shelf = Shelf { runs: 9, ..shelf };
        assert_eq!(shelf.room(), Ok(2_499_999));
        std::fs::write(shelf.dir.join("notes"), vec![0; 2_000_000]).expect("written");
        let full = shelf.room().expect_err("too little is left");
        assert!(full.contains("2.5 MB of 3.0") && full.contains("--captures-mb"), "{full}");
    }
}
