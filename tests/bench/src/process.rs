//! Figures of the operating system about this process, and the CPUs of its threads.

use anyhow::{Context, Result, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Resident memory in bytes, and the part of it that is anonymous (heap and stacks; the rest is mapped files).
///
/// # Errors
/// If there is no `/proc/self/status`.
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
/// If the system does not tell.
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
        // A file may be renamed or removed meanwhile.
        let Ok(metadata) = entry.metadata() else { continue };
        bytes += if metadata.is_dir() { disk_use(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}

/// Measures the CPU time that other processes and other guests take on the machine.
#[derive(Debug)]
pub struct Disturbance {
    ours: Vec<u32>,
    busy: u64,
    used: u64,
    total: u64,
}

impl Disturbance {
    /// Begins to watch; `ours` and the calling process do not count as a disturbance.
    ///
    /// # Errors
    /// If there is no `/proc/stat`.
    pub fn watch(ours: &[u32]) -> Result<Self> {
        let ours: Vec<u32> = ours.iter().copied().chain([std::process::id()]).collect();
        let (busy, total) = machine_time()?;
        let used = ours.iter().map(|pid| time_of(*pid)).sum();
        Ok(Self { ours, busy, used, total })
    }

    /// Share of all CPUs' time since then that went to others, 0 to 1.
    ///
    /// # Errors
    /// As for `watch`.
    pub fn share(&self) -> Result<f64> {
        let now = Self::watch(&self.ours[..self.ours.len() - 1])?;
        let others = (now.busy - self.busy).saturating_sub(now.used - self.used);
        Ok(others as f64 / (now.total - self.total).max(1) as f64)
    }
}

/// Clock ticks of all CPUs: those not idle, and all. Time stolen by other guests is not idle.
fn machine_time() -> Result<(u64, u64)> {
    let stat = std::fs::read_to_string("/proc/stat").context("this figure needs Linux's /proc")?;
    let line = stat.lines().next().unwrap_or_default();
    let ticks: Vec<u64> = line.split_whitespace().skip(1).take(8).filter_map(|n| n.parse().ok()).collect();
    ensure!(ticks.len() == 8, "/proc/stat begins with `{line}`");
    let total = ticks.iter().sum::<u64>();
    // Fields 4 and 5: idle, and idle while waiting for a disk.
    Ok((total - ticks[3] - ticks[4], total))
}

/// Clock ticks of a process, zero once it is gone.
fn time_of(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in brackets may contain anything; user and system time are fields 14 and 15 of the whole line.
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    after_name.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<u64>().ok()).sum()
}
