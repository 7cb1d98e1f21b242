//! Where this user's programs serve metrics: a small file for each endpoint, written when it starts and removed when it
//! ends, by which `candlescope monitor` finds it.
//!
//! The file says process, address and the name of the program's file, nothing else ([`running`](super::running)).

use super::running::{self, Content, directories, harmless};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// A program of this user that serves metrics on this machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct AnnouncedProgram {
    /// Id of its process.
    pub pid: u32,
    /// Where `/metrics` is, as seen from this machine.
    pub address: SocketAddr,
    /// File name of the program.
    pub program: String,
}

/// What a file says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct AnnouncedEndpoint {
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
        let program = std::env::current_exe().ok();
        let program = program.as_deref().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
        let content = Content::of_this_process(AnnouncedEndpoint { program: program.into_owned(), address });
        let path = directories.iter().find_map(|directory| write(directory, &content).ok());
        Self { path, pid: content.pid }
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        running::remove(&mut self.path, self.pid);
    }
}

/// The programs of this user that serve metrics on this machine now. Files whose process has ended without removing
/// them are removed.
pub fn announced() -> Vec<AnnouncedProgram> {
    announced_within(&directories())
}

fn announced_within(directories: &[PathBuf]) -> Vec<AnnouncedProgram> {
    let one = |Content { pid, says, .. }: Content<AnnouncedEndpoint>| {
        let address = SocketAddr::new(reachable(says.address.ip()), says.address.port());
        AnnouncedProgram { pid, address, program: harmless(&says.program) }
    };
    let found: BTreeSet<AnnouncedProgram> = running::said(directories, "json").into_iter().map(one).collect();
    found.into_iter().collect()
}

/// An address that stands for all of this machine's, as one of them.
fn reachable(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

fn write(directory: &Path, content: &Content<AnnouncedEndpoint>) -> io::Result<PathBuf> {
    running::write(directory, &format!("{}-{}.json", content.pid, content.says.address.port()), content)
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
        let serves = |port: u16| AnnouncedEndpoint { program: "sleep".into(), address: ([127, 0, 0, 1], port).into() };
        write(&dirs[0], &Content::of(child.id(), serves(1))).unwrap();
        write(&dirs[0], &Content { machine: "other".into(), ..Content::of(child.id(), serves(2)) }).unwrap();
        std::fs::write(dir.path().join("half.json"), "{\"version\":1").unwrap();
        std::fs::write(dir.path().join("later.json"), "{\"version\":2}").unwrap();
        assert_eq!(announced_within(&dirs).len(), 1, "that of another machine is not told of");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(announced_within(&dirs), []);
        assert_eq!(files(dir.path()).len(), 3, "only the file of the killed process is removed");
        // Another process has the number by now.
        write(&dirs[0], &Content { began: Some(1), ..Content::of_this_process(serves(1)) }).unwrap();
        assert_eq!(announced_within(&dirs), []);
        assert_eq!(files(dir.path()).len(), 3);
    }

    #[test]
    fn what_another_user_announces_is_not_believed_and_names_do_not_act() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = [dir.path().to_path_buf()];
        let serves =
            AnnouncedEndpoint { program: "a\u{202e}b\u{1b}[2J".into(), address: "127.0.0.1:1".parse().unwrap() };
        let content = Content::of_this_process(serves);
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
