//! What the operating system says about this process, and where its threads run.

use anyhow::{Context, Result, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Resident memory in bytes, and the part of it that is anonymous (heap and stacks; the rest is mapped files).
///
/// # Errors
/// Where there is no `/proc/self/status`.
pub fn resident() -> Result<(u64, u64)> {
    let status = std::fs::read_to_string("/proc/self/status").context("this figure needs Linux's /proc")?;
    let kilobytes = |key: &str| -> Option<u64> {
        let line = status.lines().find(|l| l.starts_with(key))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    let all = kilobytes("VmRSS:").context("/proc/self/status has no VmRSS")?;
    Ok((all * 1024, kilobytes("RssAnon:").unwrap_or(0) * 1024))
}

/// CPUs the calling thread may use.
///
/// # Errors
/// When the system does not tell.
pub fn cpus() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&n| set.is_set(n)).collect())
}

/// Keeps the calling thread, and threads it starts, on one CPU.
///
/// # Errors
/// When the system refuses.
pub fn pin_to(cpu: usize) -> Result<()> {
    ensure!(cpu < CpuSet::MAX_CPU, "there is no CPU {cpu}");
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).with_context(|| format!("cannot stay on CPU {cpu}"))
}

/// Bytes of all files below a folder.
///
/// # Errors
/// When it cannot be read.
pub fn disk_use(dir: &std::path::Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        // A file may be renamed or removed while we look.
        let Ok(metadata) = entry.metadata() else { continue };
        bytes += if metadata.is_dir() { disk_use(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}
