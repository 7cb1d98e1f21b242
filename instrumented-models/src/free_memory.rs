//! How much memory can be allocated.

use candle_core::Device;

/// A device's memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// What can be allocated.
    pub free: u64,
    /// What there is: RAM of the machine or the limit of its control group, whichever is less; all of a GPU's memory.
    pub total: u64,
}

/// The memory of `device`: of the machine what it has and [`available_bytes`], of a GPU what the driver says. `None` where
/// nobody tells.
pub fn memory(device: &Device) -> Option<Memory> {
    match device {
        Device::Cpu => available_bytes().map(|free| Memory { free, total: machine_bytes().unwrap_or(free).max(free) }),
        #[cfg(feature = "cuda")]
        Device::Cuda(device) => {
            let told = device.cuda_stream().context().mem_get_info().ok()?;
            Some(Memory { free: told.0 as u64, total: told.1 as u64 })
        }
        _ => None,
    }
}

/// Bytes of RAM that the machine has, or that its control groups let the process have, whichever is less.
#[cfg(target_os = "linux")]
fn machine_bytes() -> Option<u64> {
    use procfs::Current;
    let machine = procfs::Meminfo::current().ok()?.mem_total;
    Some(group_most().map_or(machine, |group| group.min(machine)))
}

#[cfg(not(target_os = "linux"))]
fn machine_bytes() -> Option<u64> {
    None
}

/// Bytes that can be allocated on `device`: of the machine's memory [`available_bytes`], on a GPU what the driver has
/// free. `None` where nobody tells.
pub fn free_memory(device: &Device) -> Option<u64> {
    memory(device).map(|memory| memory.free)
}

/// Bytes that this process may still take: what the machine has left, or its control group, whichever is less. `None`
/// where the system does not tell.
#[cfg(target_os = "linux")]
pub fn available_bytes() -> Option<u64> {
    use procfs::Current;
    let machine = procfs::Meminfo::current().ok()?.mem_available?;
    Some(group_available().map_or(machine, |group| group.min(machine)))
}

/// Bytes that this process may still take; not known on this system.
#[cfg(not(target_os = "linux"))]
pub fn available_bytes() -> Option<u64> {
    None
}

/// The process's control group and those above it.
#[cfg(target_os = "linux")]
fn groups() -> Vec<std::path::PathBuf> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/").trim_start_matches('/');
    let root = std::path::Path::new("/sys/fs/cgroup");
    let path = root.join(own);
    path.ancestors().take_while(|group| group.starts_with(root)).map(std::path::Path::to_path_buf).collect()
}

#[cfg(target_os = "linux")]
fn number(path: std::path::PathBuf) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The limit of version 1 of control groups, at the root.
#[cfg(target_os = "linux")]
fn old_limit() -> Option<u64> {
    number("/sys/fs/cgroup/memory/memory.limit_in_bytes".into()).filter(|limit| *limit < 1 << 60)
}

/// The most that the process's control group, or one above it, may have.
#[cfg(target_os = "linux")]
fn group_most() -> Option<u64> {
    groups().iter().filter_map(|group| number(group.join("memory.max"))).chain(old_limit()).min()
}

/// What the process's control group, or one above it, has left (version 2; of version 1 the group at the root).
#[cfg(target_os = "linux")]
fn group_available() -> Option<u64> {
    let left = |group: std::path::PathBuf| {
        let (most, used) = (number(group.join("memory.max"))?, number(group.join("memory.current"))?);
        // Cached files count as used, and are given up on demand.
        let cached = std::fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
        let cached = cached.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse::<u64>().ok());
        Some(most.saturating_sub(used.saturating_sub(cached.unwrap_or(0))))
    };
    let used = number("/sys/fs/cgroup/memory/memory.usage_in_bytes".into());
    let old = old_limit().zip(used).map(|(most, used)| most.saturating_sub(used));
    groups().into_iter().filter_map(left).chain(old).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_in_bytes() {
        assert!(free_memory(&Device::Cpu).is_none_or(|bytes| bytes > 1 << 20));
    }
}
