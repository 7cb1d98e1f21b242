//! Reads `/proc` and `/sys`. What cannot be read is absent.

use super::cpu_group::CpuGroup;
use super::process_metrics::{Reading, cgroup_limit, listed, os_release, relevant_flags};
use super::sys;
use candlescope_core::process_facts::process_facts;
use candlescope_core::run::env_key;
use procfs::process::Process;
use procfs::{CpuTime, Current, CurrentSI, KernelStats, LoadAverage, Meminfo};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

/// One look at the process (this one, or `other`) and the machine.
pub(super) fn reading(at: Duration, other: Option<u32>) -> Reading {
    let process = match other {
        None => own(),
        Some(pid) => of_other(pid),
    };
    let (processors, busy) = process.allowed.as_deref().and_then(busy).unzip();
    let process = process.reading;
    Reading {
        at,
        processors,
        busy,
        memory_available_bytes: Meminfo::current().ok().and_then(|m| m.mem_available),
        load_1m: LoadAverage::current().ok().map(|l| f64::from(l.one)),
        ..process
    }
}

/// What is read of a process.
struct OfProcess {
    reading: Reading,
    /// Processors that it may use.
    allowed: Option<Vec<(u32, u32)>>,
}

/// How many of these processors there are, and the time that anybody used them.
fn busy(allowed: &[(u32, u32)]) -> Option<(u64, Duration)> {
    let all = KernelStats::current().ok()?.cpu_time;
    let may = |n: usize| allowed.iter().any(|(first, last)| (*first as usize..=*last as usize).contains(&n));
    let times: Vec<_> = all.iter().enumerate().filter(|(n, _)| may(*n)).map(|(_, time)| time).collect();
    let busy =
        |t: &&CpuTime| t.user + t.nice + t.system + t.irq.unwrap_or(0) + t.softirq.unwrap_or(0) + t.steal.unwrap_or(0);
    let ticks: u64 = times.iter().map(busy).sum();
    // Some sandboxes have the file and count nothing in it.
    let known = times.iter().any(|t| t.idle > 0 || busy(t) > 0);
    let seconds = ticks as f64 / procfs::ticks_per_second() as f64;
    known.then(|| (times.len() as u64, Duration::from_secs_f64(seconds)))
}

/// What the state of a process in `/proc` tells.
fn of_status(process: Result<Process, procfs::ProcError>) -> OfProcess {
    let status = process.and_then(|p| p.status()).ok();
    let kib = |value: Option<u64>| value.map(|v| v * 1024);
    let allowed = status.as_ref().and_then(|s| s.cpus_allowed_list.clone());
    let reading = Reading {
        resident_bytes: kib(status.as_ref().and_then(|s| s.vmrss)),
        // Not the maximum of `getrusage`, which a process inherits from its parent.
        peak_resident_bytes: kib(status.as_ref().and_then(|s| s.vmhwm)),
        threads: status.as_ref().map(|s| s.threads),
        ..Reading::default()
    };
    OfProcess { reading, allowed }
}

fn own() -> OfProcess {
    let usage = sys::usage();
    let OfProcess { reading, allowed } = of_status(Process::myself());
    let reading = Reading {
        user: usage.map(|u| u.user),
        system: usage.map(|u| u.system),
        voluntary_switches: usage.map(|u| u.voluntary_switches),
        involuntary_switches: usage.map(|u| u.involuntary_switches),
        minor_faults: usage.map(|u| u.minor_faults),
        major_faults: usage.map(|u| u.major_faults),
        ..reading
    };
    OfProcess { reading, allowed }
}

/// The clock of its CPU time ticks a hundred times a second.
fn of_other(pid: u32) -> OfProcess {
    let process = || Process::new(i32::try_from(pid).unwrap_or(i32::MAX));
    let stat = process().and_then(|p| p.stat()).ok();
    let time = |ticks: u64| Duration::from_secs_f64(ticks as f64 / procfs::ticks_per_second() as f64);
    let OfProcess { reading, allowed } = of_status(process());
    let reading = Reading {
        user: stat.as_ref().map(|s| time(s.utime)),
        system: stat.as_ref().map(|s| time(s.stime)),
        minor_faults: stat.as_ref().map(|s| s.minflt),
        major_faults: stat.as_ref().map(|s| s.majflt),
        ..reading
    };
    OfProcess { reading, allowed }
}

/// Threads of the process (this one, or `other`) that bear its name, without the first: who starts a thread without naming
/// it gives it their own. rayon and candle do not name theirs.
pub(super) fn unnamed_threads(other: Option<u32>) -> Option<u64> {
    let process = other.map_or_else(|| "self".to_string(), |pid| pid.to_string());
    let name = fs::read(format!("/proc/{process}/comm")).ok()?;
    let threads = fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let names = threads.filter_map(|thread| fs::read(thread.ok()?.path().join("comm")).ok());
    (names.filter(|own| *own == name).count() as u64).checked_sub(1)
}

/// When a process began, in ticks since the system did; `None` if there is none that runs.
pub(super) fn began(pid: u32) -> Option<u64> {
    let stat = Process::new(i32::try_from(pid).ok()?).and_then(|p| p.stat()).ok()?;
    // One that has ended stays until its parent asks for its status.
    (!matches!(stat.state, 'Z' | 'X')).then_some(stat.starttime)
}

/// Facts about this machine that figures depend on.
pub(super) fn describe(facts: &mut BTreeMap<String, Value>) {
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            facts.insert(name.to_string(), value);
        }
    };
    let text = |path: &str| fs::read_to_string(path).ok();
    let cgroup = CpuGroup::of(None);
    if let Ok(cpus) = procfs::CpuInfo::current() {
        put(env_key::CPU_MODEL.name(), cpus.model_name(0).map(Into::into));
        put(env_key::CPU_CORES.name(), Some(cpus.num_cores().into()));
        let cores: BTreeSet<_> =
            (0..cpus.num_cores()).filter_map(|n| Some((cpus.physical_id(n)?, cpus.get_field(n, "core id")?))).collect();
        // Some virtual machines and most ARM boards do not say.
        put(env_key::CPU_CORES_PHYSICAL.name(), (!cores.is_empty()).then(|| cores.len().into()));
        // What candle counts at each product if nothing tells it.
        let (counted, from) = match cores.len() {
            0 => (cpus.num_cores(), "logical cores"),
            n => (n, "physical cores"),
        };
        if !process_facts().contains_key(env_key::COMPUTE_THREADS.name()) {
            put(env_key::COMPUTE_THREADS.name(), Some(counted.into()));
            put(env_key::COMPUTE_THREADS_FROM.name(), Some(from.into()));
        }
        put("cpu_features", cpus.flags(0).map(|flags| relevant_flags(flags).into()));
    }
    put(env_key::MEMORY_TOTAL.name(), Meminfo::current().ok().map(|m| m.mem_total.into()));
    let limit = text("/sys/fs/cgroup/memory.max").and_then(|t| cgroup_limit(&t));
    put("memory_limit_bytes", limit.map(Into::into));
    put(env_key::KERNEL.name(), text("/proc/sys/kernel/osrelease").map(|t| t.trim().into()));
    let release = text("/etc/os-release").or_else(|| text("/usr/lib/os-release"));
    let os = release.and_then(|t| os_release(&t, "PRETTY_NAME")).unwrap_or_else(|| "Linux".to_string());
    put(env_key::OS.name(), Some(os.into()));
    put(env_key::CPU_QUOTA.name(), Some(cgroup.quota().into()));
    put(env_key::CPU_AFFINITY.name(), of_status(Process::myself()).allowed.map(|allowed| listed(&allowed).into()));
    put("cpu_governor", text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").map(|t| t.trim().into()));
}
