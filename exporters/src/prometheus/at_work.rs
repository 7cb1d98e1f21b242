//! What this user's programs measure: a small file for each process that is at such work, by which `candlescope monitor`
//! says what it does. A benchmark serves no metrics, because serving them would be measured as well.
//!
//! The files lie where those of [`announced`](super::announced) lie, under the same rules
//! ([`running`](super::running)).

use super::running::{self, Content, directories, harmless};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

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
    /// Id of the process.
    pub pid: u32,
    /// What it does, such as `bench throughput of embedded`.
    pub what: String,
    /// How far it is, such as `12 samples, last: throughput batch=8`; empty at the beginning.
    pub state: String,
}

/// What a file says.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Work {
    what: String,
    state: String,
}

/// Says what this process is at, until it is dropped. Where no file can be written nobody is told, which is no error.
#[derive(Debug)]
pub struct WorkNotice {
    path: Option<PathBuf>,
    content: Content<Work>,
    written: Instant,
}

impl WorkNotice {
    /// Says that this process does `what` now.
    pub fn on(what: &str) -> Self {
        Self::within(&directories(), what)
    }

    fn within(directories: &[PathBuf], what: &str) -> Self {
        // What killed processes left would pile up where nobody ever looks.
        drop(at_work_within(directories));
        let content = Content::of_this_process(Work { what: short(what), state: String::new() });
        let path = directories.iter().find_map(|directory| write(directory, &content).ok());
        Self { path, content, written: Instant::now() }
    }

    /// Says how far it is. What is told right after something else is not written, and seldom missed.
    pub fn tell(&mut self, state: impl FnOnce() -> String) {
        if self.path.is_none() || (!self.content.says.state.is_empty() && self.written.elapsed() < SHORTEST) {
            return;
        }
        self.written = Instant::now();
        let state = short(&state());
        if state == self.content.says.state {
            return;
        }
        self.content.says.state = state;
        if let Some(directory) = self.path.as_deref().and_then(Path::parent) {
            let _ = write(directory, &self.content);
        }
    }
}

impl Drop for WorkNotice {
    fn drop(&mut self) {
        running::remove(&mut self.path, self.content.pid);
    }
}

/// The processes of this user on this machine that say what they are at. Files whose process has ended without removing
/// them are removed.
pub fn at_work() -> Vec<AtWork> {
    at_work_within(&directories())
}

fn at_work_within(directories: &[PathBuf]) -> Vec<AtWork> {
    let one = |Content { pid, says, .. }: Content<Work>| AtWork {
        pid,
        what: harmless(&says.what),
        state: harmless(&says.state),
    };
    let mut found: Vec<AtWork> = running::said(directories, ENDING).into_iter().map(one).collect();
    found.sort();
    found.dedup_by_key(|one| one.pid);
    found
}

fn short(text: &str) -> String {
    text.chars().take(MOST_CHARS).collect()
}

fn write(directory: &Path, content: &Content<Work>) -> io::Result<PathBuf> {
    running::write(directory, &format!("{}.{ENDING}", content.pid), content)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn work_is_told_while_it_lasts_and_what_a_killed_process_left_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = [dir.path().join("running")];
        let mut working = WorkNotice::within(&dirs, "bench throughput of m\u{202e}");
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
        let of_child = Content::of(child.id(), working.content.says.clone());
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
