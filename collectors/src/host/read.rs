//! Reads `/proc` and `/sys`. What cannot be read is absent.

use super::process_metrics::{Reading, cgroup_limit, os_release, relevant_flags};
use super::sys;
use procfs::process::Process;
use procfs::{Current, LoadAverage, Meminfo};
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
    Reading {
        at,
        memory_available_bytes: Meminfo::current().ok().and_then(|m| m.mem_available),
        load_1m: LoadAverage::current().ok().map(|l| f64::from(l.one)),
        ..process
    }
}

/// What the state of a process in `/proc` tells.
fn of_status(process: Result<Process, procfs::ProcError>) -> Reading {
    let status = process.and_then(|p| p.status()).ok();
    let kib = |value: Option<u64>| value.map(|v| v * 1024);
    Reading {
        resident_bytes: kib(status.as_ref().and_then(|s| s.vmrss)),
        // Not the maximum of `getrusage`, which a process inherits from its parent.
        peak_resident_bytes: kib(status.as_ref().and_then(|s| s.vmhwm)),
        threads: status.as_ref().map(|s| s.threads),
        ..Reading::default()
    }
}

fn own() -> Reading {
    let usage = sys::usage();
    Reading {
        cpu: usage.map(|u| u.cpu),
        voluntary_switches: usage.map(|u| u.voluntary_switches),
        involuntary_switches: usage.map(|u| u.involuntary_switches),
        minor_faults: usage.map(|u| u.minor_faults),
        major_faults: usage.map(|u| u.major_faults),
        ..of_status(Process::myself())
    }
}

/// The clock of its CPU time ticks a hundred times a second.
fn of_other(pid: u32) -> Reading {
    let process = || Process::new(i32::try_from(pid).unwrap_or(i32::MAX));
    let stat = process().and_then(|p| p.stat()).ok();
    let time = |ticks: u64| Duration::from_secs_f64(ticks as f64 / procfs::ticks_per_second() as f64);
    Reading {
        cpu: stat.as_ref().map(|s| time(s.utime + s.stime)),
        minor_faults: stat.as_ref().map(|s| s.minflt),
        major_faults: stat.as_ref().map(|s| s.majflt),
        ..of_status(process())
    }
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
    if let Ok(cpus) = procfs::CpuInfo::current() {
        put("cpu_model", cpus.model_name(0).map(Into::into));
        put("cpu_cores", Some(cpus.num_cores().into()));
        let cores: BTreeSet<_> =
            (0..cpus.num_cores()).filter_map(|n| Some((cpus.physical_id(n)?, cpus.get_field(n, "core id")?))).collect();
        // Some virtual machines and most ARM boards do not say.
        put("cpu_cores_physical", (!cores.is_empty()).then(|| cores.len().into()));
        put("cpu_features", cpus.flags(0).map(|flags| relevant_flags(flags).into()));
    }
    put("memory_total_bytes", Meminfo::current().ok().map(|m| m.mem_total.into()));
    let limit = text("/sys/fs/cgroup/memory.max").and_then(|t| cgroup_limit(&t));
    put("memory_limit_bytes", limit.map(Into::into));
    put("kernel", text("/proc/sys/kernel/osrelease").map(|t| t.trim().into()));
    let release = text("/etc/os-release").or_else(|| text("/usr/lib/os-release"));
    put("os", Some(release.and_then(|t| os_release(&t, "PRETTY_NAME")).unwrap_or_else(|| "Linux".to_string()).into()));
    put("cpu_governor", text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").map(|t| t.trim().into()));
}
