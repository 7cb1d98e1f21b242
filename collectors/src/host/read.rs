//! Reads `/proc` and `/sys`. What cannot be read is absent.

use super::process_metrics::{Reading, cgroup_limit, os_release, relevant_flags};
use super::sys;
use procfs::process::Process;
use procfs::{Current, LoadAverage, Meminfo};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

/// One look at the process and the machine.
pub(super) fn reading(at: Duration) -> Reading {
    let status = Process::myself().and_then(|p| p.status()).ok();
    let usage = sys::usage();
    let kib = |value: Option<u64>| value.map(|v| v * 1024);
    Reading {
        at,
        resident_bytes: kib(status.as_ref().and_then(|s| s.vmrss)),
        // Not the maximum of `getrusage`, which a process inherits from its parent.
        peak_resident_bytes: kib(status.as_ref().and_then(|s| s.vmhwm)),
        threads: status.as_ref().map(|s| s.threads),
        cpu: usage.map(|u| u.cpu),
        voluntary_switches: usage.map(|u| u.voluntary_switches),
        involuntary_switches: usage.map(|u| u.involuntary_switches),
        minor_faults: usage.map(|u| u.minor_faults),
        major_faults: usage.map(|u| u.major_faults),
        memory_available_bytes: Meminfo::current().ok().and_then(|m| m.mem_available),
        load_1m: LoadAverage::current().ok().map(|l| f64::from(l.one)),
    }
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
