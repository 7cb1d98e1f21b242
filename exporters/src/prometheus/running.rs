//! Small files that say something of a running process of this user: where it serves metrics
//! ([`announced`](super::announced)), or what it measures ([`at_work`](super::at_work)).
//!
//! Only its user can read one. They lie in the user's runtime directory, or, where there is none, in the cache directory.
//! That may be shared by several machines and containers: a file says where its process number counts.

use candlescope_core::files::read_text_limited;
use candlescope_core::{cache_directory, steers_screen};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// The format's version; files of another one are left alone.
const VERSION: u32 = 1;
/// A file has some 300 bytes.
const MOST_BYTES: u64 = 4096;
/// More files than this are not read.
const MOST_FILES: usize = 1000;

/// The content of a file: whose it is, and what it says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Content<T> {
    pub(super) version: u32,
    pub(super) pid: u32,
    /// When the process began, as the system counts it: tells it from a later one with the same number.
    pub(super) began: Option<u64>,
    /// Where the number counts: the machine's name and the namespace.
    pub(super) machine: String,
    #[serde(flatten)]
    pub(super) says: T,
}

impl<T> Content<T> {
    /// What this process says.
    pub(super) fn of_this_process(says: T) -> Self {
        Self::of(std::process::id(), says)
    }

    /// What a process of this machine says.
    pub(super) fn of(pid: u32, says: T) -> Self {
        Self { version: VERSION, pid, began: began(pid), machine: machine(), says }
    }
}

/// Where files may lie, best first. Another terminal, one opened over ssh for example, may lack a variable that this one
/// has, so all are looked through.
pub(super) fn directories() -> Vec<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let runtime = absolute("XDG_RUNTIME_DIR").or_else(users_runtime).map(|directory| directory.join("candlescope"));
    runtime.into_iter().chain(cache_directory()).map(|directory| directory.join("running")).collect()
}

/// The runtime directory that systemd makes at log-in.
fn users_runtime() -> Option<PathBuf> {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::MetadataExt;
        let user = std::fs::metadata("/proc/self").ok()?.uid();
        let path = PathBuf::from(format!("/run/user/{user}"));
        path.is_dir().then_some(path)
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// What running processes of this user on this machine say in files of this ending. Files whose process has ended without
/// removing them are removed.
pub(super) fn said<T: DeserializeOwned>(directories: &[PathBuf], ending: &str) -> Vec<Content<T>> {
    let here = machine();
    let entries = directories.iter().flat_map(|directory| std::fs::read_dir(directory).into_iter().flatten().flatten());
    let named = entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == ending));
    named.take(MOST_FILES).filter_map(|path| read(&path, &here)).collect()
}

/// What a file says, if its process is one of this machine and still there.
fn read<T: DeserializeOwned>(path: &Path, here: &str) -> Option<Content<T>> {
    if !is_own(path) {
        return None;
    }
    // One of a later version is somebody else's.
    let content: Content<T> = serde_json::from_str(&read_text_limited(path, MOST_BYTES).ok()?).ok()?;
    if content.version != VERSION || content.machine != here {
        return None;
    }
    if !still_runs(content.pid, content.began) {
        let _ = std::fs::remove_file(path);
        return None;
    }
    Some(content)
}

/// A text of another program, without the characters that what it is shown on may act on.
pub(super) fn harmless(text: &str) -> String {
    text.chars().map(|c| if steers_screen(c) { '\u{fffd}' } else { c }).collect()
}

/// Whether the file is this user's. The variables that say where files lie may name a directory of somebody else, who
/// could send this user's programs to any address.
#[cfg(unix)]
fn is_own(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let owner = std::fs::symlink_metadata(path).map(|file| file.uid());
    owner.is_ok_and(|owner| owner == rustix::process::geteuid().as_raw())
}

#[cfg(not(unix))]
fn is_own(_: &Path) -> bool {
    true
}

/// Where process numbers count: two containers may share a home directory, and two machines, too.
fn machine() -> String {
    let space = std::fs::read_link("/proc/self/ns/pid").map(|link| link.to_string_lossy().into_owned());
    format!("{} {}", candlescope_core::host_name(), space.unwrap_or_default())
}

/// Whether the process is there that had this number when it wrote its file. Where the system does not tell when processes
/// began, any process that has the number by now counts.
fn still_runs(pid: u32, then: Option<u64>) -> bool {
    #[cfg(target_os = "linux")]
    {
        then.is_some() && began(pid) == then
    }
    #[cfg(all(unix, not(target_os = "linux")))]
    {
        let _ = then;
        let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
        pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
    }
    // Elsewhere no file is written.
    #[cfg(not(unix))]
    {
        let _ = (pid, then);
        false
    }
}

/// When a process began; `None` if there is none that runs. Field 22 of `/proc/PID/stat`.
fn began(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses, which may contain anything.
    let mut fields = text[text.rfind(')')? + 1..].split_whitespace();
    let runs = fields.next().is_some_and(|state| !matches!(state, "Z" | "X"));
    fields.nth(18).filter(|_| runs)?.parse().ok()
}

/// Puts a whole file in the place of the one before, so that no reader finds half of one. A link in its place is
/// replaced, not followed.
#[cfg(unix)]
pub(super) fn write<T: Serialize>(directory: &Path, name: &str, content: &Content<T>) -> io::Result<PathBuf> {
    use std::io::Write as _;
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let path = directory.join(name);
    let new = directory.join(format!("{name}.new"));
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
pub(super) fn write<T>(_: &Path, _: &str, _: &Content<T>) -> io::Result<PathBuf> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Removes the file of this process. A forked child ends its copy, and its parent goes on.
pub(super) fn remove(path: &mut Option<PathBuf>, pid: u32) {
    if let Some(path) = path.take().filter(|_| std::process::id() == pid) {
        let _ = std::fs::remove_file(path);
    }
}
