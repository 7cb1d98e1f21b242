//! The control group of a process, as far as it limits the use of processors.

use super::process_metrics::{cpu_max, quota_of, throttled};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where systems mount control groups.
const ROOT: &str = "/sys/fs/cgroup";

/// The folders that limit the process: its own group's, and those above it.
#[derive(Debug, Clone, Default)]
pub(super) struct CpuGroup {
    folders: Vec<PathBuf>,
}

impl CpuGroup {
    /// Of this process, or of another.
    pub(super) fn of(other: Option<u32>) -> Self {
        let process = other.map_or_else(|| "self".to_string(), |pid| pid.to_string());
        let text = fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default();
        Self { folders: folders(&text).into_iter().filter(|folder| folder.is_dir()).collect() }
    }

    /// Processors' time a second that it may use: the least of all limits.
    pub(super) fn quota(&self) -> Option<f64> {
        let read = |folder: &Path, file: &str| fs::read_to_string(folder.join(file)).ok();
        let limit = |folder: &PathBuf| {
            let v1 = || quota_of(&read(folder, "cpu.cfs_quota_us")?, &read(folder, "cpu.cfs_period_us")?);
            read(folder, "cpu.max").and_then(|text| cpu_max(&text)).or_else(v1)
        };
        self.folders.iter().filter_map(limit).reduce(f64::min)
    }

    /// The time so far in which a quota kept it from running: the most of all groups, as each counts its own quota's only.
    pub(super) fn throttled(&self) -> Option<Duration> {
        let of = |folder: &PathBuf| throttled(&fs::read_to_string(folder.join("cpu.stat")).ok()?);
        self.folders.iter().filter_map(of).max()
    }
}

/// The folders that the lines of `/proc/PID/cgroup` name, the group's own first. In a container the path is often that
/// of the host, and only the root is there.
fn folders(text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let root = match controllers.split(',').any(|name| name == "cpu") {
            true => Path::new(ROOT).join("cpu"),
            false if controllers.is_empty() => PathBuf::from(ROOT),
            false => continue,
        };
        let inside = Path::new(path.trim_start_matches('/'));
        found.extend(inside.ancestors().map(|part| if part == Path::new("") { root.clone() } else { root.join(part) }));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{CpuGroup, folders};
    use std::path::PathBuf;
    use std::time::Duration;

    #[test]
    fn a_group_and_those_above_it_are_named() {
        let of = |text: &str| folders(text).iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
        assert_eq!(of("0::/a/b\n"), ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"]);
        assert_eq!(of("0::/\n"), ["/sys/fs/cgroup"]);
        assert_eq!(of("5:memory:/x\n4:cpu,cpuacct:/x\n"), ["/sys/fs/cgroup/cpu/x", "/sys/fs/cgroup/cpu"]);
        assert_eq!(folders("garbage"), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_quota_further_up_keeps_the_process_from_running_too() {
        let dir = tempfile::tempdir().expect("a directory");
        let made = |name: &str, stat: &str| {
            let folder = dir.path().join(name);
            std::fs::create_dir(&folder).expect("made");
            std::fs::write(folder.join("cpu.stat"), stat).expect("written");
            folder
        };
        let own = made("own", "usage_usec 9\nthrottled_usec 0\n");
        let above = made("above", "usage_usec 9\nthrottled_usec 5000000\n");
        let group = CpuGroup { folders: vec![own, above, dir.path().join("none")] };
        assert_eq!(group.throttled(), Some(Duration::from_secs(5)));
        assert_eq!(CpuGroup::default().throttled(), None);
    }
}
