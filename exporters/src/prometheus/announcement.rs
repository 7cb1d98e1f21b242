//! Where this user's programs serve metrics: a small file for each endpoint, written when it starts and removed when it
//! ends, by which `candlescope monitor` finds it.
//!
//! The file says process, address and the name of the program's file, nothing else, and only its user can read it. It
//! lies in the user's runtime directory, or, where there is none, in the cache directory. That may be shared by several
//! machines and containers: a file says where its process number counts.

use candlescope_core::files::read_text_limited;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// The format's version; files of another one are left alone.
const VERSION: u32 = 1;
/// A file has some 200 bytes.
const MOST_BYTES: u64 = 4096;
/// More files than this are not read.
const MOST_FILES: usize = 1000;

/// A program of this user that serves metrics on this machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Announced {
    /// Its process.
    pub pid: u32,
    /// Where `/metrics` is, as seen from this machine.
    pub address: SocketAddr,
    /// File name of the program.
    pub program: String,
}

/// The content of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Content {
    version: u32,
    pid: u32,
    /// When the process began, as the system counts it: tells it from a later one with the same number.
    began: Option<u64>,
    /// Where the number counts: the machine's name and the namespace.
    machine: String,
    program: String,
    address: SocketAddr,
}

/// A file that exists as long as this does.
#[derive(Debug)]
pub(super) struct Announcement {
    path: Option<PathBuf>,
    pid: u32,
}

impl Announcement {
    /// Announces an endpoint. Where no file can be written, the endpoint is not found by itself, which is no error: it
    /// can still be named.
    pub(super) fn of(address: SocketAddr) -> Self {
        Self::within(&directories(), address)
    }

    fn within(directories: &[PathBuf], address: SocketAddr) -> Self {
        // What killed processes left would pile up where nobody ever looks.
        drop(announced_within(directories));
        let pid = std::process::id();
        let program = std::env::current_exe().ok();
        let program = program.as_deref().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
        let content = Content {
            version: VERSION,
            pid,
            began: began(pid),
            machine: machine(),
            program: program.into_owned(),
            address,
        };
        let path = directories.iter().find_map(|directory| write(directory, &content).ok());
        Self { path, pid }
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        // A forked child ends its copy, and its parent goes on.
        if let Some(path) = self.path.take().filter(|_| std::process::id() == self.pid) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The programs of this user that serve metrics on this machine now. Files whose process has ended without removing
/// them are removed.
pub fn announced() -> Vec<Announced> {
    announced_within(&directories())
}

fn announced_within(directories: &[PathBuf]) -> Vec<Announced> {
    let here = machine();
    let entries = directories.iter().flat_map(|directory| std::fs::read_dir(directory).into_iter().flatten().flatten());
    let named = entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "json"));
    let found: BTreeSet<Announced> = named.take(MOST_FILES).filter_map(|path| read(&path, &here)).collect();
    found.into_iter().collect()
}

/// What a file announces, if its process is one of this machine and still there.
fn read(path: &Path, here: &str) -> Option<Announced> {
    if !is_own(path) {
        return None;
    }
    // A file that is being written is found in the next round; one of a later version is somebody else's.
    let content: Content = serde_json::from_str(&read_text_limited(path, MOST_BYTES).ok()?).ok()?;
    if content.version != VERSION || content.machine != here {
        return None;
    }
    if cfg!(target_os = "linux") && (content.began.is_none() || began(content.pid) != content.began) {
        let _ = std::fs::remove_file(path);
        return None;
    }
    let address = SocketAddr::new(reachable(content.address.ip()), content.address.port());
    Some(Announced { pid: content.pid, address, program: harmless(&content.program) })
}

/// A text of another program, without the characters that what it is shown on may act on.
pub(super) fn harmless(text: &str) -> String {
    let acts = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if acts(c) { '\u{fffd}' } else { c }).collect()
}

/// Whether the file is this user's. The variables that say where files lie may name a directory of somebody else, who
/// could send this user's programs to any address.
#[cfg(unix)]
pub(super) fn is_own(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let owner = std::fs::symlink_metadata(path).map(|file| file.uid());
    owner.is_ok_and(|owner| owner == rustix::process::geteuid().as_raw())
}

#[cfg(not(unix))]
pub(super) fn is_own(_: &Path) -> bool {
    true
}

/// An address that stands for all of this machine's, as one of them.
fn reachable(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

/// Where files may lie, best first. Another terminal, one opened over ssh for example, may lack a variable that this one
/// has, so all are looked through.
pub(super) fn directories() -> Vec<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let runtime = absolute("XDG_RUNTIME_DIR").or_else(users_runtime);
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    runtime.into_iter().chain(cache).map(|directory| directory.join("candlescope").join("running")).collect()
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

/// Where process numbers count: two containers may share a home directory, and two machines, too.
pub(super) fn machine() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let space = std::fs::read_link("/proc/self/ns/pid").map(|link| link.to_string_lossy().into_owned());
    format!("{} {}", name.trim(), space.unwrap_or_default())
}

/// When a process began; `None` if there is none that runs. Field 22 of `/proc/PID/stat`.
pub(super) fn began(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses, which may contain anything.
    let mut fields = text[text.rfind(')')? + 1..].split_whitespace();
    let runs = fields.next().is_some_and(|state| !matches!(state, "Z" | "X"));
    fields.nth(18).filter(|_| runs)?.parse().ok()
}

#[cfg(unix)]
fn write(directory: &Path, content: &Content) -> io::Result<PathBuf> {
    use std::io::Write as _;
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let path = directory.join(format!("{}-{}.json", content.pid, content.address.port()));
    let text = serde_json::to_vec(content)?;
    // One that is there is left by a process that had this number: it is not followed if it is a link.
    let mut file = match std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            std::fs::remove_file(&path)?;
            std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?
        }
        opened => opened?,
    };
    match file.write_all(&text) {
        Ok(()) => Ok(path),
        Err(error) => {
            let _ = std::fs::remove_file(&path);
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
    use std::os::unix::fs::PermissionsExt;

    fn files(directory: &Path) -> Vec<PathBuf> {
        std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    }

    #[test]
    fn an_endpoint_is_found_while_it_lasts_and_by_its_user_only() {
        let dir = tempfile::tempdir().unwrap();
        // The first directory cannot be made, because its parent is a file.
        std::fs::write(dir.path().join("file"), "").unwrap();
        let dirs = [dir.path().join("file").join("running"), dir.path().join("a").join("running")];
        let announcement = Announcement::within(&dirs, "0.0.0.0:9464".parse().unwrap());
        let found = announced_within(&dirs);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].pid, found[0].address.to_string()), (std::process::id(), "127.0.0.1:9464".to_string()));
        assert!(!found[0].program.is_empty() && !found[0].program.contains('/'), "{found:?}");
        let path = files(&dirs[1]).pop().unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&dirs[1])), (0o600, 0o700));
        drop(announcement);
        assert!(files(&dirs[1]).is_empty() && announced_within(&dirs).is_empty());
    }

    #[test]
    fn what_a_killed_process_left_is_removed_and_what_is_not_ours_stays() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = [dir.path().to_path_buf()];
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let content = |pid: u32, machine: String| Content {
            version: VERSION,
            pid,
            began: began(pid),
            machine,
            program: "sleep".into(),
            address: "127.0.0.1:1".parse().unwrap(),
        };
        write(&dirs[0], &content(child.id(), machine())).unwrap();
        write(&dirs[0], &Content { address: "127.0.0.1:2".parse().unwrap(), ..content(child.id(), "other".into()) })
            .unwrap();
        std::fs::write(dir.path().join("half.json"), "{\"version\":1").unwrap();
        std::fs::write(dir.path().join("later.json"), "{\"version\":2}").unwrap();
        assert_eq!(announced_within(&dirs).len(), 1, "that of another machine is not told of");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(announced_within(&dirs), []);
        assert_eq!(files(dir.path()).len(), 3, "only the file of the killed process is removed");
        // Another process has the number by now.
        write(&dirs[0], &Content { began: Some(1), ..content(std::process::id(), machine()) }).unwrap();
        assert_eq!(announced_within(&dirs), []);
        assert_eq!(files(dir.path()).len(), 3);
    }

    #[test]
    fn what_another_user_announces_is_not_believed_and_names_do_not_act() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = [dir.path().to_path_buf()];
        let own = std::process::id();
        let content = Content {
            version: VERSION,
            pid: own,
            began: began(own),
            machine: machine(),
            program: "a\u{202e}b\u{1b}[2J".into(),
            address: "127.0.0.1:1".parse().unwrap(),
        };
        let path = write(&dirs[0], &content).unwrap();
        let found = announced_within(&dirs);
        assert_eq!(found.iter().map(|found| found.program.as_str()).collect::<Vec<_>>(), ["a\u{fffd}b\u{fffd}[2J"]);
        // Only root can give a file to somebody else.
        if std::os::unix::fs::chown(&path, Some(65_534), None).is_ok() {
            assert_eq!(announced_within(&dirs), []);
            assert!(path.exists(), "it is not ours to remove");
        }
    }
}
