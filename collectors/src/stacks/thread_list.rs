//! The process's threads, as `/proc` has them.

use candlescope_core::stacks::MonotonicNs;
use rustc_hash::FxHashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;

/// The folder is read again after so long even if the number of threads is the same: one may have come for one that went.
const REREAD_NS: u64 = 200_000_000;
/// A thread takes its name after it has begun: until it is so old, its name is read again.
pub(super) const YOUNG_NS: u64 = 1_000_000_000;

/// Whether a name is of a thread of the profiler's own.
pub(super) fn is_our_own(name: &str) -> bool {
    name.starts_with("cs-")
}

/// See the module's text.
pub(super) struct ThreadList {
    /// Kept open: by its path, asking costs five times as much.
    folder: File,
    links: u64,
    read_at: MonotonicNs,
}

impl ThreadList {
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self { folder: File::open("/proc/self/task")?, links: 0, read_at: MonotonicNs(0) })
    }

    /// The numbers of all threads, if it is time to look.
    pub(super) fn threads(&mut self, now: MonotonicNs) -> Option<FxHashSet<u32>> {
        // The folder has two links and one for each thread: a call that costs two microseconds.
        let links = self.folder.metadata().map_or(0, |m| m.nlink());
        if links == self.links && now.0.saturating_sub(self.read_at.0) < REREAD_NS {
            return None;
        }
        (self.links, self.read_at) = (links, now);
        let folder = fs::read_dir("/proc/self/task").ok()?;
        Some(folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
    }
}

/// A thread's name. `None` if it has ended.
pub(super) fn name(tid: u32) -> Option<String> {
    let name = fs::read(format!("/proc/self/task/{tid}/comm")).ok()?;
    Some(String::from_utf8_lossy(&name).trim_end_matches('\n').to_string())
}

/// Whether a thread waits: is neither on a CPU nor ready for one.
pub(super) fn is_waiting(tid: u32) -> bool {
    let stat = fs::read(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
    state(&String::from_utf8_lossy(&stat)).is_some_and(|state| state == 'S' || state == 'D')
}

/// `12 (a name (with) brackets) S 1 …`
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(") ")?.1.chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_listed_when_their_number_changes() {
        let mut list = ThreadList::open().unwrap();
        let now = MonotonicNs(1);
        let me = crate::stacks::sys::thread_id();
        assert!(list.threads(now).unwrap().contains(&me));
        assert!(list.threads(MonotonicNs(REREAD_NS + 1)).is_some());
        assert!(name(me).is_some() && name(0).is_none());
    }

    #[test]
    fn the_state_is_what_follows_the_name() {
        assert_eq!(state("12 (a) S (b)) R 1 2"), Some('R'));
        assert_eq!(state("nonsense"), None);
    }
}
