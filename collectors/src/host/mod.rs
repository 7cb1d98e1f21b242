//! This process and the machine it runs on.
//!
//! | metric | unit | meaning |
//! |---|---|---|
//! | `process_resident_memory_bytes` | bytes | memory of the process in RAM |
//! | `process_peak_resident_memory_bytes` | bytes | its maximum so far |
//! | `process_cpu_ratio` | ratio | CPU time since the sample before ÷ wall time; 2.0 is two cores busy |
//! | `process_cpu_seconds_total` | seconds | CPU time so far, all threads, user and system |
//! | `process_cpu_user_seconds_total` | seconds | the part of it in the program's own code |
//! | `process_cpu_system_seconds_total` | seconds | the part of it in the kernel |
//! | `process_cpu_throttled_seconds_total` | seconds | time in which the control group's quota kept it from running |
//! | `process_context_switches_voluntary_total` | count | threads that went to wait |
//! | `process_context_switches_involuntary_total` | count | threads that lost their core to another |
//! | `process_page_faults_minor_total` | count | pages mapped without reading from disk |
//! | `process_page_faults_major_total` | count | pages read from disk, such as memory-mapped weights |
//! | `process_threads` | count | threads now |
//! | `process_unnamed_threads` | count | those without a name of their own, such as rayon's and candle's pools |
//! | `system_processors_usable` | count | processors that the process may use, by its affinity |
//! | `system_cpu_busy_seconds_total` | seconds | CPU time of everybody on these processors |
//! | `system_cpu_others_ratio` | ratio | CPU time of others on them since the sample before ÷ wall time |
//! | `system_memory_available_bytes` | bytes | what could be allocated without swapping |
//! | `system_load_1m` | count | load average of the last minute |
//!
//! On systems other than Linux every metric is absent.

#[cfg(target_os = "linux")]
mod cpu_group;
mod heap_sys;
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "nothing is read there yet"))]
mod process_metrics;
#[cfg(target_os = "linux")]
mod read;
#[cfg(target_os = "linux")]
mod sys;

pub use heap_sys::give_back_freed;

use candlescope_core::run::env_key;
use candlescope_core::{CollectError, Collector, Samples, metric};
use process_metrics::{Reading, samples};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Samples this process and its machine.
///
/// One round takes some hundred microseconds on the background thread (more on machines with very many processors, whose
/// `/proc/stat` is long), so the period below costs about a thousandth of a core.
#[derive(Debug)]
pub struct HostCollector {
    /// Another process than this one.
    other: Option<OtherProcess>,
    period: Duration,
    device: Arc<str>,
    began: Instant,
    last: Option<Reading>,
    #[cfg(target_os = "linux")]
    cpu_group: cpu_group::CpuGroup,
}

impl Default for HostCollector {
    fn default() -> Self {
        Self::new()
    }
}

impl HostCollector {
    /// A collector that samples five times a second.
    pub fn new() -> Self {
        Self::with_period(Duration::from_millis(200))
    }

    /// A collector with another period.
    pub fn with_period(period: Duration) -> Self {
        Self {
            other: None,
            period,
            device: metric::HOST.into(),
            began: Instant::now(),
            last: None,
            #[cfg(target_os = "linux")]
            cpu_group: cpu_group::CpuGroup::of(None),
        }
    }

    /// Samples the process `pid` in place of this one. Context switches are absent: the system keeps them of each thread
    /// that still runs, and their sum would go down whenever one ends. [`sample`](Collector::sample) fails once the
    /// process has ended.
    ///
    /// # Errors
    /// If there is no such process, or the system does not tell of others.
    pub fn of_process(pid: u32) -> Result<Self, CollectError> {
        let other = OtherProcess::find(pid).ok_or_else(|| {
            CollectError(format!("there is no process {pid} on this machine: `ps -u $USER` lists your own"))
        })?;
        Ok(Self {
            other: Some(other),
            #[cfg(target_os = "linux")]
            cpu_group: cpu_group::CpuGroup::of(Some(pid)),
            ..Self::new()
        })
    }
}

#[cfg(target_os = "linux")]
impl HostCollector {
    fn reading(&self) -> Reading {
        let other = self.other.map(|other| other.pid);
        let mut now = read::reading(self.began.elapsed(), other);
        now.throttled = self.cpu_group.throttled();
        // Names of threads are read where their number has changed: there may be hundreds.
        now.unnamed_threads = match &self.last {
            Some(last) if last.threads == now.threads && last.unnamed_threads.is_some() => last.unnamed_threads,
            _ => read::unnamed_threads(other),
        };
        now
    }
}

/// A process that is not this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OtherProcess {
    pid: u32,
    /// When it began: tells it from a later one with the same number.
    began: u64,
}

impl OtherProcess {
    fn find(pid: u32) -> Option<Self> {
        #[cfg(target_os = "linux")]
        return read::began(pid).map(|began| Self { pid, began });
        #[cfg(not(target_os = "linux"))]
        None.filter(|_: &Self| pid > 0)
    }
}

impl Collector for HostCollector {
    fn name(&self) -> &'static str {
        "host"
    }

    fn period(&self) -> Duration {
        self.period
    }

    fn describe(&mut self) -> BTreeMap<String, serde_json::Value> {
        let mut facts = BTreeMap::from([
            (env_key::ARCH.name().to_string(), std::env::consts::ARCH.into()),
            ("os_family".to_string(), std::env::consts::OS.into()),
            (env_key::PID.name().to_string(), std::process::id().into()),
        ]);
        if let Ok(cores) = std::thread::available_parallelism() {
            // Takes affinity and the container's quota into account, unlike the number of cores.
            facts.insert(env_key::CPU_AVAILABLE.name().to_string(), cores.get().into());
        }
        #[cfg(target_os = "linux")]
        read::describe(&mut facts);
        facts
    }

    fn sample(&mut self, out: &mut Samples<'_>) -> Result<(), CollectError> {
        if let Some(other) = self.other.filter(|other| OtherProcess::find(other.pid) != Some(*other)) {
            return Err(CollectError(format!("the process {} has ended", other.pid)));
        }
        #[cfg(target_os = "linux")]
        let reading = self.reading();
        #[cfg(not(target_os = "linux"))]
        let reading = Reading { at: self.began.elapsed(), ..Reading::default() };
        if cfg!(target_os = "linux") && reading.is_empty() {
            return Err(CollectError("nothing of the host could be read: is /proc mounted?".to_string()));
        }
        for (metric, value, unit) in samples(self.last.as_ref(), &reading) {
            out.push(&self.device, metric, value, unit);
        }
        self.last = Some(reading);
        Ok(())
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use candlescope_core::HostNs;

    fn round(collector: &mut HostCollector) -> BTreeMap<&'static str, f64> {
        let mut out = Vec::new();
        collector.sample(&mut Samples::new(HostNs(1), &mut out)).expect("a sample");
        out.into_iter().map(|s| (s.metric, s.value)).collect()
    }

    #[test]
    fn a_busy_thread_shows() {
        let mut collector = HostCollector::new();
        let first = round(&mut collector);
        assert!(!first.contains_key("process_cpu_ratio"), "a ratio needs two readings");
        let until = Instant::now() + Duration::from_millis(150);
        let mut kept: Vec<u8> = Vec::new();
        while Instant::now() < until {
            kept.extend(std::hint::black_box([1u8; 4096]));
        }
        let second = round(&mut collector);
        // Other tests share the process and the machine may be busy: bounds are wide.
        assert!((0.1..=1000.0).contains(&second["process_cpu_ratio"]), "{second:?}");
        assert!(second["process_cpu_seconds_total"] > first["process_cpu_seconds_total"]);
        assert!(second["process_resident_memory_bytes"] > 1e6);
        assert!(second["process_peak_resident_memory_bytes"] >= second["process_resident_memory_bytes"] * 0.5);
        assert!(second["process_page_faults_minor_total"] >= first["process_page_faults_minor_total"]);
        assert!(second["system_memory_available_bytes"] > 0.0 && second["process_threads"] >= 1.0);
        drop(kept);
    }

    #[test]
    fn a_sleeping_thread_switches_voluntarily() {
        let mut collector = HostCollector::new();
        let first = round(&mut collector);
        (0..5).for_each(|_| std::thread::sleep(Duration::from_millis(1)));
        let second = round(&mut collector);
        let name = "process_context_switches_voluntary_total";
        assert!(second[name] >= first[name] + 5.0);
    }

    #[test]
    fn another_process_is_sampled_until_it_ends() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().expect("sleep");
        let mut collector = HostCollector::of_process(child.id()).expect("it runs");
        let (first, second) = (round(&mut collector), round(&mut collector));
        // Our own memory and threads are others.
        assert_eq!(second["process_threads"], 1.0);
        let (mut own, limit) = (HostCollector::new(), 0.5);
        assert!(first["process_resident_memory_bytes"] < round(&mut own)["process_resident_memory_bytes"]);
        assert!(second.get("process_cpu_ratio").is_none_or(|ratio| *ratio < limit), "it sleeps: {second:?}");
        assert!(!second.contains_key("process_context_switches_voluntary_total"), "not of all threads");
        child.kill().expect("it can be ended");
        child.wait().expect("it ends");
        let told = collector.sample(&mut Samples::new(HostNs(1), &mut Vec::new())).expect_err("it has ended");
        assert!(told.to_string().contains("has ended"), "{told}");
        assert!(HostCollector::of_process(child.id()).expect_err("no longer").to_string().contains("no process"));
    }

    #[test]
    fn the_machine_is_described() {
        let facts = HostCollector::new().describe();
        for name in ["cpu_cores", "memory_total_bytes", "kernel", "os", "arch", "pid", "cpu_available"] {
            assert!(facts.contains_key(name), "{name} is missing from {facts:?}");
        }
    }
}
