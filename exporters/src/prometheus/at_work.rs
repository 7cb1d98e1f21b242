//! What this user's programs measure: a small file for each process that is at such work, by which `candlescope monitor`
//! says what it does. A benchmark serves no metrics, because serving them would be measured as well.
//!
//! The files lie where those of [`announced`](super::announced) lie, under the same rules.

use super::announcement::{began, directories, harmless, is_own, machine};
use candlescope_core::files::read_text_limited;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The format's version; files of another one are left alone.
const VERSION: u32 = 1;
/// A file has some 300 bytes.
const MOST_BYTES: u64 = 4096;
/// More files than this are not read.
const MOST_FILES: usize = 1000;
/// How the files' names end. Those of endpoints end in `.json`.
const ENDING: &str = "work";
/// What is told more often than this is not written: whoever looks does so once a second.
const SHORTEST: Duration = Duration::from_millis(200);
/// Longest text that is written, in characters.
const MOST_CHARS: usize = 200;

/// A process of this user on this machine, and what it is at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct AtWork {
    /// Its process.
    pub pid: u32,
    /// What it does, such as `bench throughput of embedded`.
    pub what: String,
    /// How far it is, such as `12 samples, last: throughput batch=8`; empty at the beginning.
    pub state: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Content {
    version: u32,
    pid: u32,
    /// When the process began, as the system counts it: tells it from a later one with the same number.
    began: Option<u64>,
    machine: String,
    what: String,
    state: String,
}

/// Says what this process is at, until it is dropped. Where no file can be written nobody is told, which is no error.
#[derive(Debug)]
pub struct Working {
    path: Option<PathBuf>,
    content: Content,
    written: Instant,
}

impl Working {
    /// Says that this process does `what` now.
    pub fn on(what: &str) -> Self {
        Self::within(&directories(), what)
    }

    fn within(directories: &[PathBuf], what: &str) -> Self {
        // What killed processes left would pile up where nobody ever looks.
        drop(at_work_within(directories));
        let pid = std::process::id();
        let content = Content {
            version: VERSION,
            pid,
            began: began(pid),
            machine: machine(),
            what: short(what),
            state: String::new(),
        };
        let path = directories.iter().find_map(|directory| write(directory, &content).ok());
        Self { path, content, written: Instant::now() }
    }

    /// Says how far it is. What is told right after something else is not written, and seldom missed.
    pub fn tell(&mut self, state: impl FnOnce() -> String) {
        if self.path.is_none() || (!self.content.state.is_empty() && self.written.elapsed() < SHORTEST) {
            return;
        }
        self.written = Instant::now();
        let state = short(&state());
        if state == self.content.state {
            return;
        }
        self.content.state = state;
        if let Some(directory) = self.path.as_deref().and_then(Path::parent) {
            let _ = write(directory, &self.content);
        }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        // A forked child ends its copy, and its parent goes on.
        if let Some(path) = self.path.take().filter(|_| std::process::id() == self.content.pid) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The processes of this user on this machine that say what they are at. Files whose process has ended without removing
/// them are removed.
pub fn at_work() -> Vec<AtWork> {
    at_work_within(&directories())
}

fn at_work_within(directories: &[PathBuf]) -> Vec<AtWork> {
    let here = machine();
    let entries = directories.iter().flat_map(|directory| std::fs::read_dir(directory).into_iter().flatten().flatten());
    let named = entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == ENDING));
    let mut found: Vec<AtWork> = named.take(MOST_FILES).filter_map(|path| read(&path, &here)).collect();
    found.sort();
    found.dedup_by_key(|one| one.pid);
    found
}

fn read(path: &Path, here: &str) -> Option<AtWork> {
    if !is_own(path) {
        return None;
    }
    let content: Content = serde_json::from_str(&read_text_limited(path, MOST_BYTES).ok()?).ok()?;
    if content.version != VERSION || content.machine != here {
        return None;
    }
    if cfg!(target_os = "linux") && (content.began.is_none() || began(content.pid) != content.began) {
        let _ = std::fs::remove_file(path);
        return None;
    }
    Some(AtWork { pid: content.pid, what: harmless(&content.what), state: harmless(&content.state) })
}

fn short(text: &str) -> String {
    text.chars().take(MOST_CHARS).collect()
}

/// Puts a whole file in the place of the one before, so that no reader finds half of one. A link in its place is
/// replaced, not followed.
#[cfg(unix)]
fn write(directory: &Path, content: &Content) -> io::Result<PathBuf> {
    use std::io::Write as _;
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let path = directory.join(format!("{}.{ENDING}", content.pid));
    let new = directory.join(format!("{}.{ENDING}.new", content.pid));
    let text = serde_json::to_vec(content)?;
    // One that is there is left by a process that had this number.
    let _ = std::fs::remove_file(&new);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    match file.write_all(&text).and_then(|()| std::fs::rename(&new, &path)) {
        Ok(()) => Ok(path),
        Err(error) => {
            let _ = std::fs::remove_file(&new);
            Err(error)
        }
    }
}

/// Elsewhere nothing keeps such a file to its user.
#[cfg(not(unix))]
fn write(_: &Path, _: &Content) -> io::Result<PathBuf> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn work_is_told_while_it_lasts_and_what_a_killed_process_left_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = [dir.path().join("running")];
        let mut working = Working::within(&dirs, "bench throughput of m\u{202e}");
        let found = at_work_within(&dirs);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].pid, found[0].what.as_str()), (std::process::id(), "bench throughput of m\u{fffd}"));
        working.tell(|| "warms up".into());
        assert_eq!(at_work_within(&dirs)[0].state, "warms up");
        // So soon nothing is written.
        working.tell(|| unreachable!("it is not asked for"));
        working.written = working.written.checked_sub(SHORTEST).unwrap();
        working.tell(|| "1 sample".into());
        assert_eq!(at_work_within(&dirs)[0].state, "1 sample");
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let of_child = Content { pid: child.id(), began: began(child.id()), ..working.content.clone() };
        write(&dirs[0], &of_child).unwrap();
        assert_eq!(at_work_within(&dirs).len(), 2);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(at_work_within(&dirs).len(), 1);
        drop(working);
        assert!(at_work_within(&dirs).is_empty());
        assert_eq!(std::fs::read_dir(&dirs[0]).unwrap().count(), 0);
    }
}
