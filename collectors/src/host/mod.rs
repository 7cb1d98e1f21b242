//! This process and the machine it runs on.
//!
//! | metric | unit | meaning |
//! |---|---|---|
//! | `process_resident_memory_bytes` | bytes | memory of the process in RAM |
//! | `process_peak_resident_memory_bytes` | bytes | its maximum so far |
//! | `process_cpu_ratio` | ratio | CPU time since the sample before ÷ wall time; 2.0 is two cores busy |
//! | `process_cpu_seconds_total` | seconds | CPU time so far, all threads, user and system |
//! | `process_context_switches_voluntary_total` | count | threads that went to wait |
//! | `process_context_switches_involuntary_total` | count | threads that lost their core to another |
//! | `process_page_faults_minor_total` | count | pages mapped without reading from disk |
//! | `process_page_faults_major_total` | count | pages read from disk, such as memory-mapped weights |
//! | `process_threads` | count | threads now |
//! | `system_memory_available_bytes` | bytes | what could be allocated without swapping |
//! | `system_load_1m` | count | load average of the last minute |
//!
//! On systems other than Linux every metric is absent.

#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "nothing is read there yet"))]
mod process_metrics;
#[cfg(target_os = "linux")]
mod read;
#[cfg(target_os = "linux")]
mod sys;

use candlescope_core::{CollectError, Collector, Samples};
use process_metrics::{Reading, samples};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Samples this process and its machine.
///
/// One round takes some tens of microseconds on the background thread, so the period below costs well under a
/// thousandth of a core.
#[derive(Debug)]
pub struct HostCollector {
    period: Duration,
    device: Arc<str>,
    began: Instant,
    last: Option<Reading>,
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
        Self { period, device: "host".into(), began: Instant::now(), last: None }
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
            ("arch".to_string(), std::env::consts::ARCH.into()),
            ("os_family".to_string(), std::env::consts::OS.into()),
            ("pid".to_string(), std::process::id().into()),
        ]);
        if let Ok(cores) = std::thread::available_parallelism() {
            // Takes affinity and the container's quota into account, unlike the number of cores.
            facts.insert("cpu_available".to_string(), cores.get().into());
        }
        #[cfg(target_os = "linux")]
        read::describe(&mut facts);
        facts
    }

    fn sample(&mut self, out: &mut Samples<'_>) -> Result<(), CollectError> {
        #[cfg(target_os = "linux")]
        let reading = read::reading(self.began.elapsed());
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
    fn the_machine_is_described() {
        let facts = HostCollector::new().describe();
        for name in ["cpu_cores", "memory_total_bytes", "kernel", "os", "arch", "pid", "cpu_available"] {
            assert!(facts.contains_key(name), "{name} is missing from {facts:?}");
        }
    }
}
